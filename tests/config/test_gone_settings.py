"""A setting that a version no longer has stops no night: it is named, with what to write, and left out."""

from __future__ import annotations

import json

import pytest
from fake_batch import FakeBatch

from splatbatch.config import Config, Recipe, load
from splatbatch.config.yaml.retired_keys import GONE
from splatbatch.errors import ConfigError
from splatbatch.hashing import short_hash
from splatbatch.tasks.fingerprints.fingerprint import recipe_hash


def test_a_setting_that_is_gone_is_named_with_its_line_and_stops_nothing(batch: FakeBatch) -> None:
    batch.make("p0", executor={"mps": "auto", "cpu_slots": 1})
    line = batch.config.read_text().splitlines().index("  mps: auto") + 1
    for verb in ("plan", "train"):
        ended = batch.run(verb)
        assert ended.returncode == 0
        assert f"warning: {batch.config}:{line}: executor.mps: gone" in ended.stderr
        assert "Delete the line" in ended.stderr


def test_what_was_never_a_setting_is_a_mistake_as_before(batch: FakeBatch) -> None:
    batch.make("p0", executor={"mpss": "auto"})
    with pytest.raises(ConfigError, match=r"executor\.mpss"):
        load(batch.config)


def test_a_config_without_old_settings_warns_of_nothing(batch: FakeBatch) -> None:
    assert load(batch.make("p0").config).warnings == ()


def test_a_setting_that_is_gone_is_named_for_all_patches_and_for_one(batch: FakeBatch) -> None:
    batch.make("p0", training={"packed": True}, patches={"p0": {"training": {"packed": False, "seed": 7}}})
    config = load(batch.config)
    lines = batch.config.read_text().splitlines()
    places = [number for number, line in enumerate(lines, 1) if "packed" in line]
    assert sorted(int(one.split(":")[1]) for one in config.warnings) == places
    assert all("training.packed: gone, and left out. Delete the line" in one for one in config.warnings)


def test_every_setting_that_is_gone_is_warned_of_and_is_no_setting() -> None:
    for section, setting in GONE:
        assert setting not in type(getattr(Config(), section)).model_fields


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
    assert recipe_hash(settings.in_full()) == short_hash(json.dumps(tree, sort_keys=True))


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
