"""What people write at the edges of a YAML: empty parts, notes of their own, durations, odd numbers, odd folders."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from command_line import invoke
from written_yaml import mistakes, write

from splatbatch.config import Config, load, nearest
from splatbatch.config.yaml import limits
from splatbatch.config.yaml.source import parse_value, quote

if TYPE_CHECKING:
    from fake_batch import FakeBatch


@pytest.mark.parametrize("command", ["plan", "train", "status"])
def test_an_empty_file_is_no_configuration(batch: FakeBatch, command: str) -> None:
    batch.make("p0").config.write_text(" \n")
    ended = invoke(command, batch=batch)
    assert (ended.code, "splat_config.yml: is empty" in ended.err, "hint: " in ended.err) == (2, True, True)


@pytest.mark.parametrize("text", ["training:\n", "patches:\n", "patches:\n  p0:\n", "patches: {p0: {training: }}\n"])
def test_a_section_in_which_nothing_stands_says_nothing(tmp_path: Path, text: str) -> None:
    config = load(write(tmp_path, text))
    assert config.training == Config().training
    assert config.recipe("p0") == config.recipe("p1")


def test_an_unknown_key_in_which_nothing_stands_is_a_mistake(tmp_path: Path) -> None:
    assert "line 1, trainig: unknown key. Did you mean training?" in mistakes(tmp_path, "trainig:\n")


def test_what_begins_with_x_is_the_writers_own(tmp_path: Path) -> None:
    config = load(write(tmp_path, "x-quick: &quick {max_steps: 7}\ntraining:\n  <<: *quick\n  seed: 3\n"))
    assert (config.training.max_steps, config.training.seed) == (7, 3)


def test_a_mistake_in_an_anchor_is_named_where_it_stands(tmp_path: Path) -> None:
    message = mistakes(tmp_path, "x-quick: &quick {max_stepps: 7}\ntraining: *quick\n")
    assert "line 1, training.max_stepps: unknown key. Did you mean max_steps?" in message


@pytest.mark.parametrize(("text", "seconds"), [("4h", 14_400), ("1h30m", 5400), ("90m", 5400), ("45s", 45), (60, 60)])
def test_a_time_may_be_written_as_people_do(tmp_path: Path, text: object, seconds: float) -> None:
    yaml = f"limits: {{wall_s: {text}, stall_s: {text}}}\ncooldown: {{longest_s: {text}}}\n"
    config = load(write(tmp_path, yaml))
    assert {config.limits.wall_s, config.limits.stall_s, config.cooldown.longest_s} == {seconds}


@pytest.mark.parametrize("text", ["4x", "h", "four hours", "0h"])
def test_what_is_no_time_is_a_mistake(tmp_path: Path, text: str) -> None:
    assert "line 1, limits.wall_s: " in mistakes(tmp_path, f"limits: {{wall_s: {text}}}\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("training: {max_steps: 99999999999999999999999999}\n", ["should be at most 1000000000"]),
        ("training:\n  max_steps: 0100\n", [":2: ", "0100 is read as 64", "write 100"]),
        ("training:\n  seed: -017\n", [":2: ", "-017 is read as -15", "write -17"]),
        ("training: {init_scale: abc}\n", ["'abc': should be a number above 0, or auto"]),
        ("training: {init_opacity: 2}\n", ["2: should be a number between 0 and 1, or auto"]),
    ],
)
def test_a_number_that_would_not_be_what_it_looks_like_is_a_mistake(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    message = mistakes(tmp_path, text)
    for word in words:
        assert word in message


def test_a_number_with_a_zero_before_it_may_be_meant_as_a_name(tmp_path: Path) -> None:
    assert load(write(tmp_path, "patches: {'010': {training: {seed: 0}}, p00: {}}\n")).patches.keys() == {"010", "p00"}


def test_a_changed_setting_that_does_not_fit_is_told_in_our_words(batch: FakeBatch) -> None:
    ended = invoke("retry", "p0", "--set", "training.init_scale=abc", batch=batch.make("p0"))
    assert ended.code == 2
    assert "training.init_scale: 'abc': should be a number above 0, or auto" in ended.err


def test_a_changed_setting_is_read_as_the_yaml_is(batch: FakeBatch) -> None:
    ended = invoke("retry", "p0", "--set", "training.seed=0100", batch=batch.make("p0"))
    assert (ended.code, "0100 is read as 64" in ended.err) == (2, True)


@pytest.mark.parametrize("folder", ["images", "images/out", "patches/p0/images/out", "masks/a", "/", "."])
@pytest.mark.parametrize("command", ["plan", "train --dry-run", "status"])
def test_results_go_neither_among_the_photographs_nor_over_the_scene(
    batch: FakeBatch, folder: str, command: str
) -> None:
    batch.make("p0", scene={"masks": "masks"}, output={"folder": folder})
    (batch.folder / "masks").mkdir()
    ended = invoke(*command.split(), batch=batch)
    line = batch.config.read_text().split("\n").index(f"  folder: {folder}") + 1
    assert (ended.code, f"line {line}, output.folder: " in ended.err) == (2, True), ended.err
    assert not list((batch.folder / "images").glob("*/"))


def test_a_gpu_that_is_not_there_is_told_in_a_dry_run(batch: FakeBatch) -> None:
    batch.make("p0", training={"device": "auto", "max_steps": 30_000}, executor={"gpus": [99]})
    ended = invoke("train", "--dry-run", batch=batch)
    assert (ended.code, "99" in ended.err) == (5, True)


@pytest.mark.parametrize(
    ("sections", "code", "words"),
    [
        ({"scene": {"patches": "patchez"}}, 3, "scene.patches: "),
        ({"scene": {"masks": "nix"}}, 3, "scene.masks: "),
        ({"scene": {"patches": "images"}}, 3, "scene.patches: "),
        ({"patches": {"p9": {}}}, 2, "patches.p9: no such patch"),
    ],
)
def test_what_is_not_there_is_named_with_file_and_line(
    batch: FakeBatch, sections: dict[str, dict[str, object]], code: int, words: str
) -> None:
    batch.make("p0", **sections)
    ended = invoke("plan", batch=batch)
    key = words.partition(":")[0].rpartition(".")[2]
    line = next(
        i for i, text in enumerate(batch.config.read_text().split("\n"), 1) if text.strip().startswith(f"{key}:")
    )
    if "." in words and key == "patches":
        lines = batch.config.read_text().split("\n")
        line = max(i for i, text in enumerate(lines, 1) if text == f"  patches: {sections['scene']['patches']}")
    assert (ended.code, f"{batch.config}:{line}: {words}" in ended.err) == (code, True), ended.err


@pytest.mark.parametrize(("name", "meant"), [("P5", "p5"), ("North", "north"), ("P_5", "p_5")])
def test_another_case_is_no_other_name(name: str, meant: str) -> None:
    assert nearest(name, ["p1", "p5", "p_5", "north"]) == f"Did you mean {meant}?"


def test_a_configuration_may_come_from_standard_input(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    batch.make("p0")
    monkeypatch.chdir(batch.folder)
    limits.standard_input.cache_clear()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(batch.config.read_bytes())))
    ended = invoke("train", "-c", "-", batch=batch)
    assert (ended.code, "1 of 1 patches trained" in ended.out) == (0, True), ended.err
    limits.standard_input.cache_clear()


@pytest.mark.parametrize("arguments", [["train", "--detach"], ["retry", "p0", "--set", "training.seed=3", "--save"]])
def test_what_reads_or_writes_the_configuration_again_needs_a_file(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    batch.make("p0")
    monkeypatch.chdir(batch.folder)
    limits.standard_input.cache_clear()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(batch.config.read_bytes())))
    ended = invoke(*arguments, "-c", "-", batch=batch)
    assert (ended.code, "standard input" in ended.err) == (2, True), ended.err
    limits.standard_input.cache_clear()


@pytest.mark.parametrize(
    "text", ["a\x7fb", "a\x85b", "a\u2028b", "two\nlines", 'it\'s "so": #1', "\U0001f600", "true", ""]
)
def test_a_text_that_is_quoted_is_read_back_as_it_is(text: str) -> None:
    assert parse_value(f"{quote(text)}  # so") == text
