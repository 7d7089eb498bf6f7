"""The nights this began with: for each kind of failure, what becomes of the patch, and after how many attempts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from fake_batch import FakeBatch

INVALID = "CUDA error: invalid configuration argument"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has 23.6 GiB, 100.0 MiB is free"


@dataclass(frozen=True)
class Scenario:
    """What the trainer of p5 does, attempt by attempt, and what must come of it; p7 trains well."""

    name: str
    lines: list[str]
    state: str
    attempts: int
    cause: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)


SCENARIOS = [
    Scenario("success", ["train"], "trained", 1),
    Scenario(
        "the history this began with: invalid configuration until init_scale is raised",
        [f"needs training.init_scale>=0.3 {INVALID}"],
        "trained",
        3,
        changes={"training.init_scale": 0.3},
        settings={"training": {"init_scale": 0.1}},
    ),
    Scenario("a segfault after the splat is whole", ["train-then-die SIGSEGV"], "trained", 1),
    Scenario("exit 0 with a cut splat, once", ["spoil cut", "train"], "trained", 2),
    Scenario("exit 0 with NaN in the splat, always", ["spoil nan"], "failed", 4, "nan_loss"),
    Scenario("exit 0 with an empty folder, always", ["spoil nothing"], "failed", 2, "incomplete_artifact"),
    Scenario("exit 0 with the splat of an earlier step, once", ["spoil early", "train"], "trained", 2),
    Scenario(
        "out of GPU memory until the images lie on the host",
        [f"needs training.images==host {OOM}"],
        "trained",
        2,
        changes={"training.images": "host"},
    ),
    Scenario(
        "out of GPU memory until the cap is lower",
        [f"needs training.cap_max<=600000 {OOM}"],
        "trained",
        3,
        changes={"training.images": "host", "training.cap_max": 600_000},
    ),
    Scenario("host memory used up, always", ["devour"], "failed", 4, "host_oom"),
    Scenario("a random crash", ["die SIGSEGV", "train"], "trained", 2),
    Scenario("the same crash every time", [f"exit 1 {INVALID}"], "failed", 5, "cuda_invalid_configuration"),
    Scenario(
        "a crash only with more than 4 workers",
        ["needs training.workers<=4 SIGSEGV"],
        "trained",
        3,
        changes={"training.workers": 4},
        settings={"training": {"workers": 16}},
    ),
    Scenario("a hang, once", ["hang", "train"], "trained", 2),
    Scenario("a hang with children that ignore SIGTERM, once", ["hang deaf child", "train"], "trained", 2),
    Scenario("a viewer that never exits after the splat is done", ["linger"], "trained", 1),
    Scenario(
        "a corrupt photograph in the middle",
        ["exit 3 splatbatch: images/a.jpg: cannot identify image file, or it is truncated"],
        "failed",
        1,
        "corrupt_image",
    ),
    Scenario(
        "the loss is not a number until the second rung, a lower learning rate",
        ["unhealthy nan_loss: loss nan at step 9", "unhealthy nan_loss: loss nan at step 9", "train"],
        "trained",
        3,
        changes={"training.init_scale": 0.3, "learning_rates.means": 0.00008},
        settings={"training": {"init_scale": 0.1}},
    ),
    Scenario("all gradients are zero", ["unhealthy zero_gradients: nothing is learned"], "failed", 2, "zero_gradients"),
    Scenario(
        "nothing to import",
        ["exit 1 ModuleNotFoundError: No module named 'gsplat'"],
        "failed",
        1,
        "missing_dependency",
    ),
]


# one that hangs does nothing at all; one that starts slowly on a busy machine does: a wall clock cannot tell them apart
LIMITS = {"stall_s": 1.5, "grace_s": 0.2}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_night(batch: FakeBatch, scenario: Scenario) -> None:
    batch.make("p5", "p7", limits=LIMITS, **scenario.settings).script(p5=scenario.lines)
    done = batch.run("train")
    attempts = [event for event in batch.events("attempt_started") if event["patch"] == "p5"]
    assert len(attempts) == scenario.attempts, done.stderr
    assert done.returncode == (0 if scenario.state == "trained" else 1)
    assert f"{2 - (scenario.state != 'trained')} of 2 patches trained" in done.stdout
    if scenario.cause:
        assert f"p5: failed: {scenario.cause}" in done.stdout
    for key, value in scenario.changes.items():
        assert batch.result("p5")["changes"][key] == value


def test_the_story_of_a_patch_quotes_its_evidence_and_what_was_changed(batch: FakeBatch) -> None:
    batch.make("p4", "p5", "p7", training={"init_scale": 0.1})
    batch.script(p5=[f"needs training.init_scale>=0.3 {INVALID}"]).run("train")
    story = batch.run("explain", "p5").stdout
    assert f"line 1: {INVALID}" in story
    assert "p7 trained in between: the GPU is not to blame" in story
    assert "with training.init_scale=0.3" in story
    assert "now: trained" in story


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
