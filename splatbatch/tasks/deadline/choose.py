"""Which budget ends a batch in time and gives up least: the same for every patch. Pure.

What is given up is told in dB of hold-out PSNR, roughly. Steps: 3DGS (Kerbl 2023, tables 4 to 7) has 7,000 and 30,000
steps on the same photographs: 25.60 and 27.21 dB (Mip-NeRF 360), 21.20 and 23.14 (Tanks & Temples), 27.78 and 29.41
(Deep Blending): 0.8 dB for each halving. Photographs: caliterra at 320x241 on the CPU, `mcmc`, one run each, measured
at full size: 1,600, 800 and 400 steps give 29.3, 27.4 and 27.2 dB; on half as large ones 27.5, 27.1 and 25.9, in a
third to a fifth of the time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from splatbatch.output.records.deadline.choice import FULL, StepBudget
from splatbatch.tasks.deadline.pace import FEWEST_SHARE, divided
from splatbatch.tasks.deadline.speeds import Speeds, full_recipe
from splatbatch.tasks.task import Task
from splatbatch.tasks.throughput import makespan_s

DB_PER_HALVING = 0.8
DB_PER_SMALLER = 1.2
"""For each halving of width and height."""
DIVISORS = (1, 2, 4)
LEAST_PX = 160 * 120
"""Smaller photographs show nothing."""
ALL_SHARES = 1_000_000
"""Steps are found to a millionth of them."""


@dataclass(frozen=True)
class RemainingWork:
    """What is to be done, and on what."""

    tasks: Sequence[Task]
    speeds: Speeds
    num_slots: int
    busy: Sequence[float] = ()
    """When each slot that is taken will be free, in seconds from now."""

    def choose(self, left_s: float) -> StepBudget:
        """Return the budget that gives up least of those that end in time; if none does, the one that ends first."""
        if self.ends_at(FULL) <= left_s:
            return FULL
        budgets = [self._most_steps(divisor, left_s) for divisor in DIVISORS if self._may_shrink(divisor)]
        in_time = [budget for budget in budgets if self.ends_at(budget) <= left_s]
        return min(in_time, key=lost_db) if in_time else min(budgets, key=self.ends_at)

    def ends_at(self, budget: StepBudget) -> float:
        """Return when the last task ends, in seconds from now; what others need goes before all others."""
        names, busy = {name for task in self.tasks for name in task.kind.needs(task)}, self.busy
        needed = [self.speeds.seconds(task, budget) for task in self.tasks if task.name in names]
        others = [self.speeds.seconds(task, budget) for task in self.tasks if task.name not in names]
        if needed:
            busy = [makespan_s(needed, self.num_slots, busy)] * self.num_slots
        return makespan_s(others, self.num_slots, busy)

    def _most_steps(self, divisor: int, left_s: float) -> StepBudget:
        """Return the budget with the most steps that ends in time; if none does, the one with the fewest."""

        def ends_at(share: int) -> float:
            return self.ends_at(StepBudget(share / ALL_SHARES, divisor))

        fewest = round(FEWEST_SHARE * ALL_SHARES)
        num_in_time = bisect_right(range(fewest, ALL_SHARES + 1), left_s, key=ends_at)
        return StepBudget((fewest + max(0, num_in_time - 1)) / ALL_SHARES, divisor)

    def _may_shrink(self, divisor: int) -> bool:
        """Return whether photographs may become so much smaller: of all patches alike, if those of one show enough."""
        smaller = StepBudget(1.0, divisor)
        known = (
            self.speeds.needs.get(task.name) for task in self.tasks if divided(full_recipe(task), smaller) == divisor
        )
        return divisor == 1 or any(need is not None and need.mean_px >= LEAST_PX * divisor**2 for need in known)


def lost_db(budget: StepBudget) -> float:
    """Return what a budget gives up, in dB of hold-out PSNR: an estimate."""
    return DB_PER_HALVING * math.log2(1 / budget.steps) + DB_PER_SMALLER * math.log2(budget.divisor)
