"""Nights on a small disk that is filled at a moment of choice, and emptied some seconds later."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from external_runs import RUN
from fake_attempt import fill
from fake_batch import FakeBatch

from splatbatch.hashing import sha256_of
from splatbatch.output.layout import OutputFolder

DISK_MIB = 32
PATCHES = tuple(f"p{number}" for number in range(6))
WRITES = "write 2 20000"
"""For two seconds at least, 20,000 Gaussians: a MiB, piece by piece."""
LONGEST_S = 400.0
MOMENTS: dict[str, Callable[[FakeBatch], bool]] = {
    "at any time": lambda batch: True,
    "while nothing runs": lambda batch: (batch.output / "ledger").is_dir(),
    "while results are collected": lambda batch: any(batch.output.glob("patches/*/attempt-*/exit.json")),
    "while the report is written": lambda batch: '"batch_ended"' in _text(batch.ledger),
}


@dataclass(frozen=True)
class FullDisk:
    """When a night's disk is filled, and for how long."""

    number: int
    moment: str = "at any time"
    after_s: float = 0.0
    """Of the moment."""
    for_s: float = 5.0
    slots: int = 2
    is_external: bool = False


def planned(number: int, seed: int) -> FullDisk:
    """Return a night of twenty: every fifth has a long pause, every third an external trainer, four moments in turn."""
    chance = Random(seed * 1000 + number)
    moment = "at any time" if number % 2 else list(MOMENTS)[number // 2 % 4]
    after_s = chance.uniform(0.5, 8) if moment == "at any time" else chance.uniform(0, 0.5)
    for_s = chance.uniform(40, 120) if number % 5 == 4 else chance.uniform(5, 15)
    return FullDisk(number, moment, after_s, for_s, 2 + 2 * (number // 4 % 2), number % 3 == 0)


@contextlib.contextmanager
def small_disk(batch: FakeBatch, mib: int = DISK_MIB) -> Iterator[Path]:
    """Mount a file system under the output folder of a batch.

    Raises:
        PermissionError: only root may.
    """
    disk = mounted(batch, mib)
    try:
        yield disk
    finally:
        unmount(disk)


def mounted(batch: FakeBatch, mib: int) -> Path:
    """Mount a file system under the output folder of a batch, and leave it there.

    Raises:
        PermissionError: only root may.
    """
    disk = batch.folder / "disk"
    disk.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        raise PermissionError("only root may mount a small disk")
    batch.output.symlink_to(disk)
    return disk


def unmount(disk: Path) -> None:
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill_for(disk: Path, seconds: float) -> None:
    """Leave no room on a disk for so long: whatever a failed attempt leaves is taken again."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        fill(disk / f"filler{time.monotonic_ns()}")
        time.sleep(0.05)
    empty(disk)


def empty(disk: Path) -> None:
    """Remove what filled a disk."""
    for filler in disk.glob("filler*"):
        filler.unlink()


def spend(night: FullDisk, folder: Path, *command: str) -> list[str]:
    """Train six patches while the disk is full for some time; return what is wrong afterwards."""
    batch = FakeBatch(folder)
    with small_disk(batch) as disk:
        batch.make(
            *PATCHES,
            limits={"free_disk_mib": 2, "grace_s": 0.5},
            executor={"cpu_slots": night.slots},
            training={"trainer": "foreign"} if night.is_external else {},
            trainers={"foreign": {**RUN, "settings": {"do": WRITES}}},
        )
        batch.script(**{name: [WRITES] for name in PATCHES})
        process = batch.start(*command or ("train",))
        try:
            _fill_in_time(night, batch, disk)
            out, err = process.communicate(timeout=LONGEST_S)
        finally:
            process.kill()
        return [f"exit {process.returncode}: {out[-2000:]}{err[-3000:]}"] * bool(process.returncode) + lost(batch)


def _fill_in_time(night: FullDisk, batch: FakeBatch, disk: Path) -> None:
    give_up_at = time.monotonic() + LONGEST_S
    while not MOMENTS[night.moment](batch) and time.monotonic() < give_up_at:
        time.sleep(0.002)
    time.sleep(night.after_s)
    fill_for(disk, night.for_s)


def lost(batch: FakeBatch) -> list[str]:
    """Return what is missing after a night in which everything was trained."""
    wrong, events = [], list[dict[str, Any]]()
    for ledger in sorted((batch.output / "ledger").glob("*.jsonl")):
        for line in ledger.read_text().splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                wrong.append(f"{ledger.name}: {line[:80]}")
    wrong += [f"gave up: {event}" for event in events if event["event"] == "gave_up"]
    ends = {(event["patch"], event["attempt"]) for event in events if event["event"] == "attempt_ended"}
    began = {(event["patch"], event["attempt"]) for event in events if event["event"] == "attempt_started"}
    wrong += [f"without an end: {one}" for one in sorted(began - ends)]
    output = OutputFolder(batch.output)
    for name in PATCHES:
        result = output.patch(name).read_result()
        if result is None or sha256_of(output.patch(name).splat) != result.sha256:
            wrong.append(f"{name}: no whole accepted splat")
    if not _text(batch.output / "report.json").rstrip().endswith("}"):
        wrong.append("no report")
    return wrong


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
