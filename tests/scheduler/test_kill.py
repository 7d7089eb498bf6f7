"""Whoever is killed, whenever: nothing is lost, nothing is trained twice, nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_batch import FakeBatch
from kill_batch import kill_test
from kill_events import NUM_EVENTS, TARGETS, kills_at_events
from process_family import family, wait_until
from race_batch import races

from splatbatch import processes
from splatbatch.files import path_beside, read_json
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.results import batch_name


def start(batch: FakeBatch) -> subprocess.Popen[str]:
    """Start a batch; return when its first trainer runs."""
    parent = batch.start("train")
    wait_until(lambda: family(parent.pid)["trainer"])
    return parent


def left_of(batch: FakeBatch) -> dict[int, str]:
    return processes.with_marker(f"{batch_name(OutputFolder(batch.output))}.")


Say = Callable[[str, object], None]
SEED = 7
RANDOM = [pytest.param(12, marks=pytest.mark.all), pytest.param(300, marks=pytest.mark.long)]
A_FEW_EVENTS = [(17, "supervisor"), (25, "parent"), (33, "trainer"), (45, "parent-before")]
"""One for each target; all sixty for each with --long."""


@pytest.mark.parametrize("kills", RANDOM)
def test_kills_and_stops_at_random_moments_cost_nothing_but_the_attempts_that_ran(
    tmp_path: Path, kills: int, record_property: Say
) -> None:
    figures = kill_test(tmp_path, kills=kills, seed=SEED)
    record_property("figure", figures.in_words())
    assert figures.faults == [], figures.in_words()
    assert sum(figures.kills.values()) == kills
    assert figures.reads > 100


@pytest.mark.all
@pytest.mark.parametrize(("event", "target"), A_FEW_EVENTS)
def test_a_kill_at_an_event_of_the_ledger_loses_nothing(tmp_path: Path, event: int, target: str) -> None:
    figures = kills_at_events(tmp_path, [event], target)
    assert (figures.faults, figures.missed) == ([], [])


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("events", [NUM_EVENTS])
def test_a_kill_at_each_event_of_the_ledger_loses_nothing(
    tmp_path: Path, events: int, target: str, record_property: Say
) -> None:
    figures = kills_at_events(tmp_path, range(1, events + 1), target)
    record_property("figure", figures.in_words())
    assert figures.faults == []
    assert len(figures.missed) < (1 if target.startswith("parent") else 5)


@pytest.mark.parametrize("number", [pytest.param(10, marks=pytest.mark.all), pytest.param(100, marks=pytest.mark.long)])
def test_of_two_parents_at_one_instant_one_works_and_the_other_exits_6(
    tmp_path: Path, number: int, record_property: Say
) -> None:
    record_property("figure", f"{number} races")
    assert races(tmp_path, number) == {(0, 6): number}


@pytest.mark.parametrize("number", [pytest.param(6, marks=pytest.mark.all), pytest.param(60, marks=pytest.mark.long)])
def test_of_two_parents_without_flock_one_works_each_time(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TRAINER_NO_FLOCK", "1")
    assert races(tmp_path, number) == {(0, 6): number}


@pytest.mark.all
@pytest.mark.contract
def test_a_killed_supervisor_takes_its_trainer_and_all_its_kin_with_it(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["train-with-kin 600", "train-with-kin 0"])
    parent = start(batch)
    wait_until(lambda: len(left_of(batch)) == 2)
    os.kill(family(parent.pid)["supervisor"][0], signal.SIGKILL)
    parent.communicate(timeout=30)
    assert parent.returncode == 0
    assert batch.events("attempt_ended")[0]["diagnosis"]["cause"] == "lost"
    assert left_of(batch) == {}


@pytest.mark.all
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


@pytest.mark.all
def test_what_finished_after_its_parent_was_killed_is_adopted(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["linger", "hang"])
    parent = start(batch)
    wait_until((batch.output / "patches/p0/attempt-01/splat.ply").exists)
    parent.kill()
    parent.communicate()
    assert batch.run("train").returncode == 0
    assert batch.result("p0")["attempt"] == "attempt-01"
    assert [event["adopted"] for event in batch.events("attempt_ended")] == [True]


@pytest.mark.all
def test_what_was_trained_under_other_settings_is_not_adopted(batch: FakeBatch) -> None:
    batch.make("p0").script(p0=["linger", "train"])
    parent = start(batch)
    wait_until((batch.output / "patches/p0/attempt-01/splat.ply").exists)
    parent.kill()
    parent.communicate()
    batch.change(evaluation={"holdout_every": 4})
    assert batch.run("train").returncode == 0
    assert batch.result("p0")["attempt"] == "attempt-02"


def test_an_end_that_the_ledger_has_lost_brings_no_older_splat_back(batch: FakeBatch) -> None:
    batch.make("p0").run("train")
    assert batch.run("retry", "p0", "--force").returncode == 0
    ledger = batch.ledger
    ledger.write_text(ledger.read_text().replace('"attempt_ended"', '"attempt_endfd"', 1))
    assert batch.run("train").returncode == 0
    assert batch.result("p0")["attempt"] == "attempt-02"
    assert [event.get("accepted") for event in batch.events("attempt_ended")] == [True, False]


def test_what_a_kill_left_beside_a_result_of_old_is_swept_by_the_next_run(batch: FakeBatch) -> None:
    batch.make("p0").run("train")
    half = path_beside(batch.output / "patches/p0/result.json")
    half.touch()
    assert batch.run("train").returncode == 0
    assert not half.exists()


def test_an_attempt_that_never_started_may_not_start_late(batch: FakeBatch) -> None:
    batch.make("p0")
    folder = AttemptFolder(batch.output / "patches/p0/attempt-01")
    folder.path.mkdir(parents=True)
    path_beside(folder.settings).touch()
    assert batch.run("train").returncode == 0
    assert batch.result("p0")["attempt"] == "attempt-02"
    assert [path.name for path in folder.path.iterdir()] == ["cancel"]


@pytest.mark.contract
def test_a_hang_is_ended_at_the_stall_limit_and_a_viewer_behind_a_whole_splat_counts(batch: FakeBatch) -> None:
    batch.make("p0", "p1", limits={"stall_s": 1}).script(p0=["hang deaf child", "train"], p1=["linger"])
    assert batch.run("train").returncode == 0
    hang, _, viewer = sorted(batch.events("attempt_ended"), key=lambda event: event["patch"])
    assert hang["diagnosis"]["cause"] == "hang"
    assert viewer["exit"] == {"kind": "timed_out", "limit": "stall", "limit_s": 1.0}
    assert "failed after its splat was complete" in batch.result("p1")["warnings"][0]


@pytest.mark.all
def test_a_trainer_that_says_200_mb_at_once_is_neither_slowed_nor_kept(batch: FakeBatch) -> None:
    started = time.monotonic()
    assert batch.make("p0").script(p0=["talk 200"]).run("train").returncode == 0
    assert time.monotonic() - started < 20
    attempt = AttemptFolder(batch.output / "patches/p0/attempt-01")
    assert attempt.log.stat().st_size < 20 << 20
    assert (read_json(attempt.exit) or {})["seconds"] < 15
