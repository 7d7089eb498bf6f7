"""Hashes of recipes: what an earlier version trained with its defaults stays trained."""

from __future__ import annotations

import json

import pytest

from splatbatch.config import Recipe
from splatbatch.hashing import short_hash
from splatbatch.tasks.fingerprint import recipe_hash

NEW = (
    *(("training", "colors"), ("training", "border"), ("evaluation", "holdout")),
    ("refinement", "prune_loss_db"),
)


@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_what_an_earlier_version_trained_with_its_defaults_stays_trained(strategy: str) -> None:
    settings = Recipe.model_validate({"training": {"strategy": strategy}})
    tree = settings.decisive()
    tree["training"] |= {"exposure": False, "coarse_to_fine": False, "packed": False}
    for section, setting in NEW:
        del tree[section][setting]
    tree["evaluation"] |= {"stop_after": 0, "least_gain_db": 0.02}
    tree["training"] |= {"cap_max": 1_000_000}
    tree["learning_rates"] |= {"shN": 1.25e-4}
    assert recipe_hash(settings.acceptable()[-1]) == short_hash(json.dumps(tree, sort_keys=True))


def test_a_short_training_is_the_same_whether_it_may_end_early_or_not() -> None:
    def hash_of(max_steps: int, stop_after: str | int) -> str:
        tree = {"training": {"max_steps": max_steps}, "evaluation": {"stop_after": stop_after}}
        return recipe_hash(Recipe.model_validate(tree))

    assert hash_of(7_000, "auto") == hash_of(7_000, 0) != hash_of(7_000, 2)
    assert hash_of(30_000, "auto") != hash_of(30_000, 0)


def test_coarse_to_fine_that_is_turned_off_or_on_is_another_training() -> None:
    hashes = {
        strategy: [
            recipe_hash(Recipe.model_validate({"training": {"strategy": strategy, "coarse_to_fine": wanted}}))
            for wanted in ("auto", False, True)
        ]
        for strategy in ("default", "mcmc")
    }
    assert len(set(hashes["default"])) == 3
    assert hashes["mcmc"][0] == hashes["mcmc"][1] != hashes["mcmc"][2]
