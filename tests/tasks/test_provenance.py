"""Which photographs a splat was trained on: as its record says, whatever partition.json and YAML say today."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from splatbatch.config import load
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.result import Result, UsedPhotographs
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.shared_decisions.holdout import conflicting_holdout, never_trained_on, photographs_of, recipe_of

if TYPE_CHECKING:
    from fake_batch import FakeBatch

HELD_OUT = ("img0.png", "img8.png")
TRAINED = tuple(f"img{i}.png" for i in range(1, 8))


@pytest.fixture
def trained(batch: FakeBatch) -> FakeBatch:
    assert batch.make("p0").run("train").returncode == 0
    return batch


def recorded(batch: FakeBatch, **changes: Any) -> UsedPhotographs:
    """Return what the product of p0 was trained on, after changes to its record; a key that is None goes."""
    folder = OutputFolder(batch.output).patch("p0")
    known = {**json.loads(folder.result.read_text()), **changes}
    folder.result.write_text(json.dumps({key: value for key, value in known.items() if value is not None}))
    (task,) = open_batch(batch.config, ["p0"]).tasks
    return photographs_of(task, folder.read_result() or Result())


def test_result_json_names_what_was_trained_on_and_what_was_held_out(trained: FakeBatch) -> None:
    told = trained.result("p0")["photographs"]
    assert (tuple(told["trained"]), tuple(told["held_out"])) == (TRAINED, HELD_OUT)


def test_other_settings_of_today_change_nothing_of_what_is_recorded(trained: FakeBatch) -> None:
    trained.change(evaluation={"holdout_every": 2})
    assert recorded(trained) == UsedPhotographs(TRAINED, HELD_OUT)


def test_without_a_record_the_settings_that_its_attempt_was_told_count(trained: FakeBatch) -> None:
    trained.change(evaluation={"holdout_every": 2})
    assert recorded(trained, photographs=None) == UsedPhotographs(TRAINED, HELD_OUT)


def test_without_both_the_photographs_that_were_measured_count(trained: FakeBatch) -> None:
    (trained.output / "patches/p0/attempt-01/settings.json").unlink()
    metrics = {"final": {"images": {"img3.png": {"psnr": 20.0}}}}
    assert recorded(trained, photographs=None, metrics=metrics).held_out == ("img3.png",)


def test_without_any_of_these_the_settings_of_its_training_count(trained: FakeBatch) -> None:
    trained.change(evaluation={"holdout_every": 2})
    (trained.output / "patches/p0/attempt-01/settings.json").unlink()
    assert recorded(trained, photographs=None, metrics=None, files=None).held_out == HELD_OUT


def test_a_splat_was_trained_by_the_settings_of_its_record_under_its_changes(trained: FakeBatch) -> None:
    recorded(trained, changes={"training.seed": 7})
    trained.change(training={"max_steps": 99, "resolution": "1/2", "workers": 1})
    (task,) = open_batch(trained.config, ["p0"]).tasks
    recipe = recipe_of(task, OutputFolder(trained.output).patch("p0").read_result() or Result())
    assert (recipe.training.max_steps, recipe.training.seed) == (20, 7)
    assert recipe.training.resolution == "full"
    assert recipe.training.workers == 1  # changes no splat: as it is today


def test_settings_of_another_version_are_taken_as_they_are_today(trained: FakeBatch) -> None:
    recorded(trained, settings={"training": {"max_steps": "many"}}, changes={"training.of_old": 1})
    (task,) = open_batch(trained.config, ["p0"]).tasks
    recipe = recipe_of(task, OutputFolder(trained.output).patch("p0").read_result() or Result())
    assert recipe == load(trained.config).recipe("p0")


def test_of_a_scene_is_held_out_what_no_patch_was_trained_on() -> None:
    parts = [UsedPhotographs(("a",), ("b", "c")), UsedPhotographs(("b", "d"), ("c",))]
    assert never_trained_on(parts) == ("c",)


def test_of_patches_that_disagree_the_fewer_are_named() -> None:
    most = UsedPhotographs(("a",), ("b",))
    assert conflicting_holdout({"p0": most, "p1": most}) == {}
    assert conflicting_holdout({"p0": most, "p1": most, "p2": UsedPhotographs(("a", "b"))}).keys() == {"p2"}
    assert conflicting_holdout({"p0": most, "p1": most, "p2": UsedPhotographs(("b",), ("a",))}).keys() == {"p2"}
    odd = conflicting_holdout(
        {"p0": UsedPhotographs(("a",)), "p1": UsedPhotographs(("a",)), "p2": UsedPhotographs((), ("a",))}
    )
    assert odd == {"p2": "its hold-out differs: it holds out photographs that others were trained on: a"}
