"""deadline.json: with how many steps, on how large photographs, a batch is trained so that it ends in time."""

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
    """What is left of the settings of every patch alike."""

    steps: float = field(default=1.0, metadata=reads(_share))
    """Share of the steps."""
    divisor: int = field(default=1, metadata=reads(_divisor))
    """By how much smaller the photographs are."""


FULL = StepBudget()
"""Nothing is given up."""


@dataclass(frozen=True)
class Adjustment(TypedRecord):
    """A pace for what had not begun, chosen again at the begin of an attempt by measured speeds."""

    at: float | None = None
    """Seconds since 1970."""
    pace: StepBudget = FULL
    why: str = ""


@dataclass(frozen=True)
class DeadlineDecision(TypedRecord):
    """What was chosen for a deadline, once, before the first patch was trained."""

    asked: str = ""
    """The words of the YAML."""
    settings: str = ""
    """Hash of what would be trained without a deadline."""
    chosen_at: float | None = None
    ends_at: float | None = None
    """Both in seconds since 1970."""
    patches: tuple[str, ...] = ()
    """For which it was chosen."""
    pace: StepBudget = FULL
    earlier: tuple[StepBudget, ...] = ()
    """Of earlier choices: what was trained by them is kept, with as many steps as these at least."""
    full_s: float | None = None
    """How long it would have taken without a deadline; None: unknown."""
    expected_s: float | None = None
    """How long it was expected to take."""
    basis: str = ""
    is_met: bool = True
    """It was expected to be."""
    untouched: tuple[str, ...] = ()
    """Trainers whose number of steps cannot be set."""
    corrections: tuple[Adjustment, ...] = ()

    @property
    def budgets(self) -> tuple[StepBudget, ...]:
        """Return every pace whose splats count, that of now first."""
        newest = (one.pace for one in reversed(self.corrections))
        return tuple(dict.fromkeys((*newest, self.pace, *self.earlier)))
