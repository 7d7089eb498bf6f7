"""Pairs of trainings, parent and change, and what their differences say."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from splatbatch.files import read_lines

BOUND_DB = 0.1  # a difference whose interval lies within it, on both sides of 0, is none
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
        """Return by how many dB the change is better; None where pixels or corrections of tones differ."""
        known = [self.parent.get(figure), self.changed.get(figure)]
        pixels = [(one.get("covered"), one.get("psnr_even") is None) for one in (self.parent, self.changed)]
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


def table(pairs: Sequence[Pair]) -> list[str]:
    """Return a line for each scene and change, and for each change over all pairs; then pairs without a figure."""
    groups: dict[tuple[str, str], list[Pair]] = {}
    everywhere = pairs if len({pair.scene for pair in pairs}) > 1 else []
    for scene, pair in [*((pair.scene, pair) for pair in pairs), *(("every scene", pair) for pair in everywhere)]:
        groups.setdefault((scene, pair.change), []).append(pair)
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    for names, found in groups.items():
        covered, every = (mean_of(pair.gain(figure) for pair in found) for figure in ("psnr_covered", "psnr"))
        slower = mean_of(pair.slower() for pair in found)
        cells = (*names, every.num, covered, covered.verdict(), every, every.verdict(), slower.num, slower)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines + [str(pair) for pair in pairs if pair.gain("psnr") is None]


def read(path: Path) -> list[Pair]:
    """Return the pairs of levers.jsonl; none if there is no file. Torn lines are left out."""
    return [Pair(**record) for record in read_lines(path)]


def without(wanted: Iterable[Pair], done: Iterable[Pair]) -> list[Pair]:
    """Return the pairs that are not done yet, in the same order."""
    there = {pair.key for pair in done}
    return [pair for pair in wanted if pair.key not in there]
