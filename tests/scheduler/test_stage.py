"""A task that is no patch goes through plan, claims, kills, retry and report as any other does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import doubled_stage
import pytest

from splatbatch.tasks import batch as tasks_batch

if TYPE_CHECKING:
    from fake_batch import FakeBatch


@pytest.fixture
def staged(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> FakeBatch:
    """Two patches, and the stage that is made of the first one's splat."""
    monkeypatch.setenv("FAKE_STAGE", "doubled")
    monkeypatch.setattr(tasks_batch, "tasks_of", doubled_stage.with_stage)
    return batch.make("p0", "p1")


def doubled(batch: FakeBatch) -> int:
    return int((batch.output / "patches/doubled/doubled.txt").read_text())


def planned(batch: FakeBatch) -> dict[str, str]:
    plan = json.loads(batch.run("plan", "--json").stdout)
    return {one["patch"]: one["reason"] for one in plan["patches"]}


def test_it_is_made_once_what_it_needs_is_there_and_skipped_while_it_is_fresh(staged: FakeBatch) -> None:
    done = staged.run("train")
    assert done.returncode == 0, done.stderr
    assert doubled(staged) == 2 * sum((staged.output / "patches/p0/splat.ply").read_bytes())
    ended = [(event["patch"], event["outcome"]) for event in staged.events("attempt_ended")]
    assert ended.index(("doubled", "made")) > ended.index(("p0", "trained"))
    assert staged.run("train").returncode == 0 and len(staged.events("attempt_ended")) == len(ended)


def test_the_plan_says_why_it_is_made_anew(staged: FakeBatch) -> None:
    assert staged.run("train").returncode == 0
    (staged.output / "patches/doubled/doubled.txt").write_text("7")
    assert "doubled.txt: damaged on disk" in planned(staged)["doubled"]
    assert staged.run("train").returncode == 0 and doubled(staged) > 7


def test_where_what_it_is_made_of_is_made_anew_it_is_so_too_in_the_same_night(
    staged: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_STAGE", "doubled redoubled")
    assert staged.run("train").returncode == 0
    staged.change(training={"max_steps": 25, "device": "cpu"})
    done = staged.run("train")
    assert done.returncode == 0, done.stderr
    attempts = [staged.result(stage)["attempt"] for stage in ("doubled", "redoubled")]
    assert attempts == ["attempt-02", "attempt-02"]


def test_an_attempt_that_crashes_is_diagnosed_and_made_once_more(staged: FakeBatch) -> None:
    staged.script(doubled=["crash", "make"])
    assert staged.run("train").returncode == 0
    assert [event["outcome"] for event in staged.events("attempt_ended") if event["patch"] == "doubled"] == [
        "failed",
        "made",
    ]
    assert [event["patch"] for event in staged.events("retry")] == ["doubled"]


@pytest.mark.all
def test_after_a_kill_it_is_made_by_the_next_run(staged: FakeBatch) -> None:
    staged.script(doubled=["hang", "make"])
    process = staged.start("train")
    while "doubled: attempt 1 started" not in process.stderr.readline():
        pass
    process.kill()
    process.communicate()
    assert staged.run("train").returncode == 0
    assert staged.result("doubled")["attempt"] == "attempt-02"


def test_a_worker_claims_it(staged: FakeBatch) -> None:
    done = staged.run("work")
    assert done.returncode == 0, done.stderr
    assert doubled(staged) > 0 and list((staged.output / "claims/doubled").iterdir())


def test_status_and_report_tell_how_it_went(staged: FakeBatch) -> None:
    staged.script(doubled=["crash"])
    assert staged.run("train").returncode == 1
    assert "2 of 3 patches trained; failed: doubled" in staged.run("status").stdout
    report = json.loads((staged.output / "report.json").read_text())
    (found,) = [one for one in report["patches"] if one["patch"] == "doubled"]
    assert (found["state"], found["cause"], len(found["attempts"])) == ("failed", "segfault", 2)
