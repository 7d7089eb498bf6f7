"""Which pace ends a batch in time and gives up least: the same for every patch. Pure.

What is given up is told in dB of hold-out PSNR, roughly. Steps: 3DGS (Kerbl 2023, tables 4 to 7) has 7,000 and 30,000
steps on the same photographs: 25.60 and 27.21 dB (Mip-NeRF 360), 21.20 and 23.14 (Tanks & Temples), 27.78 and 29.41
(Deep Blending): 0.8 dB for each halving. Photographs: caliterra at 320x241 on the CPU, `mcmc`, one run each, measured
at full size: 1,600, 800 and 400 steps give 29.3, 27.4 and 27.2 dB; on half as large ones 27.5, 27.1 and 25.9, in a
third to a fifth of the time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from splatbatch.output.records.deadline.choice import StepBudget
from splatbatch.tasks.deadline.pace import FEWEST_SHARE, divided
from splatbatch.tasks.deadline.speeds import Speeds, full_recipe
from splatbatch.tasks.task import Task

DB_PER_HALVING = 0.8
DB_PER_SMALLER = 1.2
"""For each halving of width and height."""
DIVISORS = (1, 2, 4)
LEAST_PX = 160 * 120
"""Smaller photographs show nothing."""
LOOKS = 20
"""Of the search: steps are found to a millionth of them."""


@dataclass(frozen=True)
class RemainingWork:
    """What is to be done, and on what."""

    tasks: Sequence[Task]
    speeds: Speeds
    busy: Sequence[float] = (0.0,)
    """For each slot, when it is free, in seconds from now."""

    def ends_at(self, pace: StepBudget) -> float:
        """Return when the last task ends at a pace, in seconds from now; what others need goes before all others."""
        needed = {name for task in self.tasks for name in task.kind.needs(task)}
        first = [self.speeds.seconds(task, pace) for task in self.tasks if task.name in needed]
        others = [self.speeds.seconds(task, pace) for task in self.tasks if task.name not in needed]
        if not first or not others:
            return max(_filled(self.busy, first or others))
        before = max(_filled(self.busy, first))
        return max(_filled([max(before, one) for one in self.busy], others))

    def divisors(self) -> tuple[int, ...]:
        """Return by how much smaller photographs may become: of all patches alike, as long as they show anything."""
        return tuple(one for one in DIVISORS if one == 1 or any(self._may_shrink(task, one) for task in self.tasks))

    def _may_shrink(self, task: Task, divisor: int) -> bool:
        need = self.speeds.needs.get(task.name)
        smaller = divided(full_recipe(task), StepBudget(1.0, divisor))
        return need is not None and smaller == divisor and need.mean_px / divisor**2 >= LEAST_PX


@dataclass(frozen=True)
class BudgetForecast:
    """A pace, and what is expected of it."""

    pace: StepBudget
    expected_s: float
    is_met: bool


def choose(work: RemainingWork, left_s: float) -> BudgetForecast:
    """Return the pace that gives up least of those that end in time; else the smallest one that makes sense."""
    found = [pace for divisor in work.divisors() if (pace := _most_steps(work, divisor, left_s))]
    if found:
        best = min(found, key=lost_db)
        return BudgetForecast(best, work.ends_at(best), is_met=True)
    paces = (StepBudget(round(FEWEST_SHARE, 6), divisor) for divisor in work.divisors())
    smallest = min(paces, key=lambda pace: (round(work.ends_at(pace), 3), pace.divisor))
    return BudgetForecast(smallest, work.ends_at(smallest), is_met=False)


def lost_db(pace: StepBudget) -> float:
    """Return what a pace gives up, in dB of hold-out PSNR: an estimate."""
    return DB_PER_HALVING * math.log2(1 / pace.steps) + DB_PER_SMALLER * math.log2(pace.divisor)


def _most_steps(work: RemainingWork, divisor: int, left_s: float) -> StepBudget | None:
    """Return the pace with the most steps that ends in time; None if none does."""

    def fits(steps: float) -> bool:
        return work.ends_at(StepBudget(steps, divisor)) <= left_s

    if fits(1.0):
        return StepBudget(1.0, divisor)
    if not fits(FEWEST_SHARE):
        return None
    return StepBudget(_largest(fits, FEWEST_SHARE, 1.0), divisor)


def _largest(fits: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(LOOKS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return math.floor(low * 1e6) / 1e6


def _filled(busy: Sequence[float], seconds: Sequence[float]) -> list[float]:
    """Return when each slot is done if one that is free always takes the longest that is left."""
    ends = list(busy) or [0.0]
    heapq.heapify(ends)
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + one)
    return ends
