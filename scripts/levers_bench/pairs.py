"""Pairs of trainings, parent and change, and what their differences say."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from splatbatch.files import read_lines

BOUND_DB = 0.1  # a difference whose interval lies within it, on both sides of 0, is none
LEAST_DB = 1e-6  # of half an interval, when scenes are weighed: where seeds are equal, as on a CPU, it is 0
HEADINGS = ("scene", "change", "pairs", "covered, dB", "verdict", "all pixels, dB", "verdict", "alone", "seconds, %")


@dataclass(frozen=True)
class Pair:
    """One patch, trained by parent and change with the same seed: a line of levers.jsonl; without figures: not yet.

    Settings are SECTION.KEY=JSON. `is_alone`: nothing else was trained on the card, so that seconds can be compared.
    """

    scene: str
    patch: str
    seed: int
    change: str
    settings: Sequence[str]
    under: Sequence[str]
    is_alone: bool = False
    commit: str = ""
    parent: dict[str, Any] = field(default_factory=dict)
    changed: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what it is a pair of."""
        return self.scene, self.patch, self.seed, self.change, tuple(self.settings), tuple(self.under)

    def gain(self, figure: str) -> float | None:
        """Return by how many dB the change is better; None where pixels or corrections of tones differ.

        Early stopping leaves out the photographs that it decides by: those that both have are then compared.
        """
        both = (self.parent, self.changed)
        known = [one.get(figure) for one in both]
        names, others = (one.get("images", {}).keys() for one in both)
        pixels = [(one.get("covered"), one.get("psnr_even") is None) for one in both]
        if names != others and pixels[0][1] == pixels[1][1]:
            of_each = [[one["images"][name][figure] for one in both] for name in names & others]
            gains = [after - before for before, after in of_each if None not in (before, after)]
            return statistics.fmean(gains) if gains else None
        return known[1] - known[0] if pixels[0] == pixels[1] and None not in known else None

    def slower(self) -> float | None:
        """Return by how many percent the change took longer; None where something else was trained beside it."""
        before, after = self.parent.get("seconds"), self.changed.get("seconds")
        return 100 * (after / before - 1) if self.is_alone and before and after else None

    def __str__(self) -> str:
        gains = [f"{name} {gain:+.2f} dB" for name in ("psnr_covered", "psnr") if (gain := self.gain(name)) is not None]
        what = "left out: pixels or corrections of tones differ" if self.parent else "not trained: see train.log"
        return f"{self.scene} {self.patch} {self.change}, seed {self.seed}: {', '.join(gains) or what}"


@dataclass(frozen=True)
class Mean:
    """The mean of differences in pairs, with half the width of its 95 % interval by Student's t."""

    num: int
    mean: float
    half: float

    def __str__(self) -> str:
        if self.num < 2:
            return f"{self.mean:+.2f}" if self.num else "-"
        return f"{self.mean:+.2f} ({self.mean - self.half:+.2f} to {self.mean + self.half:+.2f})"

    def verdict(self) -> str:
        """Return "none" where it lies within the bound, "better" or "worse" where on one side of 0, or "undecided"."""
        if self.num < 2:
            return "undecided"
        low, high = self.mean - self.half, self.mean + self.half
        if low > -BOUND_DB and high < BOUND_DB:
            return "none"
        if low > 0 or high < 0:
            return "better" if low > 0 else "worse"
        return f"undecided (some {math.ceil(self.num * (self.half / BOUND_DB) ** 2)} pairs give ±{BOUND_DB} dB)"


def mean_of(values: Iterable[float | None]) -> Mean:
    """Return the mean of those that are known, with its interval."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return Mean(len(known), sum(known), math.inf)
    error = statistics.stdev(known) / math.sqrt(len(known))
    return Mean(len(known), statistics.fmean(known), float(student.ppf(0.975, len(known) - 1)) * error)


def combined(means: Iterable[Mean]) -> Mean:
    """Return the mean over scenes, weighted by their precisions, with its interval (Meier 1953, Biometrics 9).

    So a scene whose seeds differ much, as a flight of little overlap, does not hide what the others show. Scenes with
    fewer than two pairs are left out.
    """
    known = [one for one in means if one.half < math.inf]
    if len(known) < 2:
        return known[0] if known else Mean(0, 0.0, math.inf)
    weights = np.array([(student.ppf(0.975, one.num - 1) / max(one.half, LEAST_DB)) ** 2 for one in known])
    shares, freedom = weights / weights.sum(), np.array([one.num - 1 for one in known])
    error = math.sqrt((1 + 4 * (shares * (1 - shares) / freedom).sum()) / weights.sum())
    half = student.ppf(0.975, 1 / (shares**2 / freedom).sum()) * error
    return Mean(sum(one.num for one in known), float(shares @ [one.mean for one in known]), float(half))


def table(pairs: Sequence[Pair]) -> list[str]:
    """Return a line for each scene and change, and for each change over all scenes; then pairs without a figure."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    scenes = list(dict.fromkeys(pair.scene for pair in pairs))
    for change in dict.fromkeys(pair.change for pair in pairs):
        rows = {}
        for scene in scenes:
            found = [pair for pair in pairs if (pair.scene, pair.change) == (scene, change)]
            rows[scene] = [mean_of(pair.gain(figure) for pair in found) for figure in ("psnr_covered", "psnr")]
            rows[scene].append(mean_of(pair.slower() for pair in found))
        if len(scenes) > 1:
            rows["every scene"] = [combined(means) for means in zip(*rows.values(), strict=True)]
        for scene, (covered, every, slower) in rows.items():
            cells = (scene, change, every.num, covered, covered.verdict(), every, every.verdict(), slower.num, slower)
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines + [str(pair) for pair in pairs if pair.gain("psnr") is None]


def read(path: Path) -> list[Pair]:
    """Return the pairs of levers.jsonl; none if there is no file. Torn lines are left out."""
    return [Pair(**record) for record in read_lines(path)]


def without(wanted: Iterable[Pair], done: Iterable[Pair]) -> list[Pair]:
    """Return the pairs that are not done yet, in the same order."""
    there = {pair.key for pair in done}
    return [pair for pair in wanted if pair.key not in there]
