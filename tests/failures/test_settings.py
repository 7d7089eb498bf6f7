"""What a patch sets differently from its batch is evidence, and the first suspect of what it may lead to."""

from __future__ import annotations

import pytest
from fake_batch import FakeBatch

from splatbatch.config import Recipe, load
from splatbatch.failures.advice import PatchContext
from splatbatch.failures.diagnose import diagnose
from splatbatch.failures.evidence import Evidence
from splatbatch.failures.settings import SettingDifference, differences
from splatbatch.outcome import Exited
from splatbatch.tasks.task import TaskSettings

OOM = "step 90\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
RATE = SettingDifference("learning_rates.means", 1e9, 1.6e-4)


def seen(*found: SettingDifference, log: str = "step 90\n", health: str = "") -> Evidence:
    background = PatchContext(differences=found)
    return Evidence(Exited(1), log, phase="train", step=90, artifact="missing", health=health, background=background)


@pytest.mark.parametrize(
    ("log", "health", "difference", "words"),
    [
        ("", "zero_gradients: 50 steps", RATE, "learning_rates.means is 1e+09 (0.00016 in the batch)"),
        ("step 9 loss nan\n", "", RATE, "--set learning_rates.means=0.00016"),
        (OOM, "", SettingDifference("training.cap_max", 9_000_000, 1_000_000), "--set training.cap_max=1000000"),
        (OOM, "", SettingDifference("training.cap_max", 9_000_000, "auto"), "--set training.cap_max=auto"),
        (OOM, "", SettingDifference("training.resolution", "full", "1/2"), "--set training.resolution=1/2"),
    ],
)
def test_a_setting_that_leads_to_the_cause_is_the_first_suspect(
    log: str, health: str, difference: SettingDifference, words: str
) -> None:
    found = diagnose(seen(difference, log=log, health=health))
    assert found.advice.startswith("These settings may be the cause: ")
    assert words in found.advice
    assert found.evidence[-1] == f"settings: {difference.in_words()}"


@pytest.mark.parametrize("log", [OOM, "step 9 loss nan\n", "Segmentation fault (core dumped)\n", "nothing known\n"])
def test_a_setting_of_a_program_is_a_suspect_of_whatever_it_dies_of(log: str) -> None:
    found = diagnose(seen(SettingDifference("setting.scale", 9, 2), log=log))
    assert "--set setting.scale=2" in found.advice


@pytest.mark.parametrize(
    "difference",
    [
        RATE,
        SettingDifference("training.cap_max", 1000, 1_000_000),
        SettingDifference("training.cap_max", 1000, "auto"),
        SettingDifference("training.seed", 7, 42),
    ],
)
def test_one_that_does_not_lead_there_is_only_listed(difference: SettingDifference) -> None:
    found, plain = diagnose(seen(difference, log=OOM)), diagnose(seen(log=OOM))
    assert (found.cause, found.action, found.advice) == (plain.cause, plain.action, plain.advice)
    assert found.evidence == (*plain.evidence, f"settings: {difference.in_words()}")


def test_settings_are_held_against_the_batch_and_its_rates_against_what_is_usual() -> None:
    default = Recipe().as_given()
    batch = default | {"learning_rates.sh0": 1e6, "training.seed": 7}
    found = differences(batch | {"training.cap_max": 5}, batch, default)
    told = [one.in_words() for one in found]
    assert told == ["training.cap_max is 5 (auto in the batch)", "learning_rates.sh0 is 1e+06 (0.0025 by default)"]


def test_a_setup_knows_what_the_yaml_and_a_rung_set_otherwise(batch: FakeBatch) -> None:
    batch.make("p4", "p5", patches={"p5": {"learning_rates": {"means": 1e9}}})
    setup = TaskSettings(load(batch.config), "p5")
    assert [one.key for one in setup.differences] == ["learning_rates.means"]
    again = setup.changed({"training.seed": 9}).differences
    assert [one.key for one in again] == ["training.seed", "learning_rates.means"]
    assert TaskSettings(load(batch.config), "p4").differences == ()


def test_of_a_program_only_what_it_reads_can_be_a_suspect(batch: FakeBatch) -> None:
    program = {"command": ["go", "{steps}", "{setting.scale}"], "settings": {"scale": 2}}
    own = {"training": {"cap_max": 9, "max_steps": 5}, "setting": {"scale": 1}}
    batch.make("p5", trainers={"go": program}, training={"trainer": "go"}, patches={"p5": own})
    assert [one.key for one in TaskSettings(load(batch.config), "p5").differences] == [
        "training.max_steps",
        "setting.scale",
    ]


def test_a_story_begins_with_what_the_patch_sets_otherwise_and_its_failure_says_so(batch: FakeBatch) -> None:
    batch.make("p5", patches={"p5": {"learning_rates": {"means": 1e9}}}, retry={"max_attempts": 1})
    batch.script(p5=["exit 1 RuntimeError: Function 'ExpBackward0' returned nan values in its 0th output."]).run(
        "train"
    )
    story = batch.run("explain", "p5").stdout
    assert story.startswith(
        "p5: settings that differ from the batch: learning_rates.means is 1e+09 (0.00016 in the batch)"
    )
    assert "| settings: learning_rates.means is 1e+09" in story
    assert "advice: These settings may be the cause" in story
    assert "splatbatch retry p5 --set learning_rates.means=0.00016" in story
