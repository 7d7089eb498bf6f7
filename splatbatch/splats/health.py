"""Health rules of a training: from figures of its steps to findings, each with its rule and the numbers that show it.

Pure functions, the same for every trainer. A fatal finding ends a run of the built-in trainer. Any other becomes a
warning, and the splat is accepted all the same. All findings on an external program become warnings, since the program
has ended when its figures are judged.
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
"""Number of consecutive recorded steps with gradients of exactly 0 that are a fatal finding."""
REFINEMENTS_TO_JUDGE = 5
"""Number of refinements by which a strategy that is below its cap must have added Gaussians, else a warning."""
COLLAPSED_SHARE = 0.02
"""Share of the number of Gaussians in the first record of a run; if a later record has fewer, the finding is fatal."""
SHRUNK_SHARE = 0.25
"""Share of the number of Gaussians in the first record; if fewer are left at the end of a run, a warning is given.

Where the recipe prunes by importance, the limit is lowered by the share that this pruning may remove.
"""
FEWEST_LOSSES = 20
"""Least number of recorded steps from which the loss is judged; they must also span about half of the run."""
LOSS_WINDOW = 5
"""Number of recorded steps at the start, and at the end, whose median losses are compared."""
FALLEN_SHARE = 0.98
"""Share of the first loss above which the last loss counts as not fallen: the loss fell by less than 2 %."""
WIDEST_GAP_DB = 10.0
"""PSNR of training views less that of held-out ones, in dB, from which a warning is given; sound runs show a few dB."""


@dataclass(frozen=True)
class StepFigures:
    """Figures of one recorded training step, as the health rules judge them."""

    step: int
    """Number of steps done, this one included."""
    loss: float
    num_gaussians: int
    """Number of Gaussians; for an external program as last logged, before that as first logged; 1 if never logged."""
    photo_gradient: float | None = None
    """Norm of the gradients of all parameters but scales and opacities, whose gradients also regularisers cause.

    None: not known, as for an external program.
    """
    gradient: float | None = None
    """Norm of the gradients of all parameters; None: not known, as for an external program."""


@dataclass(frozen=True)
class Expectations:
    """Expectations of a run by its recipe, against which the rules judge.

    For an external program only `max_steps` is set; the rules of the strategies then find nothing.
    """

    max_steps: int
    strategy: str = ""
    """Densification strategy, `default` or `mcmc`; empty for an external program."""
    cap_max: int = 0
    """Largest number of Gaussians; 0 for an external program."""
    refine_start: int = 0
    """Step after which refinements begin."""
    refine_stop: int = 0
    """Step before which refinements end; 0: there are none."""
    refine_every: int = 1
    """Steps between two refinements."""
    kept_share: float = 1.0
    """Least share of the Gaussians that pruning by importance leaves; 1: nothing is pruned by importance."""

    @classmethod
    def of(cls, recipe: Recipe, plan: Schedule) -> Expectations:
        """Return the expectations of the built-in trainer from a recipe and its schedule.

        Raises:
            ValueError: `cap_max` of the recipe is a multiple of the sparse points, not a number.
        """
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
        """Return the number of refinements between the first and the last of `history`, which must not be empty.

        The first record of a resumed run is not that of step 1.
        """
        return self._refinements(history[-1].step) - self._refinements(history[0].step)

    def _refinements(self, steps: int) -> int:
        """Return the number of refinements after `steps` steps (gsplat: start < step < stop, every n-th)."""
        last, first = min(steps, self.refine_stop) - 1, self.refine_start
        return max(0, last // self.refine_every - first // self.refine_every)


@dataclass(frozen=True)
class HealthFinding:
    """Something wrong with a training: the rule, the numbers that show it, and whether the run must end.

    `str()` is one line, "rule: numbers".
    """

    rule: str
    """Name of the rule, as `nan_loss`."""
    shown_by: str
    """Numbers that show the finding, as a phrase for the log."""
    is_fatal: bool = False
    """Whether the finding ends a run of the built-in trainer; else the finding is a warning."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.shown_by}"


def judge(history: Sequence[StepFigures], expected: Expectations) -> tuple[HealthFinding, ...]:
    """Return the findings on a run, fatal findings first; empty if all is well or `history` is empty.

    Args:
        history: figures of the recorded steps so far, the latest last.
        expected: what the recipe lets expect of the run.
    """
    if not history:
        return ()
    findings = [finding for rule in RULES for finding in rule(history, expected)]
    return tuple(sorted(findings, key=attrgetter("is_fatal"), reverse=True))


def judge_evaluation(training_psnr: float | None, holdout_psnr: float | None) -> HealthFinding | None:
    """Return a finding, never fatal, if the PSNR of training views is far above that of held-out ones, else None.

    The limit is `WIDEST_GAP_DB`. Figures are in dB; None means not measured, and gives no finding.
    """
    if training_psnr is None or holdout_psnr is None or training_psnr - holdout_psnr < WIDEST_GAP_DB:
        return None
    numbers = f"PSNR {training_psnr:.1f} dB on training views, {holdout_psnr:.1f} dB on held-out ones"
    return HealthFinding("holdout_gap", f"{numbers}: there are too few photographs, or poses are wrong")


def _not_finite(history: Sequence[StepFigures], _: Expectations) -> Iterator[HealthFinding]:
    now = history[-1]
    if not math.isfinite(now.loss) or not math.isfinite(now.gradient or 0.0):
        numbers = f"loss {now.loss}, gradient norm {now.gradient} at step {now.step}"
        yield HealthFinding("nan_loss", numbers, is_fatal=True)


def _no_gradients(history: Sequence[StepFigures], _: Expectations) -> Iterator[HealthFinding]:
    latest = history[-ZERO_GRADIENT_RECORDS:]
    if len(latest) == ZERO_GRADIENT_RECORDS and all(one.photo_gradient == 0 for one in latest):
        numbers = f"exactly zero at the last {len(latest)} recorded steps, up to step {latest[-1].step}"
        yield HealthFinding("zero_gradients", f"every gradient was {numbers}: nothing is trained", is_fatal=True)


def _collapse(history: Sequence[StepFigures], expected: Expectations) -> Iterator[HealthFinding]:
    first, now = history[0].num_gaussians, history[-1]
    if now.num_gaussians == 0:
        yield HealthFinding("zero_gaussians", f"all Gaussians were pruned by step {now.step}", is_fatal=True)
    elif now.num_gaussians < COLLAPSED_SHARE * first:
        yield HealthFinding("collapse", f"{now.num_gaussians} of {first} Gaussians are left at step {now.step}", True)
    elif now.num_gaussians < SHRUNK_SHARE * expected.kept_share * first and now.step >= expected.max_steps:
        yield HealthFinding("shrunk", f"{now.num_gaussians} Gaussians at the end, {first} at the start: many pruned")


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
        yield HealthFinding("no_growth", f"{numbers}: none added up to step {now.step}; {expected.cap_max} are allowed")


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
"""All rules, in the order of their findings; the first fatal finding ends the run and is its cause.

Collapse is judged first, since without Gaussians the gradients are zero as well.
"""
