"""SIGKILL at the n-th line of a ledger, of a batch that has everything: retries, standbys, a refused patch, a sweep."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import light_trainer
from after_kills import events_of, faults_of
from fake_batch import FakeBatch, write_model
from process_family import family

VARIANTS = ("a", "b", "c")
UNITS = tuple(f"p{number}@{variant}" for number in range(3) for variant in VARIANTS)
REFUSED = "bad"
FIRST = ("die SIGSEGV", "exit 1 CUDA error: unspecified launch failure")
SECOND = ("train-with-fugitive 0.1", "train-with-kin 0.1", "train")
TARGETS = ("parent", "parent-before", "supervisor", "trainer")
"""The parent right after it wrote the n-th line or right before, or one of its supervisors or trainers then."""
SUMMARY = "9 of 12 splats trained; refused: " + ", ".join(f"{REFUSED}@{variant}" for variant in VARIANTS)
NUM_EVENTS = 60
MOST_EXTRA = 2
"""Attempts that one kill may cost: those that ran."""
MOST_AHEAD = 4
"""Attempts that may be prepared when a parent is killed: one for each of two slots and two standbys."""
PATIENCE_S = 180.0


@dataclass
class EventFigures:
    """What kills at events came to."""

    kills: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    trained: int = 0
    missed: list[str] = field(default_factory=list)
    """Moments at which there was nobody to be killed any more."""
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def in_words(self) -> str:
        kills = ", ".join(f"{number} {target}" for target, number in sorted(self.kills.items()))
        return (
            f"kills at ledger events: {sum(self.kills.values())} ({kills}), missed {self.missed}; "
            f"{self.trained} trained by {self.attempts} attempts; {len(self.faults)} faults; {self.seconds:.0f} s"
        )


def make(folder: Path) -> FakeBatch:
    """Return a batch whose ledger has more than sixty lines when nobody disturbs it."""
    batch = FakeBatch(folder).make(
        "p0",
        "p1",
        "p2",
        REFUSED,
        constants={"splatbatch.scheduler.standby.ON_CPUS": True, "splatbatch.failures.retry.LONGEST_WAIT_S": 0.1},
        executor={"cpu_slots": 2},
        retry={"max_attempts": 20},
        limits={"grace_s": 0.5, "free_disk_mib": 0},
        sweep={"variants": [{"name": name, "set": {"training.seed": i}} for i, name in enumerate(VARIANTS)]},
    )
    write_model(folder / "patches" / REFUSED / "sparse" / "0", ["nobody-took-it.png"])
    lines = {unit: [FIRST[i % 2], SECOND[i % 3]] for i, unit in enumerate(UNITS)}
    return batch.script(**lines)


def kills_at_events(folder: Path, moments: Iterable[int], target: str) -> EventFigures:
    """Kill at each of some lines of the ledger, each in a batch of its own; whoever survives, it is started again."""
    figures, started = EventFigures(), time.monotonic()
    for moment in moments:
        place = folder / f"{target}-{moment}"
        place.mkdir()
        found = [f"{target} at event {moment}: {fault}" for fault in _kill_at(place, moment, target, figures)]
        figures.faults += found
        if not found:
            shutil.rmtree(place)
    figures.seconds = time.monotonic() - started
    return figures


def _kill_at(place: Path, moment: int, target: str, figures: EventFigures) -> Iterator[str]:
    batch = make(place)
    code, said = _train(batch, FAKE_TRAINER_KILL=f"{moment} {target}")
    was_killed = (place / "killed").exists()
    figures.kills[target] += was_killed
    figures.missed += [] if was_killed else [f"{target} {moment}"]
    if target.startswith("parent") and (code == -signal.SIGKILL) != was_killed:
        yield f"the parent ended with {code}"
    for _ in range(3):
        if code == -signal.SIGKILL:
            code, said = _train(batch)
    started, trained = events_of(batch, "attempt_started"), len(UNITS)
    figures.attempts += len(started)
    figures.trained += trained
    if (code, said.partition("\n")[0]) != (1, SUMMARY):
        yield f"ended with {code}: {said}"
    prepared = len(list(batch.output.glob("patches/*/attempt-*")))
    # of each unit the first attempt fails; one that was prepared when its parent was killed counts, and never started
    if prepared < 2 * trained or not 2 * trained - MOST_AHEAD <= len(started) <= 2 * trained + MOST_EXTRA:
        yield f"{len(started)} attempts, {prepared} prepared"
    if not {f"{REFUSED}@{variant}" for variant in VARIANTS} <= {one["patch"] for one in events_of(batch, "refused")}:
        yield "not refused"
    yield from faults_of(batch, UNITS)


def _train(batch: FakeBatch, **environment: str) -> tuple[int, str]:
    environment = {**batch.environment(), "FAKE_TRAINER_PROGRAM": light_trainer.__file__, **environment}
    log = (batch.folder / "parents.log").open("ab")
    process = subprocess.Popen(
        batch.command("train"), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
    )
    try:
        said, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        said = "it never ended"
    return process.wait(), said


def kill_as_told(order: str) -> None:
    """Have this process kill itself, or somebody below it, at a line of its ledger: "37 parent", as the line ends."""
    from splatbatch.output import ledger

    number, target = order.split()
    append, kill = ledger.append_line, _Killer(int(number), target)

    def append_and_kill(path: Path, record: Mapping[str, Any], **options: Any) -> None:
        if target == "parent-before":
            kill.at(path, 1)
        append(path, record, **options)
        kill.at(path, 0)

    ledger.append_line = append_and_kill


class _Killer:
    def __init__(self, number: int, target: str) -> None:
        self._number, self._target = number, target

    def at(self, ledger: Path, coming: int) -> None:
        """Kill once the ledger has enough lines and there is somebody to be killed."""
        lines = (ledger.read_bytes().count(b"\n") if ledger.exists() else 0) + coming
        pids = [os.getpid()] if self._target.startswith("parent") else family(os.getpid())[self._target]
        mark = Path(os.environ["SPLATBATCH_CONFIG"]).with_name("killed")
        if lines < self._number or not pids or mark.exists():
            return
        mark.write_text(json.dumps([lines, self._target]))
        os.kill(pids[self._number % len(pids)], signal.SIGKILL)
