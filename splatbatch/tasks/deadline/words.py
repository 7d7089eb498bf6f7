"""A deadline in words: what was chosen for it, what that gives up, and whether it will be met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from splatbatch.config import Recipe
from splatbatch.config.deadline import in_words as when
from splatbatch.output.records.deadline.choice import FULL, DeadlineDecision, StepBudget
from splatbatch.tasks.deadline.choose import lost_db
from splatbatch.tasks.deadline.pace import changes_of
from splatbatch.tasks.task import Task
from splatbatch.text import clock

SIZES = {1: "full size", 2: "half size", 4: "a quarter of their size", 8: "an eighth of their size"}


def in_words(choice: DeadlineDecision, tasks: Iterable[Task]) -> tuple[str, ...]:
    """Return what was chosen for a deadline, a line for each thing there is to say; that it cannot be met comes first.

    Args:
        choice: for the deadline.
        tasks: of the batch, whose settings tell what is given up.
    """
    recipes = list(
        {id(one): one for one in (task.requested_settings.without_deadline.recipe for task in tasks)}.values()
    )
    end = f"deadline {when(choice.asked, choice.ends_at or 0.0)}"
    lines = [] if choice.is_met else [_not_met(choice, end)]
    if choice.pace.is_full:
        lines.append(f"{end}: all patches keep their steps and resolution{_expected(choice)}")
    else:
        lines.append(f"{end}: every patch is trained with {given_up(recipes, choice.pace)}{_expected(choice)}")
    if choice.untouched:
        lines.append(f"{end}: steps of {', '.join(choice.untouched)} stay as they are: no {{steps}} in the command")
    lines += [correction_in_words(recipes, one.pace, one.why) for one in choice.corrections]
    return tuple(lines)


def correction_in_words(recipes: Sequence[Recipe], pace: StepBudget, why: str) -> str:
    """Return what is trained from now on, and why."""
    what = "as without a deadline" if pace.is_full else f"with {given_up(recipes, pace)}"
    return f"deadline: {why}; attempts that start from now on are trained {what}"


def given_up(recipes: Sequence[Recipe], pace: StepBudget) -> str:
    """Return what a pace leaves: "4,000 of 30,000 steps (13 %), photographs at half size: …"."""
    steps = sorted({(changes_of(one, pace).get("training.max_steps", _all(one)), _all(one)) for one in recipes})
    counts = " and ".join(f"{now:,} of {full:,}" for now, full in steps[:3])
    parts = [f"{counts} steps" + (f" ({pace.steps:.0%})" if pace.steps < 1 else "")]
    if pace.divisor > 1:
        parts.append(f"photographs at {SIZES.get(pace.divisor, SIZES[8])}")
    return f"{', '.join(parts)}, which costs about {lost_db(pace):.1f} dB of hold-out PSNR (a rough estimate)"


def _all(recipe: Recipe) -> int:
    return recipe.training.max_steps


def _expected(choice: DeadlineDecision) -> str:
    if choice.expected_s is None:
        return f": {choice.basis}"
    instead = f" instead of {clock(choice.full_s)}" if choice.pace != FULL and choice.full_s else ""
    return f"; expected to take about {clock(choice.expected_s)}{instead}, {choice.basis}"


def _not_met(choice: DeadlineDecision, end: str) -> str:
    left = clock((choice.ends_at or 0.0) - (choice.chosen_at or 0.0))
    return (
        f"{end} CANNOT BE MET: the fewest useful steps take about {clock(choice.expected_s)},"
        f" and {left} is left; every patch is trained with these steps, none is skipped"
    )
