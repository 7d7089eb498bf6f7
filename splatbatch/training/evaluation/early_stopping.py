"""The end of a run: a short tail of steps, which begins early where the PSNR of held-out photographs is at a plateau.

In the tail all learning rates fall to a hundredth of their first values. Without that, a splat jitters by some tenths
of a dB from step to step (docs/benchmarks.md). A check renders windows of a few held-out photographs and reads one
tensor. It waits for the GPU once, takes forward passes of one and a half photographs at most, and no more memory than
a step.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from splatbatch.config import Recipe
from splatbatch.training.evaluation.windows import StoppingWindows, psnr_in
from splatbatch.training.optim import LAST_RATE
from splatbatch.training.photos.dataset import TrainingImages
from splatbatch.training.progress import ProgressRecorder
from splatbatch.training.rendering.view import RasterOptions

Record = dict[str, Any]
Series = Sequence[tuple[int, float]]
"""PSNR over the run: pairs of the number of steps done and the PSNR in dB, in the order of the steps."""

CHECKS_PER_RUN = 250
"""Checks per run, if all steps had them: one every 120 of 30,000 steps.

A check takes as long as 1.1 steps (six photographs of caliterra-small on the CPU): 0.9 % of the time.
"""
TAIL_SHARE = 1 / 25
"""Share of the steps that are the tail. A tenth is no better, and costs its time (docs/benchmarks.md)."""
EARLIEST_SHARE = 1 / 3
"""Share of the steps before which no tail begins.

Until then the learning rate of the means is above a fifth of its first value. The gain from its decay cannot be told
yet from the gain of the steps.
"""
LAST_SHARE = 1 / 5
"""Share of the run so far, at its end, whose checks show how the PSNR rises.

A check differs from the next by 0.45 dB: over fewer steps the noise hides a rise (docs/benchmarks.md).
"""
GAIN_OVER = 1.13
"""Factor of the steps that must gain `least_gain_db`: its default, 0.05 dB, is 0.02 dB for 5 % more time."""


@dataclass(frozen=True)
class StoppingRule:
    """Settings of early stopping for a run of `max_steps`: when it is checked, and what rise of the PSNR goes on."""

    max_steps: int
    in_a_row: int
    """Number of consecutive checks by which the PSNR must rise too little; 0: never end early."""
    least_gain_db: float
    """Gain in PSNR, in dB, below which `GAIN_OVER` as many steps are not worth their time."""

    @classmethod
    def of(cls, recipe: Recipe) -> StoppingRule:
        """Return the rule that a recipe's settings give."""
        return cls(recipe.training.max_steps, recipe.stops_after(), recipe.evaluation.least_gain_db)

    @property
    def least_slope_db(self) -> float:
        """Return the least rise of the PSNR, in dB per factor e of the steps, that lets a run go on."""
        return self.least_gain_db / math.log(GAIN_OVER)

    @property
    def every(self) -> int:
        """Return the number of steps between two checks."""
        return max(1, self.max_steps // CHECKS_PER_RUN)

    @property
    def tail(self) -> int:
        """Return the number of steps in the tail."""
        return max(1, round(self.max_steps * TAIL_SHARE))

    def is_check(self, step: int) -> bool:
        """Return whether a check is planned after `step` steps; never so late that the tail would save no step."""
        return self.in_a_row > 0 and step % self.every == 0 and step + self.tail < self.max_steps


def is_plateau(series: Series, rule: StoppingRule) -> bool:
    """Return whether the tail may begin after the last check of a series.

    True if by each of the last `rule.in_a_row` checks the PSNR rises by less than `rule.least_slope_db`.
    """
    if not rule.in_a_row or not series or series[-1][0] < EARLIEST_SHARE * rule.max_steps:
        return False
    slopes = [slope_db(series[: len(series) - back]) for back in range(rule.in_a_row)]
    return all(slope is not None and slope < rule.least_slope_db for slope in slopes)


def slope_db(series: Series) -> float | None:
    """Return by how much the PSNR rises, in dB per factor e of the steps, by a line through the checks of `LAST_SHARE`.

    PSNR that is not finite is left out. None, for unknown: the last one is so, or the checks began later.
    """
    if not series or not math.isfinite(series[-1][1]):
        return None
    first = (1 - LAST_SHARE) * series[-1][0]
    recent = [(math.log(step), psnr) for step, psnr in series if step >= first and math.isfinite(psnr)]
    if series[0][0] > first or len(recent) < 2:
        return None
    return statistics.linear_regression(*zip(*recent, strict=True)).slope


class EarlyStopping:
    """Early stopping of one run: makes the checks, and sets the last step once a plateau is found.

    Its decisions depend only on the checks and `tail_from`, which `state` returns for a checkpoint.
    """

    def __init__(self, views: TrainingImages, recipe: Recipe, progress: ProgressRecorder) -> None:
        self.rule = StoppingRule.of(recipe)
        self._recipe, self._progress, self._border = recipe, progress, views.border
        self.chosen_by = StoppingWindows.of(views.holdout) if self.rule.in_a_row else StoppingWindows()
        if self.chosen_by.note:
            progress.warn(f"evaluation.stop_after: {self.chosen_by.note}")
        self.checks: list[tuple[int, float]] = []
        """Steps done and mean PSNR of the windows in dB, for each check."""
        self.tail_from: int | None = None
        """Number of steps after which the tail begins; None: it has not begun."""
        self._seen_from, self._closed_at = (0, 0.0), 0.0  # begin (step, time.monotonic()) and end of the tail here

    @property
    def last_step(self) -> int:
        """Return after how many steps the run ends: `max_steps`, or the end of the tail once it has begun."""
        return self.rule.max_steps if self.tail_from is None else self.tail_from + self.rule.tail

    def tail_decays(self) -> tuple[float, float]:
        """Return the factors per step of the tail on the learning rate of the means, and on the others.

        All reach `LAST_RATE` of their first value at the last step. That of the means has fallen before.
        """
        share_left = 1 - (self.tail_from or 0) / self.rule.max_steps
        return float(LAST_RATE ** (share_left / self.rule.tail)), float(LAST_RATE ** (1 / self.rule.tail))

    def is_tail_due(self, done: int) -> bool:
        """Return whether the tail begins after `done` steps without a plateau, so as to end with the last step."""
        return self.tail_from is None and done == self.rule.max_steps - self.rule.tail

    def is_due(self, done: int) -> bool:
        """Return whether a check is due after `done` steps; the caller sees to it that growth has ended by then."""
        return bool(self.chosen_by.windows) and self.tail_from is None and self.rule.is_check(done)

    @torch.inference_mode()
    def check(self, done: int, gaussians: Mapping[str, Tensor], capacity: int | None) -> bool:
        """Measure the windows of held-out photographs; return whether their PSNR has reached its plateau.

        Args:
            done: number of steps done.
            gaussians: that are trained, without the backdrop.
            capacity: of tile lists, see `rasterize`.
        """
        drawn, options = self._border.with_backdrop(gaussians), RasterOptions.of(self._recipe)
        psnrs = [psnr_in(drawn, window, options, capacity) for window in self.chosen_by.windows]
        self.checks.append((done, torch.stack(psnrs).mean().item()))
        return is_plateau(self.checks, self.rule)

    def begin_tail(self, tail_from: int, done: int) -> None:
        """Set the tail, and with it the last step of the run.

        Args:
            tail_from: number of steps after which the tail begins.
            done: number of steps done; more than `tail_from` where a run is resumed in its tail.
        """
        self.tail_from, self._seen_from = tail_from, (done, time.monotonic())
        if self.last_step < self.rule.max_steps:
            self._progress.end_at(self.last_step)

    def close(self) -> None:
        """Stop the clock of the tail."""
        self._closed_at = time.monotonic()

    def state(self) -> Record:
        """Return the checks and the begin of the tail for a checkpoint, as values for JSON."""
        return {"checks": self.checks, "tail_from": self.tail_from}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the checks and the begin of the tail from a checkpoint; one before 0.3.0 has a third figure."""
        self.checks, self.tail_from = [(step, psnr) for step, psnr, *_ in state["checks"]], state["tail_from"]

    def to_record(self) -> Record | None:
        """Return `early_stopping` of metrics.json; None where the recipe does not want it."""
        if not self.rule.in_a_row:
            return None
        first, began = self._seen_from
        pace_s = max(0.0, self._closed_at - began) / max(1, self.last_step - first)  # seconds per step of the tail
        return {
            "max_steps": self.rule.max_steps,
            "tail_from": self.tail_from,
            "ended_at": self.last_step if self.last_step < self.rule.max_steps else None,
            "saved_s": round(pace_s * (self.rule.max_steps - self.last_step), 1),
            "pixels": "covered" if self.chosen_by.is_covered else "all",
            "chosen_by": self.chosen_by.names,
            "checks": [[step, psnr if math.isfinite(psnr) else None] for step, psnr in self.checks],
            "note": self.chosen_by.note,
        }
