"""Trainers of somebody else in the YAML: every mistake is named with line, key, value and the nearest known name."""

from __future__ import annotations

from pathlib import Path

import pytest

from splatbatch.config import Config, Recipe, Training, load
from splatbatch.config.trainers.programs import Program, fill
from splatbatch.errors import ConfigError

BRUSH = """
training: {trainer: brush}
trainers:
  brush:
    command: [brush, "{scene}", --max, "{setting.cap}"]
    settings: {cap: 1000}
"""


def loaded(folder: Path, text: str) -> Config:
    path = folder / "splat_config.yml"
    path.write_text(text)
    return load(path)


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ("setting.cap", "setting.capp", "line 5, trainers.brush.command.3: '{setting.capp}': unknown placeholder"),
        ("scene", "scnee", "Did you mean scene?"),
        ("trainer: brush", "trainer: brsh", "line 2, training.trainer: 'brsh': no such trainer. Did you mean brush?"),
        ("cap: 1000}", "cap: 1000}\n    progress: {step: '('}", "trainers.brush.progress.step: '(': no valid regular"),
        ("cap: 1000}", "cap: 1000}\n    progress: {step: 'a'}", "should capture one value in ( ), but captures 0"),
        ("cap: 1000}", "cap: 1000}\n    ladders: {gpu_memory: [{setting.cpa: 1}]}", "Did you mean setting.cap?"),
        (
            "cap: 1000}",
            "cap: 1000}\n    ladders: {segfault: [{training.seed: 1}]}",
            "the trainer's command does not use this setting",
        ),
        ("cap: 1000}", "cap: 1000}\n    ladders: {segfault: [{arguments: x}]}", "`arguments` takes a list of words"),
        ("cap: 1000}", "cap: a}\n    ladders: {segfault: [{setting.cap: x2}]}", "but setting.cap is 'a'"),
        ("cap: 1000}", "cap: 1000}\n    artifact: {ply: /tmp/a.ply}", "should be a relative path inside {output}"),
        ("cap: 1000}", "cap: 1000}\n    artifact: {export: [a]}", "`export` needs artifact.files"),
        ("cap: 1000}", "cap: 1000}\n    metrics: {file: a.json}", "need each other"),
        ("cap: 1000}", "cap: 1000}\n    env: {CUDA_VISIBLE_DEVICES: 1}", "is set for each attempt by splatbatch"),
        ("  brush:\n", "  gsplat:\n", "trainers.gsplat: gsplat is splatbatch's own trainer"),
        (
            "cap: 1000}",
            "cap: 1000}\npatches: {p1: {setting: {cpa: 1}}}",
            "patches.p1.setting.cpa: the trainer brush has no such",
        ),
        ("[brush, ", "[] # ", "should not be empty"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, wrong: str, right: str, message: str) -> None:
    assert wrong in BRUSH
    loaded(tmp_path, BRUSH)
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, BRUSH.replace(wrong, right))
    assert message in caught.value.message


def test_patches_and_changes_set_the_settings_of_a_program(tmp_path: Path) -> None:
    config = loaded(tmp_path, BRUSH + "patches: {p1: {setting: {cap: 7}}, p2: {training: {trainer: gsplat}}}\n")
    assert config.recipe("p0").settings()["setting.cap"] == 1000
    assert config.recipe("p1").settings()["setting.cap"] == 7
    assert config.recipe("p1", {"setting.cap": 8}).settings()["setting.cap"] == 8
    assert config.recipe("p2").program is None


def test_words_of_a_rung_come_last_or_where_the_command_wants_them() -> None:
    last, within = Program(command=("a", "b")), Program(command=("a", "{arguments}", "b"))
    assert last.called_with(("-x", "{")).command == ("a", "b", "-x", "{{")
    assert within.called_with(("-x",)).command == ("a", "-x", "b")
    assert within.called_with(()).command == ("a", "b")


def test_a_placeholder_is_filled_and_a_double_brace_is_a_brace() -> None:
    assert fill("{patch}/{{iter}}_{setting.on}", {"patch": "p1", "setting.on": True}) == "p1/{iter}_true"


def test_how_a_program_is_watched_makes_no_result_stale(tmp_path: Path) -> None:
    then = loaded(tmp_path, BRUSH).recipe("p0").decisive()
    watched = BRUSH.replace("cap: 1000}", "cap: 1000}\n    progress: {step: 'step (1)'}")
    assert loaded(tmp_path, watched).recipe("p0").decisive() == then
    assert loaded(tmp_path, BRUSH.replace("1000", "1001")).recipe("p0").decisive() != then


def test_the_identity_of_our_own_recipe_has_no_program_in_it() -> None:
    assert "program" not in Recipe(training=Training(max_steps=7)).decisive()


def test_where_memory_is_taken_and_what_is_written_beside_makes_no_result_stale() -> None:
    recipe, elsewhere = Recipe(), Training(images="host", workers=0, checkpoint_every=9)
    assert Recipe(training=elsewhere).decisive() == recipe.decisive() != Recipe(training=Training(seed=1)).decisive()


def test_a_change_names_a_trainer_that_is_there(tmp_path: Path) -> None:
    config = loaded(tmp_path, BRUSH)
    assert config.recipe("p0", {"training.trainer": "gsplat"}).program is None
    with pytest.raises(ConfigError, match=r"training\.trainer: 'brsh': no such trainer") as error:
        config.recipe("p0", {"training.trainer": "brsh"})
    assert error.value.hint == "Did you mean brush?"
