"""A deadline in the YAML: chosen once, told before anything begins, kept on resume, and honest about what it cost."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from fake_batch import FakeBatch
from published_shapes import checked

STEPS = 200_000
"""So many that the model expects hours of them."""
PATCHES = ("p0", "p1", "p2")


def timed(batch: FakeBatch, deadline: str | None, *patches: str, **sections: Any) -> FakeBatch:
    batch.make(*(patches or ("p0", "p1", "p2")), training={"max_steps": STEPS, "cap_max": 300}, **sections)
    return set_to(batch, deadline)


def set_to(batch: FakeBatch, deadline: str | None) -> FakeBatch:
    batch.settings.pop("deadline", None)
    batch.settings |= {"deadline": deadline} if deadline else {}
    batch.change()
    return batch


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    batch = timed(FakeBatch(tmp_path_factory.mktemp("trained") / "batch"), "10m")
    assert batch.run("train").returncode == 0
    return batch


@pytest.fixture
def trained(trained_once: FakeBatch, tmp_path: Path) -> FakeBatch:
    """Return a batch that was trained within ten minutes: a copy."""
    return trained_once.copied(tmp_path / "batch")


def choice(batch: FakeBatch) -> dict[str, Any]:
    return json.loads((batch.output / "deadline.json").read_text())


def steps(batch: FakeBatch, *names: str) -> list[int]:
    return [batch.result(name)["step"] for name in names or ("p0", "p1", "p2")]


def test_plan_says_what_would_be_given_up_and_writes_nothing(batch: FakeBatch) -> None:
    said = timed(batch, "10m").run("plan").stdout
    assert "every patch is trained with" in said
    assert "of 200,000 steps" in said
    assert "dB of PSNR on held-out photographs" in said
    assert not (batch.output / "deadline.json").exists()


def test_all_patches_are_trained_with_the_same_share_and_it_is_told(batch: FakeBatch) -> None:
    batch = timed(batch, "4m", executor={"cpu_slots": 3})
    done = batch.run("train")
    assert done.returncode == 0, done.stderr
    assert len(set(steps(batch))) == 1
    assert steps(batch)[0] < STEPS / 2
    assert "every patch is trained with" in done.stderr
    assert batch.result("p0")["changes"]["training.max_steps"] == steps(batch)[0]
    report = json.loads((batch.output / "report.json").read_text())
    assert "costs about" in report["deadline"]["words"][0]
    assert "costs about" in (batch.output / "report.md").read_text()


def test_what_was_chosen_is_kept_on_resume(batch: FakeBatch) -> None:
    timed(batch, "4m", executor={"cpu_slots": 3}).script(p1=["exit 1 ModuleNotFoundError: No module named 'gsplat'"])
    assert batch.run("train").returncode == 1
    before = choice(batch)
    batch.script()
    assert batch.run("retry", "--failed").returncode == 0
    assert choice(batch) == before
    assert len(set(steps(batch))) == 1


@pytest.mark.all
@pytest.mark.parametrize("hours", [10, -10])
def test_a_slow_machine_leaves_fewer_steps_to_what_begins_next_but_not_once_the_deadline_is_past(
    batch: FakeBatch, hours: int
) -> None:
    timed(batch, "10m").script(**{name: ["exit 1 ModuleNotFoundError: No module named 'gsplat'"] for name in PATCHES})
    assert batch.run("train").returncode == 1
    before = choice(batch)
    ends_at = time.time() + 3600 * hours
    (batch.output / "deadline.json").write_text(json.dumps(before | {"ends_at": ends_at}))
    batch.script(**{name: ["take 40000"] for name in PATCHES})
    said = batch.run("train").stderr
    assert batch.result("p0")["step"] == int(before["pace"]["steps"] * STEPS + 1e-6)
    assert [one < steps(batch, "p0")[0] for one in steps(batch)] == [False, hours > 0, hours > 0]
    assert ("the measured speed of training is not the expected one" in said) == (hours > 0)
    assert batch.run("plan").stdout.count("skip: trained") == 3


def test_a_night_that_is_done_stays_done_while_the_deadline_is_there(trained: FakeBatch) -> None:
    assert trained.run("plan").stdout.count("skip: trained") == 3
    trained.run("train")
    assert {trained.result(name)["attempt"] for name in ("p0", "p1", "p2")} <= {"attempt-01", "attempt-02"}


def test_without_the_deadline_the_patches_are_trained_in_full(trained: FakeBatch) -> None:
    said = set_to(trained, None).run("plan").stdout
    assert said.count("settings have changed: training.max_steps") == 3
    trained.run("train")
    assert steps(trained) == [STEPS] * 3


def test_what_was_trained_in_full_stays_when_a_deadline_is_set(batch: FakeBatch) -> None:
    timed(batch, None).run("train")
    said = set_to(batch, "1m").run("plan").stdout
    assert said.count("skip: trained") == 3


def test_a_later_deadline_is_a_new_choice(trained: FakeBatch) -> None:
    set_to(trained, "400h").run("train")
    assert steps(trained) == [STEPS] * 3
    assert choice(trained)["asked"] == "400h"


def test_an_earlier_deadline_keeps_what_is_trained(trained: FakeBatch) -> None:
    before = steps(trained)
    set_to(trained, "5m").run("train")
    assert steps(trained) == before


def test_an_impossible_deadline_is_told_first_and_leaves_nobody_out(batch: FakeBatch) -> None:
    done = timed(batch, "1s").run("train")
    told = [line for line in done.stderr.splitlines() if "deadline" in line]
    assert "CANNOT BE MET" in told[0]
    assert done.returncode == 0
    assert len(steps(batch)) == 3


@pytest.mark.parametrize("deadline", ["25:00", "soon", "2026-02-30 07:00", "0s", "5400"])
def test_what_is_no_deadline_is_an_error_with_its_line(batch: FakeBatch, deadline: str) -> None:
    done = timed(batch, deadline).run("train")
    assert done.returncode == 2
    assert "deadline" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_date_that_is_past_is_an_error_before_anything_is_trained(batch: FakeBatch) -> None:
    done = timed(batch, "2020-01-01 07:00").run("train")
    assert done.returncode == 2
    assert "past" in done.stderr
    assert batch.run("status").returncode == 0


def test_a_program_that_is_told_no_steps_is_named(batch: FakeBatch) -> None:
    program = {"command": ["true"], "artifact": {"ply": "*.ply"}}
    timed(batch, "10m", "p0", trainers={"other": program})
    batch.change(training={"trainer": "other"})
    said = batch.run("plan").stdout
    assert "the steps of other are not changed: its command has no {steps}" in said


def test_workers_keep_to_one_choice(batch: FakeBatch) -> None:
    timed(batch, "4m")
    assert batch.run("work", "p0").returncode == 0
    first = choice(batch)
    assert batch.run("work", "p0").returncode == 0
    assert choice(batch) == first
    assert steps(batch, "p0") == [round(int(first["pace"]["steps"] * STEPS + 1e-6))]


def test_a_choice_that_is_no_json_any_more_is_made_anew(batch: FakeBatch) -> None:
    timed(batch, "4m").run("train", "p0")
    (batch.output / "deadline.json").write_text('{"pace": {"steps": "much"')
    assert batch.run("plan").returncode == 0
    assert batch.run("train").returncode == 0


def test_plan_tells_programs_of_the_deadline(batch: FakeBatch) -> None:
    told = checked("plan", timed(batch, "4m").run("plan", "--json").stdout)["deadline"]
    assert 0 < told["pace"]["steps"] < 1
    assert told["asked"] == "4m"
    assert told["words"]
