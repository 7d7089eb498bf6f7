"""Health rules of a training: figures of its steps in, findings out, each with its rule and the numbers that show it.

Pure functions, the same for every trainer. A fatal finding ends a run of the built-in trainer (`ProgressRecorder`);
others become warnings of a splat that is accepted all the same. All findings on an external program become warnings,
since it has ended by then.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from splatbatch.config import Recipe
from splatbatch.config.schedule import MOST_PRUNED, Schedule

ZERO_GRADIENT_RECORDS = 3
"""Number of consecutive records with gradients of exactly 0 that are fatal."""
REFINEMENTS_TO_JUDGE = 5
"""Number of refinements after which a strategy must have added Gaussians."""
COLLAPSED_SHARE = 0.02
"""Share of the initial number of Gaussians: fewer are a fatal finding, at any step."""
SHRUNK_SHARE = 0.25
"""Share of the initial number of Gaussians: fewer at the end of a run give a warning, unless pruning explains them."""
FEWEST_LOSSES = 20
"""Least number of records from which the loss is judged."""
LOSS_WINDOW = 5
"""Number of records at the start and at the end whose median losses are compared."""
FALLEN_SHARE = 0.98
"""Share of the first loss above which the last one has not fallen: 2 % less, as medians of 5 records."""
WIDEST_GAP_DB = 10.0
"""Gap of the PSNR of training views over held-out ones that is overfitting; sound runs show a few dB."""


@dataclass(frozen=True)
class StepFigures:
    """Figures of one step that are judged."""

    step: int
    """Number of steps done, this one included."""
    loss: float
    num_gaussians: int
    photo_gradient: float | None = None
    """Norm of the gradients that only photographs cause, without scales and opacities, which regularisers affect.

    None: not known, as of an external program.
    """
    gradient: float | None = None
    """Norm of all gradients; None: not known, as of an external program."""


@dataclass(frozen=True)
class Expectations:
    """Expectations of a run by its recipe, against which the rules judge; of an external program only its length."""

    max_steps: int
    strategy: str = ""
    """Densification strategy; empty for an external program."""
    cap_max: int = 0
    refine_start: int = 0
    refine_stop: int = 0
    refine_every: int = 1
    kept_share: float = 1.0
    """Least share of the Gaussians that pruning by importance leaves."""

    @classmethod
    def of(cls, recipe: Recipe, plan: Schedule) -> Expectations:
        """Return the expectations of a recipe with its schedule."""
        training = recipe.training
        return cls(
            max_steps=plan.max_steps,
            strategy=training.strategy,
            cap_max=training.cap(),
            refine_start=plan.refine_start,
            refine_stop=plan.refine_stop,
            refine_every=plan.refine_every,
            kept_share=1 - MOST_PRUNED if plan.prune_at and recipe.refinement.prune_loss_db else 1.0,
        )

    def refinements(self, history: Sequence[StepFigures]) -> int:
        """Return the number of refinements from the first record to the latest; a resumed run has later records."""
        return self._refinements(history[-1].step) - self._refinements(history[0].step)

    def _refinements(self, steps: int) -> int:
        """Return the number of refinements after `steps` steps (gsplat: start < step < stop, every n-th)."""
        last, first = min(steps, self.refine_stop) - 1, self.refine_start
        return max(0, last // self.refine_every - first // self.refine_every)


@dataclass(frozen=True)
class HealthFinding:
    """Something wrong with a training: the rule, the numbers that show it, and whether the run must end."""

    rule: str
    shown_by: str
    is_fatal: bool = False

    def __str__(self) -> str:
        return f"{self.rule}: {self.shown_by}"


def judge(history: Sequence[StepFigures], expected: Expectations) -> tuple[HealthFinding, ...]:
    """Return the findings on a run by its figures so far, the latest last; fatal findings first."""
    if not history:
        return ()
    findings = [finding for rule in RULES for finding in rule(history, expected)]
    return tuple(sorted(findings, key=attrgetter("is_fatal"), reverse=True))


def judge_evaluation(training_psnr: float | None, holdout_psnr: float | None) -> HealthFinding | None:
    """Return a finding if the PSNR of training views is far above that of held-out ones, in dB; None: not measured."""
    if training_psnr is None or holdout_psnr is None or training_psnr - holdout_psnr < WIDEST_GAP_DB:
        return None
    numbers = f"PSNR {training_psnr:.1f} dB on training views, {holdout_psnr:.1f} dB on held-out ones"
    return HealthFinding("holdout_gap", f"{numbers}: too few photographs, or wrong poses")


def _not_finite(history: Sequence[StepFigures], _: Expectations) -> Iterator[HealthFinding]:
    now = history[-1]
    if not math.isfinite(now.loss) or not math.isfinite(now.gradient or 0.0):
        numbers = f"loss {now.loss}, gradient norm {now.gradient} at step {now.step}"
        yield HealthFinding("nan_loss", numbers, is_fatal=True)


def _no_gradients(history: Sequence[StepFigures], _: Expectations) -> Iterator[HealthFinding]:
    latest = history[-ZERO_GRADIENT_RECORDS:]
    if len(latest) == ZERO_GRADIENT_RECORDS and all(one.photo_gradient == 0 for one in latest):
        numbers = f"exactly zero at the last {len(latest)} records up to step {latest[-1].step}"
        yield HealthFinding("zero_gradients", f"every gradient was {numbers}: nothing is learned", is_fatal=True)


def _collapse(history: Sequence[StepFigures], expected: Expectations) -> Iterator[HealthFinding]:
    first, now = history[0].num_gaussians, history[-1]
    if now.num_gaussians == 0:
        yield HealthFinding("zero_gaussians", f"all Gaussians were pruned by step {now.step}", is_fatal=True)
    elif now.num_gaussians < COLLAPSED_SHARE * first:
        yield HealthFinding("collapse", f"{now.num_gaussians} of {first} Gaussians are left at step {now.step}", True)
    elif now.num_gaussians < SHRUNK_SHARE * expected.kept_share * first and now.step >= expected.max_steps:
        yield HealthFinding("shrunk", f"{now.num_gaussians} Gaussians at the end, {first} at the start")


def _no_densification(history: Sequence[StepFigures], expected: Expectations) -> Iterator[HealthFinding]:
    """Warn if `default`, which adds Gaussians where gradients are large, has never added any between two records."""
    first, now = history[0].num_gaussians, history[-1]
    refinements = expected.refinements(history)
    if expected.strategy != "default" or refinements < REFINEMENTS_TO_JUDGE or first >= expected.cap_max:
        return
    if not any(after.num_gaussians > before.num_gaussians for before, after in pairwise(history)):
        numbers = f"no Gaussian was added in {refinements} refinements up to step {now.step}"
        yield HealthFinding("no_densification", f"{numbers} ({first} at the start, {now.num_gaussians} now)")


def _no_growth(history: Sequence[StepFigures], expected: Expectations) -> Iterator[HealthFinding]:
    """Warn if `mcmc`, which adds 5 % at every refinement below its cap, has not; below 20 Gaussians 5 % is none."""
    first, now = history[0].num_gaussians, history[-1]
    refinements = expected.refinements(history)
    must_grow = int(1.05 * first) > first and first < expected.cap_max
    if expected.strategy == "mcmc" and must_grow and refinements >= REFINEMENTS_TO_JUDGE and now.num_gaussians <= first:
        numbers = f"{now.num_gaussians} Gaussians after {refinements} refinements, {first} at the start"
        yield HealthFinding("no_growth", f"{numbers}, cap {expected.cap_max}, step {now.step}")


def _loss_not_falling(history: Sequence[StepFigures], expected: Expectations) -> Iterator[HealthFinding]:
    now = history[-1]
    if len(history) < FEWEST_LOSSES or now.step - history[0].step < expected.max_steps / 2 - 1:
        return
    first = statistics.median(one.loss for one in history[:LOSS_WINDOW])
    last = statistics.median(one.loss for one in history[-LOSS_WINDOW:])
    if last > FALLEN_SHARE * first:
        yield HealthFinding("loss_not_falling", f"loss {first:.4g} at the start, {last:.4g} at step {now.step}")


RULES: tuple[Callable[[Sequence[StepFigures], Expectations], Iterator[HealthFinding]], ...] = (
    _collapse,
    _not_finite,
    _no_gradients,
    _no_densification,
    _no_growth,
    _loss_not_falling,
)
"""All rules; of several fatal findings the first is reported: without Gaussians there are no gradients either."""
