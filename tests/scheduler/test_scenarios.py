"""The nights this began with: for each kind of failure, what becomes of the patch, and after how many attempts."""

from __future__ import annotations

import pytest
from fake_batch import FakeBatch
from sampled import each
from scenarios import INVALID, SCENARIOS, Scenario

LIMITS = {"stall_s": 1.5, "grace_s": 0.2}


def needs_a_process(scenario: Scenario) -> bool:
    return any(word in line for line in scenario.lines for word in ("devour", "child"))


NIGHTS = [pytest.param(one, marks=pytest.mark.all if needs_a_process(one) else ()) for one in SCENARIOS]


@pytest.mark.parametrize("scenario", each(3, NIGHTS), ids=lambda scenario: scenario.name)
def test_a_night(batch: FakeBatch, scenario: Scenario) -> None:
    batch.make("p5", "p7", limits=LIMITS, **scenario.settings).script(p5=scenario.lines)
    done = batch.run("train")
    attempts = [event for event in batch.events("attempt_started") if event["patch"] == "p5"]
    assert len(attempts) == scenario.attempts, done.stderr
    assert done.returncode == (0 if scenario.state == "trained" else 1)
    assert f"{2 - (scenario.state != 'trained')} of 2 patches trained" in done.stdout
    if scenario.cause:
        assert f"({scenario.cause})" in done.stdout
    for key, value in scenario.changes.items():
        assert batch.result("p5")["changes"][key] == value


def test_the_history_of_a_patch_quotes_its_evidence_and_what_was_changed(batch: FakeBatch) -> None:
    batch.make("p4", "p5", "p7", training={"init_scale": 0.1})
    batch.script(p5=[f"needs training.init_scale>=0.3 {INVALID}"]).run("train")
    history = batch.run("explain", "p5").stdout
    assert f"line 1: {INVALID}" in history
    assert "p7 trained in between: the GPU is not to blame" in history
    assert "with training.init_scale=0.3" in history
    assert "now: trained" in history


def test_what_lies_in_the_machine_stops_the_batch_after_the_second_patch(batch: FakeBatch) -> None:
    bad = ["exit 1 RuntimeError: CUDA error: no kernel image is available for execution on the device"]
    batch.make("p0", "p1", "p2", "p3").script(p0=bad, p1=bad, p2=bad, p3=bad)
    assert batch.run("train").returncode == 1
    assert [event["patch"] for event in batch.events("attempt_started")] == ["p0", "p1"]


def test_a_retry_with_other_settings_is_trained_and_says_what_was_changed(batch: FakeBatch) -> None:
    batch.make("p5", training={"init_scale": 0.1}, retry={"max_attempts": 1})
    batch.script(p5=[f"needs training.init_scale>=0.3 {INVALID}"]).run("train")
    assert batch.run("retry", "--failed", "--set", "training.init_scale=0.3").returncode == 0
    assert batch.result("p5")["changes"] == {"training.init_scale": 0.3}
