"""Values of a program's environment are secrets: named, and never shown."""

from __future__ import annotations

from typing import Any

import pytest
from command_line import invoke
from fake_batch import FakeBatch

from splatbatch.config import Recipe, Training
from splatbatch.config.trainers.programs import Program
from splatbatch.tasks.fingerprints.fingerprint import recipe_hash

SECRET = "hunter2"
OF_VERSION_0_1 = "daebe5e1dbea7b77"


def test_the_environment_of_a_program_is_named_and_never_shown(foreign_batch: FakeBatch) -> None:
    other = foreign_batch.settings["trainers"]["foreign"]
    foreign_batch.change(trainers={"foreign": {**other, "env": {"TOKEN": SECRET, "PIN": 7123456}}})
    said = [invoke(*words.split(), batch=foreign_batch) for words in ("train", "config show", "report", "plan")]
    assert "TOKEN: '**********'" in said[1].out and said[0].code == 0
    files = [path for path in foreign_batch.output.rglob("*") if path.is_file()]
    holding = [path for path in files if SECRET in path.read_text("latin-1")]
    assert {path.name for path in holding} == {"watch.json"}
    assert {path.stat().st_mode & 0o777 for path in holding} == {0o600}
    assert not any(secret in one.out + one.err for one in said for secret in (SECRET, "7123456"))


@pytest.mark.parametrize(
    "env", [{"TOKEN": "{nix} hunter2"}, {"TOKEN": ["hunter2"]}, ["hunter2"], {"T": {"hunter2": 1}}]
)
def test_a_mistake_in_an_environment_does_not_show_it(foreign_batch: FakeBatch, env: Any) -> None:
    other = foreign_batch.settings["trainers"]["foreign"]
    foreign_batch.change(trainers={"foreign": {**other, "env": env}})
    ended = invoke("plan", batch=foreign_batch)
    assert (ended.code, "trainers.foreign.env" in ended.err, "hunter2" in ended.err) == (2, True, False)


def test_results_of_a_program_with_an_environment_stay_fresh() -> None:
    told = {"env": {"TOKEN": SECRET, "N": 1, "X": 0.5, "B": True}, "settings": {"a": 1}, "working_folder": "/opt/x"}
    program = Program.model_validate({"command": ["train", "{images}"], **told})
    recipe = Recipe(training=Training(trainer="other", max_steps=10), program=program)
    assert recipe_hash(recipe) == OF_VERSION_0_1
