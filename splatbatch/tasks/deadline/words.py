"""A deadline in words: what was chosen for it, what that gives up, and whether it will be met."""

from __future__ import annotations

from collections.abc import Sequence

from splatbatch.config.deadline import in_words as when
from splatbatch.output.records.deadline.choice import FULL, Adjustment, DeadlineDecision, StepBudget
from splatbatch.tasks.deadline.choose import lost_db
from splatbatch.tasks.deadline.pace import steps_at
from splatbatch.tasks.task import Task
from splatbatch.text import clock

SIZES = {1: "full size", 2: "half size", 4: "a quarter of their size", 8: "an eighth of their size"}


def in_words(choice: DeadlineDecision, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Return what was chosen for a deadline, a line for each thing there is to say; that it cannot be met comes first.

    Args:
        choice: for the deadline.
        tasks: of the batch, whose settings tell what is given up.
    """
    end, lines = f"deadline {when(choice.asked, choice.ends_at or 0.0)}", []
    if not choice.is_met:
        left = clock((choice.ends_at or 0.0) - (choice.chosen_at or 0.0))
        lines.append(
            f"{end} CANNOT BE MET: the fewest useful steps take about {clock(choice.expected_s)},"
            f" and {left} is left; every patch is trained with these steps, none is skipped"
        )
    if choice.pace == FULL:
        lines.append(f"{end}: all patches keep their steps and resolution{_expected(choice)}")
    else:
        lines.append(f"{end}: every patch is trained with {given_up(tasks, choice.pace)}{_expected(choice)}")
    if choice.untouched:
        lines.append(f"{end}: steps of {', '.join(choice.untouched)} stay as they are: no {{steps}} in the command")
    return (*lines, *(correction_in_words(tasks, one) for one in choice.corrections))


def correction_in_words(tasks: Sequence[Task], correction: Adjustment) -> str:
    """Return what is trained from now on, and why."""
    what = "as without a deadline" if correction.pace == FULL else f"with {given_up(tasks, correction.pace)}"
    return f"deadline: {correction.why}; attempts that start from now on are trained {what}"


def given_up(tasks: Sequence[Task], pace: StepBudget) -> str:
    """Return what a budget leaves: "4,000 of 30,000 steps (13 %), photographs at half size: …"."""
    recipes = [task.requested_settings.without_deadline.recipe for task in tasks]
    steps = sorted({(steps_at(one, pace), one.training.max_steps) for one in recipes})
    counts = " and ".join(f"{now:,} of {full:,}" for now, full in steps[:3])
    parts = [f"{counts} steps" + (f" ({pace.steps:.0%})" if pace.steps < 1 else "")]
    if pace.divisor > 1:
        parts.append(f"photographs at {SIZES.get(pace.divisor, SIZES[8])}")
    return f"{', '.join(parts)}, which costs about {lost_db(pace):.1f} dB of hold-out PSNR (a rough estimate)"


def _expected(choice: DeadlineDecision) -> str:
    if choice.expected_s is None:
        return f": {choice.basis}"
    instead = f" instead of {clock(choice.full_s)}" if choice.pace != FULL and choice.full_s else ""
    return f"; expected to take about {clock(choice.expected_s)}{instead}, {choice.basis}"
