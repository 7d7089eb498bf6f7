"""Applies a step budget to a recipe, to meet a deadline: fewer steps and smaller photographs.

For an external program only the steps change.
"""

from __future__ import annotations

from typing import Any

from splatbatch.config import Recipe
from splatbatch.config.trainers.programs import names_in
from splatbatch.output.records.deadline import StepBudget
from splatbatch.scene.photos.folders import DIVISORS

FEWEST_SHARE = 1 / 30
"""Smallest share of the steps under any budget: 1,000 of 30,000, with which a splat begins to show its scene."""
FEWEST_STEPS = 100
"""Fewest steps under any budget, unless the recipe has fewer already."""


def follows(recipe: Recipe) -> bool:
    """Return whether a budget can change the steps of a recipe.

    An external program needs {steps} in its command or environment.
    """
    return recipe.program is None or "steps" in names_in(
        (*recipe.program.command, *map(str, recipe.program.env.values()))
    )


def changes_of(recipe: Recipe, budget: StepBudget) -> dict[str, Any]:
    """Return the settings that a budget changes in a recipe, by full name; empty: none."""
    now = {"training.max_steps": recipe.training.max_steps, "training.resolution": recipe.training.resolution}
    wanted = {"training.max_steps": steps_at(recipe, budget), "training.resolution": resolution_at(recipe, budget)}
    return {key: value for key, value in wanted.items() if value != now[key]}


def steps_at(recipe: Recipe, budget: StepBudget) -> int:
    """Return the steps under a budget, at least `FEWEST_STEPS` and `FEWEST_SHARE` of all.

    All steps if these are fewer, or if they cannot be set.
    """
    steps = recipe.training.max_steps
    fewest = max(FEWEST_STEPS, round(FEWEST_SHARE * steps)) if follows(recipe) else steps
    return min(steps, max(fewest, int(budget.steps * steps + 1e-6)))


def resolution_at(recipe: Recipe, budget: StepBudget) -> str:
    """Return the resolution under a budget, such as "1/2", at least "1/8".

    `auto`, and the resolution of an external program, is not changed.
    """
    now = recipe.training.resolution
    if recipe.program is not None or now not in DIVISORS:
        return now
    wanted = min(8, DIVISORS[now] * budget.divisor)
    return next(name for name, one in DIVISORS.items() if one == wanted)


def photograph_divisor(recipe: Recipe, budget: StepBudget) -> int:
    """Return the factor by which a budget reduces width and height of a recipe's photographs; 1: not at all."""
    return DIVISORS.get(resolution_at(recipe, budget), 1) // DIVISORS.get(recipe.training.resolution, 1) or 1
