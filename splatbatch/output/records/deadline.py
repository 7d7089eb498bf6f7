"""deadline.json: the step budget by which a batch is trained so that it ends before its deadline."""

from __future__ import annotations

from dataclasses import dataclass, field

from splatbatch.fields import number, whole_number
from splatbatch.output.records.record import TypedRecord, reads


def _share(value: object) -> float:
    found = number(value)
    return 1.0 if found is None or not 0 < found <= 1 else float(found)


def _divisor(value: object) -> int:
    return found if (found := whole_number(value)) in (1, 2, 4, 8) else 1


@dataclass(frozen=True)
class StepBudget(TypedRecord):
    """Reduction of the settings for a deadline, the same for every patch: fewer steps, smaller photographs."""

    steps: float = field(default=1.0, metadata=reads(_share))
    """Share of the steps in the YAML, above 0 and up to 1; 1: all steps."""
    divisor: int = field(default=1, metadata=reads(_divisor))
    """Factor by which width and height of the photographs are divided: 1, 2, 4 or 8."""


FULL = StepBudget()
"""Budget without any reduction: all steps, photographs at full size."""


@dataclass(frozen=True)
class Adjustment(TypedRecord):
    """A step budget for all attempts not yet begun, chosen again during the run by measured speeds; `why` says why."""

    at: float | None = None
    """Time of the choice in seconds since 1970; None: unknown."""
    pace: StepBudget = FULL
    why: str = ""


@dataclass(frozen=True)
class DeadlineDecision(TypedRecord):
    """The step budget chosen for a deadline before the first patch is trained, with the later adjustments."""

    asked: str = ""
    """Deadline as the YAML states it; empty: none was recorded."""
    settings: str = ""
    """Hash of the settings without a deadline; with other settings the budget is chosen again."""
    chosen_at: float | None = None
    """Time of the choice in seconds since 1970; None: unknown."""
    ends_at: float | None = None
    """Deadline in seconds since 1970; None: unknown."""
    patches: tuple[str, ...] = ()
    """Names of the patches for which the budget was chosen."""
    pace: StepBudget = FULL
    """Budget that was chosen before the first patch was trained."""
    earlier: tuple[StepBudget, ...] = ()
    """Budgets of earlier choices; splats trained by them stay up to date. Empty: there are none."""
    full_s: float | None = None
    """Expected duration without a deadline, in seconds; None: unknown."""
    expected_s: float | None = None
    """Expected duration under the chosen budget, in seconds; None: unknown."""
    basis: str = ""
    """Phrase on how the duration was estimated, or on why it is unknown; empty: nothing was recorded."""
    is_met: bool = True
    """Whether the batch was expected to end before the deadline."""
    untouched: tuple[str, ...] = ()
    """Names of the trainers whose number of steps cannot be set, so that the budget does not apply to them."""
    corrections: tuple[Adjustment, ...] = ()
    """Budgets chosen again during the run, the oldest first; empty: none."""

    @property
    def budgets(self) -> tuple[StepBudget, ...]:
        """All budgets whose splats are up to date, each once; the first is the budget for attempts that begin now."""
        newest = (one.pace for one in reversed(self.corrections))
        return tuple(dict.fromkeys((*newest, self.pace, *self.earlier)))
