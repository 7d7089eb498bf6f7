"""A setting that a version no longer has stops no night: it is named, with what to write, and left out."""

from __future__ import annotations

import json

import pytest
from fake_batch import FakeBatch

from splatbatch.config import Recipe, load
from splatbatch.errors import ConfigError
from splatbatch.identity import short_hash
from splatbatch.tasks.fingerprints.fingerprint import recipe_hash


def test_a_setting_that_is_gone_is_named_with_its_line_and_stops_nothing(batch: FakeBatch) -> None:
    batch.make("p0", executor={"kind": "local", "cpu_slots": 1})
    line = batch.config.read_text().splitlines().index("  kind: local") + 1
    for verb in ("plan", "train"):
        ended = batch.run(verb)
        assert ended.returncode == 0
        assert f"warning: {batch.config}:{line}: executor.kind: gone" in ended.stderr
        assert "Delete the line" in ended.stderr


def test_what_was_never_a_setting_is_a_mistake_as_before(batch: FakeBatch) -> None:
    batch.make("p0", executor={"knid": "local"})
    with pytest.raises(ConfigError, match=r"executor\.knid"):
        load(batch.config)


def test_a_config_without_old_settings_warns_of_nothing(batch: FakeBatch) -> None:
    assert load(batch.make("p0").config).warnings == ()


def test_exposure_is_said_to_be_replaced_by_colors_for_all_patches_and_for_one(batch: FakeBatch) -> None:
    batch.make("p0", training={"exposure": True}, patches={"p0": {"training": {"exposure": False, "seed": 7}}})
    config = load(batch.config)
    lines = batch.config.read_text().splitlines()
    places = [number for number, line in enumerate(lines, 1) if "exposure" in line]
    assert sorted(int(one.split(":")[1]) for one in config.warnings) == places
    assert all("training.exposure: gone" in one and "training.colors" in one for one in config.warnings)


NEW = (
    *(("training", "colors"), ("training", "border"), ("evaluation", "colors_from"), ("evaluation", "holdout")),
    ("refinement", "prune_loss_db"),
)


@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_what_an_earlier_version_trained_with_its_defaults_stays_trained(strategy: str) -> None:
    settings = Recipe.model_validate({"training": {"strategy": strategy}})
    tree = settings.decisive()
    tree["training"] |= {"exposure": False, "coarse_to_fine": False, "packed": False}
    for section, setting in NEW:
        del tree[section][setting]
    assert recipe_hash(settings) == short_hash(json.dumps(tree, sort_keys=True))


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
