"""Whole batches on the GPUs of this machine, one after the other, and what their files say of where the time went."""

from __future__ import annotations

import json
import math
import os
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
from splatbatch.output.records.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
SETTLE_S = 2.0
STEPS_OF_INTEREST = range(4500, 5501)
"""Where a step is timed: all Gaussians are there and photographs have their full size, of 7,000 steps."""
CACHES = {"SPLATBATCH_CACHE": "own", "XDG_CACHE_HOME": "others"}
"""Where kernels are kept that were compiled on this machine, by the variable that says so."""


@dataclass(frozen=True)
class Trained:
    """When an attempt made its first and its last step, on which slot."""

    patch: str
    slot: str
    first: float
    last: float
    psnr: float
    num_gaussians: int
    torch_peak_mib: float
    step_ms: float
    """Around step 5,000; nan for a training that does not get so far."""


@dataclass(frozen=True)
class Run:
    """A batch that has run."""

    name: str
    wall_s: float
    trained: tuple[Trained, ...]
    num_patches: int

    @property
    def psnr(self) -> float:
        """Return the mean over the patches, dB."""
        return _mean([one.psnr for one in self.trained])

    @property
    def num_gaussians(self) -> float:
        """Return the mean over the patches."""
        return _mean([one.num_gaussians for one in self.trained])

    @property
    def step_ms(self) -> float:
        """Return what a step takes around step 5,000: of p1 where there is one, else in the mean."""
        return _mean(
            [one.step_ms for one in self.trained if one.patch == "p1"] or [one.step_ms for one in self.trained]
        )

    @property
    def torch_peak_mib(self) -> float:
        """Return the highest of the patches."""
        return max((one.torch_peak_mib for one in self.trained), default=float("nan"))

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
        """Return the same from the very first step to the very last; nan where no patch was trained."""
        slots = {one.slot for one in self.trained}
        if not slots:
            return math.nan
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
    checkout: Path = ROOT
    """Whose splatbatch trains."""
    caches: Path | None = None
    """Where compiled kernels of ours are kept instead of where they usually are."""

    def run(self, name: str, patches: Path, *, has_standbys: bool = True, **sections: dict[str, Any]) -> Run:
        """Train all patches in a folder under some further settings."""
        folder = self.out / name
        folder.mkdir(parents=True)
        settings = {key: dict(value) for key, value in self.settings.items()}
        settings["scene"] = {"patches": str(patches), "images": str(self.data / "images")}
        for section, values in sections.items():
            settings[section] = settings.get(section, {}) | values
        config = folder / "splat_config.yml"
        config.write_text(json.dumps(settings))  # JSON is YAML
        program = ["-m", "splatbatch"] if has_standbys else ["-c", WITHOUT_STANDBYS]
        command = [sys.executable, *program, "train", "--no-verify", "--config", str(config)]
        started = time.monotonic()
        with (folder / "run.log").open("w") as log:
            subprocess.run(command, stdout=log, stderr=log, check=False, env=self._environment(), cwd=folder)
        wall_s = time.monotonic() - started
        time.sleep(SETTLE_S)
        return read_run(name, wall_s, folder / "output")

    def _environment(self) -> dict[str, str]:
        others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", str(ROOT))]
        moved = {} if self.caches is None else {name: str(self.caches / below) for name, below in CACHES.items()}
        return {**os.environ, **moved, "PYTHONPATH": os.pathsep.join([str(self.checkout), *others])}

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


def assign(settings: dict[str, dict[str, Any]], assignments: Sequence[str]) -> None:
    """Set what `--set SECTION.KEY=JSON` says."""
    for assignment in assignments:
        key, _, value = assignment.partition("=")
        section, _, name = key.partition(".")
        settings.setdefault(section, {})[name] = json.loads(value)


def read_run(name: str, wall_s: float, output: Path) -> Run:
    """Read what a batch has left."""
    results = [record for path in output.glob("patches/*/result.json") if (record := read_json(path))]
    trained = [_trained(output, record) for record in results]
    return Run(name, wall_s, tuple(one for one in trained if one), len(list(output.glob("patches/*"))))


def _trained(output: Path, result: dict[str, Any]) -> Trained | None:
    folder = output / "patches" / str(result["patch"]) / str(result["attempt"])
    steps = [record for record in read_lines(folder / "progress.jsonl") if "loss" in record]
    if not steps:
        return None
    metrics, place = result.get("metrics") or {}, read_json(folder / "go.json") or read_json(folder / "job.json") or {}
    return Trained(
        patch=str(result["patch"]),
        slot=str(place.get("slot")),
        first=steps[0]["t"],
        last=steps[-1]["t"],
        psnr=(metrics.get("final") or {}).get("psnr") or math.nan,
        num_gaussians=int(result.get("num_gaussians") or 0),
        torch_peak_mib=Metrics.from_record(metrics).torch_peak_mib or math.nan,
        step_ms=_step_ms(steps),
    )


def _step_ms(steps: list[dict[str, Any]]) -> float:
    there = [record for record in steps if record["step"] in STEPS_OF_INTEREST]
    return (
        1000 * (there[-1]["t"] - there[0]["t"]) / (there[-1]["step"] - there[0]["step"]) if len(there) > 1 else math.nan
    )


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


PACKINGS: dict[str, dict[str, Any]] = {
    "packed-2": {"patches_per_gpu": 2},
    "packed-4": {"patches_per_gpu": 4},
    "packed-auto": {"patches_per_gpu": "auto"},
    "packed-4-mps": {"patches_per_gpu": 4},
}
ALONE = ("loop-sleep-5", "no-standby")
WITHOUT_STANDBYS = (
    "from splatbatch import cli; from splatbatch.scheduler import standby; standby.ON_GPUS = False; cli.main()"
)
VARIANTS: dict[str, tuple[dict[str, Any], float]] = {
    "loop-sleep-5": ({}, 5),
    "no-standby": ({}, 0.001),
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
        runs.append(bench.run(name, bench.data / "patches", has_standbys=name not in ALONE, **sections))
    return runs


def over_gpus(bench: Bench, num_patches: int) -> list[Run]:
    """Train as many patches on one, two and four GPUs, as many as there are."""
    patches = bench.copies(num_patches)
    return [
        bench.run(f"gpus-{number}", patches, executor={"gpus": list(range(number))})
        for number in (1, 2, 4)
        if number <= len(gpu.gpus())
    ]


def commit_of(checkout: Path) -> str:
    """Return what a checkout is called: its commit, what its COMMIT file says, or its folder's name."""
    asked = subprocess.run(
        ["/usr/bin/env", "git", "-C", checkout, "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    noted = checkout / "COMMIT"
    return asked.stdout.strip() or (noted.read_text().strip() if noted.is_file() else checkout.name)
