"""Batches from the outside: what is trained, tried again, given up, and with which exit code."""

from __future__ import annotations

import signal

import pytest
from fake_batch import FakeBatch
from process_family import left_of, wait_until


def test_every_patch_is_trained_in_natural_order(batch: FakeBatch) -> None:
    batch.make("p10", "p2", "p1")
    done = batch.run("train")
    assert done.returncode == 0, done.stderr
    assert [event["patch"] for event in batch.events("attempt_started")] == ["p1", "p2", "p10"]
    assert "3 of 3 patches trained" in done.stdout


def test_a_second_run_trains_nothing(batch: FakeBatch) -> None:
    batch.make("p0", "p1").run("train")
    again = batch.run("train")
    assert again.returncode == 0
    assert len(batch.events("attempt_started")) == 2


def test_a_deleted_product_is_trained_again_alone(batch: FakeBatch) -> None:
    batch.make("p0", "p1").run("train")
    for path in (batch.output / "patches/p1").glob("**/splat.ply"):
        path.unlink()
    assert batch.run("train").returncode == 0
    assert [event["patch"] for event in batch.events("attempt_started")] == ["p0", "p1", "p1"]


def test_a_killed_trainer_is_tried_again_and_trained(batch: FakeBatch) -> None:
    batch.make("p0", "p1").script(p0=["die SIGKILL", "train"])
    assert batch.run("train").returncode == 0
    assert batch.result("p0")["attempt"] == "attempt-02"
    assert batch.result("p1")["attempt"] == "attempt-01"


def test_a_trainer_that_is_always_killed_fails_and_the_other_patch_is_trained(batch: FakeBatch) -> None:
    batch.make("p0", "p1").script(p0=["die SIGKILL"])
    done = batch.run("train")
    assert done.returncode == 1
    assert batch.result("p1")["attempt"] == "attempt-01"
    assert "p0: host memory ran out (host_oom)" in done.stdout
    assert [event["changes"] for event in batch.events("retry")][:2] == [
        {"training.workers": 4},
        {"training.workers": 0},
    ]


def test_a_permanent_failure_is_not_tried_again(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["exit 1 ModuleNotFoundError: No module named 'gsplat'"])
    assert batch.run("train").returncode == 1
    assert len(batch.events("attempt_started")) == 1


def test_a_crash_after_the_splat_is_whole_counts_as_trained_with_a_warning(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["train-then-die SIGSEGV"])
    assert batch.run("train").returncode == 0
    assert "failed after its splat was complete" in batch.result("p0")["warnings"][0]


@pytest.mark.contract
def test_a_hanging_trainer_is_ended_at_the_wall_limit_with_its_deaf_children(batch: FakeBatch) -> None:
    batch.make("p0", limits={"wall_s": 1, "grace_s": 0.3}, retry={"max_attempts": 1}).script(p0=["hang deaf child"])
    assert batch.run("train").returncode == 1
    assert batch.events("attempt_ended")[0]["exit"]["kind"] == "timed_out"


def test_an_interrupted_batch_stops_its_attempts_and_says_so(batch: FakeBatch) -> None:
    batch.make("p0", "p1").script(p0=["hang"])
    night = batch.beside("train")
    night.until(lambda: "attempt 1 started" in night.said).send(signal.SIGTERM)
    assert night.ended().returncode == 143
    assert batch.events("attempt_ended")[0]["outcome"] == "stopped"


@pytest.mark.contract
def test_a_killed_parent_leaves_no_attempt_running_and_the_next_run_goes_on(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["hang", "train"])
    process = batch.start("train")
    wait_until((batch.output / "patches/p0/attempt-01/progress.jsonl").exists)
    process.kill()
    process.communicate()
    assert batch.run("train").returncode == 0
    assert batch.result("p0")["attempt"] == "attempt-02"
    assert left_of(batch) == []


def test_two_runs_at_once_are_one_too_many(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["train 3"])
    first = batch.beside("train").until(lambda: batch.ledger.exists() and batch.events("attempt_started"))
    second = batch.run("train")
    assert second.returncode == 6
    assert "is training into this folder" in second.stderr
    assert first.ended().returncode == 0


def test_what_was_odd_in_a_training_is_said_at_its_end_and_by_status(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["train-then-die SIGSEGV"])
    said, later = batch.run("train").stdout, batch.run("status").stdout
    assert "p0: the process failed after its splat was complete" in said
    assert "p0: the process failed" in later


def test_the_time_before_a_gate_is_written_down_and_told(batch: FakeBatch) -> None:
    batch.make("p0", "p1", cooldown={"floor_s": 0.6}).script(p0=["train"], p1=["train"])
    assert batch.run("train").returncode == 0
    (waited,) = batch.events("gate")
    assert (waited["patch"], waited["attempt"], waited["reason"]) == ("p1", 1, "cooling down")
    assert 0.1 < waited["waited_s"] < 5
    assert "its GPU or CPU slot was not ready for" in batch.run("explain", "p1").stdout
    assert "until its GPU was ready: cooling down" in (batch.output / "report.html").read_text()


def test_a_report_that_cannot_be_made_does_not_hide_how_it_went(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch.make("p0").run("train")
    monkeypatch.setattr("splatbatch.report.write_report", lambda *_, **__: 1 / 0)
    ended = batch.run("train")
    assert ended.returncode == 0 and "1 of 1 patches trained" in ended.stdout
    assert "the report could not be written" in ended.stderr
    assert "ZeroDivisionError" in ended.stderr
