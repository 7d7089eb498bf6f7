"""Whole batches on the GPUs of this machine, one after the other, and what their files say of where the time went."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from splatbatch.files import read_json, read_lines
from splatbatch.machine import gpu

SETTLE_S = 2.0


@dataclass(frozen=True)
class Trained:
    """When an attempt made its first and its last step, on which slot."""

    patch: str
    slot: str
    first: float
    last: float


@dataclass(frozen=True)
class Run:
    """A batch that has run."""

    name: str
    wall_s: float
    trained: tuple[Trained, ...]
    num_patches: int
    psnr: float

    @property
    def gaps_s(self) -> list[float]:
        """Return the time from the last step of a patch to the first of the next on the same slot; below 0: overlap."""
        slots = {one.slot for one in self.trained}
        lanes = [sorted((one for one in self.trained if one.slot == slot), key=lambda one: one.first) for slot in slots]
        return [after.first - before.last for lane in lanes for before, after in pairwise(lane)]

    @property
    def share(self) -> float:
        """Return the share of the wall time in which some patch made steps, per slot."""
        slots = {one.slot for one in self.trained} or {""}
        return sum(one.last - one.first for one in self.trained) / self.wall_s / len(slots)

    @property
    def share_after_the_start(self) -> float:
        """Return the same from the very first step to the very last."""
        slots = {one.slot for one in self.trained} or {""}
        span = max(one.last for one in self.trained) - min(one.first for one in self.trained)
        return sum(one.last - one.first for one in self.trained) / span / len(slots)

    def to_record(self) -> dict[str, Any]:
        """Return the figures as JSON fields."""
        gap = statistics.median(self.gaps_s) if self.gaps_s else None
        facts = {"name": self.name, "wall_s": self.wall_s, "trained": len(self.trained), "of": self.num_patches}
        return {**facts, "median_gap_s": gap, "gaps_s": self.gaps_s, "share": self.share, "psnr": self.psnr}


@dataclass(frozen=True)
class Bench:
    """What all runs have in common."""

    data: Path
    out: Path
    settings: dict[str, dict[str, Any]]

    def run(self, name: str, patches: Path, **sections: dict[str, Any]) -> Run:
        """Train all patches in a folder under some further settings."""
        folder = self.out / name
        folder.mkdir(parents=True)
        settings = {key: dict(value) for key, value in self.settings.items()}
        settings["scene"] = {"patches": str(patches), "images": str(self.data / "images")}
        for section, values in sections.items():
            settings[section] = settings.get(section, {}) | values
        config = folder / "splat_config.yml"
        config.write_text(json.dumps(settings))  # JSON is YAML
        command = [sys.executable, "-m", "splatbatch", "train", "--no-verify", "--config", str(config)]
        started = time.monotonic()
        with (folder / "run.log").open("w") as log:
            subprocess.run(command, stdout=log, stderr=log, check=False)
        wall_s = time.monotonic() - started
        time.sleep(SETTLE_S)
        return read_run(name, wall_s, folder / "output")

    def copies(self, num: int) -> Path:
        """Return a folder with so many patches: those of the data, again and again under other names."""
        originals = sorted(path for path in (self.data / "patches").iterdir() if path.is_dir())
        folder = self.out / f"{num}-patches"
        folder.mkdir(parents=True, exist_ok=True)
        for index in range(num):
            link = folder / f"p{index}"
            if not link.exists():
                link.mkdir()
                (link / "sparse").symlink_to((originals[index % len(originals)] / "sparse").resolve())
        return folder


def read_run(name: str, wall_s: float, output: Path) -> Run:
    """Read what a batch has left."""
    results = [record for path in output.glob("patches/*/result.json") if (record := read_json(path))]
    trained = [_trained(output, record) for record in results]
    psnr = [((record.get("metrics") or {}).get("final") or {}).get("psnr") for record in results]
    known = [one for one in psnr if one is not None]
    folders = len(list(output.glob("patches/*")))
    mean = statistics.fmean(known) if known else float("nan")
    return Run(name, wall_s, tuple(one for one in trained if one), folders, mean)


def _trained(output: Path, result: dict[str, Any]) -> Trained | None:
    folder = output / "patches" / str(result["patch"]) / str(result["attempt"])
    steps = [record["t"] for record in read_lines(folder / "progress.jsonl") if "loss" in record]
    place = read_json(folder / "go.json") or read_json(folder / "job.json") or {}
    return Trained(str(result["patch"]), str(place.get("slot")), steps[0], steps[-1]) if steps else None


PACKINGS: dict[str, dict[str, Any]] = {
    "packed-2": {"patches_per_gpu": 2, "mps": "off"},
    "packed-4": {"patches_per_gpu": 4, "mps": "off"},
    "packed-auto": {"patches_per_gpu": "auto", "mps": "off"},
    "packed-4-mps": {"patches_per_gpu": 4},
}
VARIANTS: dict[str, tuple[dict[str, Any], float]] = {
    "loop-sleep-5": ({"standby": False}, 5),
    "no-standby": ({"standby": False}, 0.001),
    "serial-no-overlap": ({}, 0.001),
    "serial": ({}, 0),
    **{name: (executor, 0) for name, executor in PACKINGS.items()},
}
"""Settings of the executor and the least cooldown, s: one by one with and without standbys, as a loop with `sleep 5`
would, and several at once."""


def serial_and_packed(bench: Bench, wanted: Sequence[str]) -> list[Run]:
    """Train the patches in each of the wanted ways, on one GPU."""
    runs = []
    for name in wanted:
        executor, floor_s = VARIANTS[name]
        sections = {"executor": {"gpus": [0], **executor}, "cooldown": {"floor_s": floor_s}}
        runs.append(bench.run(name, bench.data / "patches", **sections))
    return runs


def over_gpus(bench: Bench, num_patches: int, steps: int) -> list[Run]:
    """Train many short patches on one, two and four GPUs, as many as there are."""
    patches, training = bench.copies(num_patches), bench.settings["training"] | {"max_steps": steps}
    return [
        bench.run(f"gpus-{number}", patches, executor={"gpus": list(range(number))}, training=training)
        for number in (1, 2, 4)
        if number <= len(gpu.gpus())
    ]
