"""A setting that a version no longer has stops no night: it is named, with what to write, and left out."""

from __future__ import annotations

import json

import pytest
from fake_batch import FakeBatch

from splatbatch.config import Recipe, load
from splatbatch.errors import ConfigError
from splatbatch.store.hashes import short_hash
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


def test_what_was_trained_before_exposure_went_stays_trained() -> None:
    tree = Recipe().decisive()
    tree["training"]["exposure"] = False
    newer = ("training", "colors"), ("training", "border"), ("evaluation", "colors_from"), ("evaluation", "holdout")
    for section, setting in newer:
        del tree[section][setting]
    assert recipe_hash(Recipe()) == short_hash(json.dumps(tree, sort_keys=True))
