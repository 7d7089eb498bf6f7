"""The end of a run: a short tail of steps, which begins early where the PSNR of held-out photographs is at a plateau.

In the tail all learning rates fall to a hundredth of their first values. Without that, a splat jitters by some tenths
of a dB from step to step (docs/benchmarks.md). A check takes about one and a half forward passes.
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
"""PSNR over a run: pairs of the number of steps done and the PSNR in dB, in the order of the steps; may be empty."""

CHECKS_PER_RUN = 250
"""Divisor of the planned steps: a check is due every 120 of 30,000 steps, and takes as long as 1.1 steps (CPU)."""
TAIL_SHARE = 1 / 25
"""Share of the steps of a run that are the tail; a tenth is no better, and takes longer (docs/benchmarks.md)."""
EARLIEST_SHARE = 1 / 3
"""Share of the planned steps before which no plateau counts: the decay of the means' learning rate hides it."""
LAST_SHARE = 1 / 5
"""Share of the steps done, the latest ones, whose checks show how fast the PSNR rises; over fewer, noise hides it."""
GAIN_OVER = 1.13
"""Factor on the steps done that must gain `least_gain_db`; the default 0.05 dB is 0.02 dB for 5 % more time."""


@dataclass(frozen=True)
class StoppingRule:
    """Settings of early stopping for a run of `max_steps`: when to check, and at which rise of the PSNR to go on."""

    max_steps: int
    in_a_row: int
    """Number of consecutive checks that must find too small a rise of the PSNR; 0: the run never ends early."""
    least_gain_db: float
    """Gain in PSNR, in dB, for `GAIN_OVER` (1.13) times as many steps; a run that gains less ends."""

    @classmethod
    def of(cls, recipe: Recipe) -> StoppingRule:
        """Return the rule of a recipe's settings; without early stopping in the recipe, `in_a_row` is 0."""
        return cls(recipe.training.max_steps, recipe.stops_after(), recipe.evaluation.least_gain_db)

    @property
    def least_slope_db(self) -> float:
        """Return the least rise of the PSNR, in dB for e (2.718) times as many steps, that lets a run go on."""
        return self.least_gain_db / math.log(GAIN_OVER)

    @property
    def every(self) -> int:
        """Return the number of steps between two checks, at least 1."""
        return max(1, self.max_steps // CHECKS_PER_RUN)

    @property
    def tail(self) -> int:
        """Return the number of steps in the tail, at least 1."""
        return max(1, round(self.max_steps * TAIL_SHARE))

    def is_check(self, step: int) -> bool:
        """Return whether a check is planned after `step` steps; never so late that ending early would save no step."""
        return self.in_a_row > 0 and step % self.every == 0 and step + self.tail < self.max_steps


def is_plateau(series: Series, rule: StoppingRule) -> bool:
    """Return whether the slopes up to each of the last `rule.in_a_row` checks are below `rule.least_slope_db`.

    False if one is not known, before `EARLIEST_SHARE` of the steps, for an empty series, and if `in_a_row` is 0.
    """
    if not rule.in_a_row or not series or series[-1][0] < EARLIEST_SHARE * rule.max_steps:
        return False
    slopes = [slope_db(series[: len(series) - back]) for back in range(rule.in_a_row)]
    return all(slope is not None and slope < rule.least_slope_db for slope in slopes)


def slope_db(series: Series) -> float | None:
    """Return by how much the PSNR rises, in dB for e times as many steps, by a line through the checks of `LAST_SHARE`.

    Checks whose PSNR is not finite are left out. None, for not known: the series is empty; the last PSNR is not finite;
    fewer than two checks are left; or the checks do not reach back far enough.
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

    The windows are of `views`, the rule is that of `recipe`; `progress` takes warnings, and an earlier end. Of what
    changes, decisions depend on `checks` and `tail_from`, which `state` returns for a checkpoint.
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
        """Return after how many steps the run ends: `max_steps`, or the end of the tail once the tail has begun."""
        return self.rule.max_steps if self.tail_from is None else self.tail_from + self.rule.tail

    @property
    def ended_at(self) -> int | None:
        """Return after how many steps the run ends early; None: it makes all planned steps."""
        return self.last_step if self.last_step < self.rule.max_steps else None

    def decays(self) -> tuple[float, float]:
        """Return the factors per step on the learning rate of the means, and on others, which fall in the tail alone.

        Every rate reaches `LAST_RATE` (a hundredth) of its first value at the last step.
        """
        begin = self.tail_from or 0
        means = LAST_RATE ** ((1 - begin / self.rule.max_steps) / (self.last_step - begin))
        return float(means), 1.0 if self.tail_from is None else float(LAST_RATE ** (1 / self.rule.tail))

    def is_tail_due(self, done: int) -> bool:
        """Return whether the tail must begin after `done` steps, to end with the last planned step; False in a tail."""
        return self.tail_from is None and done == self.rule.max_steps - self.rule.tail

    def is_due(self, done: int) -> bool:
        """Return whether a check is due after `done` steps; False without windows, and in the tail.

        The caller must check that growth has ended: full-size photographs, all harmonics, and no new Gaussians.
        """
        return bool(self.chosen_by.windows) and self.tail_from is None and self.rule.is_check(done)

    @torch.inference_mode()
    def check(self, done: int, gaussians: Mapping[str, Tensor], capacity: int | None) -> bool:
        """Measure the windows after `done` steps; return whether their mean PSNR is at a plateau. Waits for the GPU.

        `gaussians` are the patch's own; `capacity` is that of tile lists, None: counted. TrainerError: without kernels.
        """
        drawn, options = self._border.with_backdrop(gaussians), RasterOptions.of(self._recipe)
        psnrs = [psnr_in(drawn, window, options, capacity) for window in self.chosen_by.windows]
        self.checks.append((done, torch.stack(psnrs).mean().item()))
        return is_plateau(self.checks, self.rule)

    def begin_tail(self, tail_from: int, done: int) -> None:
        """Begin the tail after `tail_from` steps, which sets the last step; an earlier end is recorded as progress.

        `done` is the number of steps done; more than `tail_from` where a run is resumed in its tail.
        """
        self.tail_from, self._seen_from = tail_from, (done, time.monotonic())
        if self.ended_at:
            self._progress.end_at(self.ended_at)

    def close(self) -> None:
        """Stop the clock of the tail, at the end of the run; the time per step gives the seconds saved."""
        self._closed_at = time.monotonic()

    def state(self) -> Record:
        """Return the checks and the begin of the tail for a checkpoint, as values for JSON."""
        return {"checks": self.checks, "tail_from": self.tail_from}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the checks and the begin of the tail; the third figure of checks before version 0.3.0 is ignored.

        Raises:
            KeyError: the state lacks an entry.
        """
        self.checks, self.tail_from = [(step, psnr) for step, psnr, *_ in state["checks"]], state["tail_from"]

    def to_record(self) -> Record | None:
        """Return `early_stopping` of metrics.json; None where the recipe has no early stopping.

        "ended_at" is None after all planned steps, a PSNR if not finite. "pixels": "covered" ones, or "all" valid.
        """
        if not self.rule.in_a_row:
            return None
        first, began = self._seen_from
        pace_s = max(0.0, self._closed_at - began) / max(1, self.last_step - first)  # seconds per step of the tail
        return {
            "max_steps": self.rule.max_steps,
            "tail_from": self.tail_from,
            "ended_at": self.ended_at,
            "saved_s": round(pace_s * (self.rule.max_steps - self.last_step), 1),
            "pixels": "covered" if self.chosen_by.is_covered else "all",
            "chosen_by": self.chosen_by.names,
            "checks": [[step, psnr if math.isfinite(psnr) else None] for step, psnr in self.checks],
            "note": self.chosen_by.note,
        }
