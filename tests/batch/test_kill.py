"""Whoever is killed, whenever: nothing is lost, nothing is trained twice, nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from fake_batch import FakeBatch
from kill_batch import family, kill_test, races, wait_until

from splatbatch.attempt import AttemptFolder
from splatbatch.batch.folder import OutputFolder
from splatbatch.batch.results import batch_name
from splatbatch.files import path_beside, read_json
from splatbatch.supervisor import processes


def start(batch: FakeBatch) -> subprocess.Popen[str]:
    """Start a batch; return when its first trainer runs."""
    parent = batch.start("train")
    wait_until(lambda: family(parent.pid)["trainer"])
    return parent


def left_of(batch: FakeBatch) -> dict[int, str]:
    return processes.marked(f"{batch_name(OutputFolder(batch.output))}.")


@pytest.mark.slow
def test_twenty_kills_at_random_moments_cost_nothing_but_the_attempts_that_ran(tmp_path: Path) -> None:
    figures = kill_test(tmp_path, kills=20, seed=7)
    assert figures.faults == [], figures.in_words()
    assert sum(figures.kills.values()) == 20
    assert figures.reads > 100


@pytest.mark.slow
def test_of_two_parents_at_one_instant_one_works_and_the_other_exits_6_ten_times(tmp_path: Path) -> None:
    assert races(tmp_path, 10) == {(0, 6): 10}


def test_a_killed_supervisor_takes_its_trainer_and_all_its_kin_with_it(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["train-with-kin 600", "train-with-kin 0"])
    parent = start(batch)
    wait_until(lambda: len(left_of(batch)) == 2)
    os.kill(family(parent.pid)["supervisor"][0], signal.SIGKILL)
    parent.communicate(timeout=30)
    assert parent.returncode == 0
    assert batch.events("attempt_ended")[0]["diagnosis"]["cause"] == "lost"
    assert left_of(batch) == {}


def test_what_a_killed_parent_and_a_killed_supervisor_leave_is_ended_by_the_next_run(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["train-with-kin 600", "train-with-kin 0"])
    parent = start(batch)
    wait_until(lambda: len(left_of(batch)) == 2)
    for pid in (family(parent.pid)["supervisor"][0], parent.pid):
        os.kill(pid, signal.SIGKILL)
    parent.communicate()
    assert len(left_of(batch)) >= 1
    assert batch.run("train").returncode == 0
    assert left_of(batch) == {}


def test_what_finished_after_its_parent_was_killed_is_adopted(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["linger", "hang"])
    parent = start(batch)
    wait_until((batch.output / "patches/p0/attempt-01/splat.ply").exists)
    parent.kill()
    parent.communicate()
    assert batch.run("train").returncode == 0
    assert batch.result("p0")["attempt"] == "attempt-01"
    assert [event["adopted"] for event in batch.events("attempt_ended")] == [True]


def test_what_was_trained_under_other_settings_is_not_adopted(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["linger", "train"])
    parent = start(batch)
    wait_until((batch.output / "patches/p0/attempt-01/splat.ply").exists)
    parent.kill()
    parent.communicate()
    batch.change(evaluation={"holdout_every": 4})
    assert batch.run("train").returncode == 0
    assert batch.result("p0")["attempt"] == "attempt-02"


def test_an_attempt_that_never_started_may_not_start_late(batch: FakeBatch) -> None:
    batch.make("p0")
    folder = AttemptFolder(batch.output / "patches/p0/attempt-01")
    folder.path.mkdir(parents=True)
    path_beside(folder.settings).touch()
    assert batch.run("train").returncode == 0
    assert batch.result("p0")["attempt"] == "attempt-02"
    assert [path.name for path in folder.path.iterdir()] == ["cancel"]


def test_a_hang_is_ended_at_the_stall_limit_and_a_viewer_behind_a_whole_splat_counts(batch: FakeBatch) -> None:
    batch.make("p0", "p1", limits={"stall_s": 1}).script(p0=["hang deaf child", "train"], p1=["linger"])
    assert batch.run("train").returncode == 0
    hang, _, viewer = sorted(batch.events("attempt_ended"), key=lambda event: event["patch"])
    assert hang["diagnosis"]["cause"] == "hang"
    assert viewer["exit"] == {"kind": "timed_out", "limit": "stall", "limit_s": 1.0}
    assert "ended badly after its splat was whole" in batch.result("p1")["warnings"][0]


@pytest.mark.slow
def test_a_trainer_that_says_200_mb_at_once_is_neither_slowed_nor_kept(batch: FakeBatch) -> None:
    started = time.monotonic()
    assert batch.make("p0").script(p0=["talk 200"]).run("train").returncode == 0
    assert time.monotonic() - started < 20
    attempt = AttemptFolder(batch.output / "patches/p0/attempt-01")
    assert attempt.log.stat().st_size < 20 << 20
    assert (read_json(attempt.exit) or {})["seconds"] < 15
