"""Values that YAML 1.1 or Python read otherwise than people do, and places where results may not go."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_yaml import mistakes, write

from splatbatch.config import load
from splatbatch.config.load import parse_changes
from splatbatch.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("true", "training.max_steps: True"),
        ("yes", "should be a number, but is true, as which YAML also reads yes, no, on or off"),
        ("1:30", "1:30 is read as 90: write 90, or put quotes around a text"),
        ("1_0", "1_0 is read as 10: write 10, or put quotes around a text"),
        ("30_000", "30_000 is read as 30000: write 30000"),
        ("012", "012 is read as 10: write 12"),
    ],
)
def test_a_number_that_is_read_otherwise_than_people_read_it_is_a_mistake(
    tmp_path: Path, written: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, f"training: {{max_steps: {written}}}\n"))
    assert words in str(caught.value)


@pytest.mark.parametrize("key", ["executor.cpu_slots", "limits.wall_s", "evaluation.holdout_every", "training.seed"])
def test_true_is_no_number_anywhere(tmp_path: Path, key: str) -> None:
    for one in (key, "limits.wall_s"):  # also where it need not be whole
        section, _, name = one.partition(".")
        assert f"{one}: " in mistakes(tmp_path, f"{section}: {{{name}: true}}\n")


@pytest.mark.parametrize("text", ['x-a: "1:30"\n', 'x-a: "1_0"\n', "x-t: 2026-01-01\n"])
def test_what_is_quoted_or_no_number_stays(tmp_path: Path, text: str) -> None:
    load(write(tmp_path, text))


def test_a_time_of_day_is_still_a_deadline(tmp_path: Path) -> None:
    assert load(write(tmp_path, "deadline: 23:30\n")).deadline
    assert load(write(tmp_path, "deadline: 7:30\n")).deadline


def test_an_override_of_what_a_mapping_takes_over_is_no_duplicate(tmp_path: Path) -> None:
    text = "x-a: &a {max_steps: 5, seed: 2}\ntraining:\n  <<: *a\n  seed: 3\n"
    training = load(write(tmp_path, text)).training
    assert (training.max_steps, training.seed) == (5, 3)
    assert "line 4, training.sed" in mistakes(tmp_path, text.replace("seed: 3", "sed: 3"))
    assert "'seed' stands here and in line 4" in mistakes(tmp_path, text + "  seed: 4\n")


@pytest.mark.parametrize("value", ["1:30", "1_0", "017"])
def test_on_the_command_line_such_values_are_mistakes_too(value: str) -> None:
    with pytest.raises(ConfigError, match=f"{value} is read as "):
        parse_changes([f"training.max_steps={value}"])


@pytest.mark.parametrize("folder", ["patches", "./patches/../patches"])
def test_results_go_nowhere_over_the_patches(tmp_path: Path, folder: str) -> None:
    said = mistakes(tmp_path, f"scene: {{patches: patches}}\noutput: {{folder: {folder}}}\n")
    assert "output.folder" in said
    assert "is the folder of the patches" in said


def test_a_thousand_million_slots_are_a_mistake(tmp_path: Path) -> None:
    assert "executor.cpu_slots: 1000000000" in mistakes(tmp_path, "executor: {cpu_slots: 1000000000}\n")
