"""When hold-out quality gains nothing any more. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from splatbatch.config import Evaluation, Recipe
from splatbatch.config.schedule import Schedule


def has_stalled(psnrs: Sequence[float], evaluation: Evaluation) -> bool:
    """Return whether none of the last `stop_after` PSNRs, in dB, is `least_gain_db` above the best before them."""
    count = evaluation.stop_after
    if not count or len(psnrs) <= count:
        return False
    return max(psnrs[-count:]) < max(psnrs[:-count]) + evaluation.least_gain_db


def settled_at(recipe: Recipe, plan: Schedule) -> int:
    """Return the step from which on a plateau is one: nothing is refined, no colour gains a degree any more.

    A run that ends there is a whole run, not one that was torn off in the middle of its growth.
    """
    return max(plan.refine_stop, plan.sh_every * recipe.training.sh_degree)
