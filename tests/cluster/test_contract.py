"""What every engine must keep to: the same tests for each of them, with real workers where it starts them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from process_family import left_of
from sites import Site, at_work, wait_for, worker_pid
from worker_batch import faults_of, make

if TYPE_CHECKING:
    from fake_batch import FakeBatch

ENGINES = ("local", "slurm")
every_engine = pytest.mark.parametrize("site", ENGINES, indirect=True)
pytestmark = every_engine


def ends_of(batch: FakeBatch) -> list[tuple[str, str]]:
    """Return how each attempt has ended, by all ledgers."""
    texts = [path.read_text() for path in sorted(batch.output.glob("ledger/*.jsonl"))]
    events = [json.loads(line) for text in texts for line in text.splitlines()]
    return sorted((one["patch"], one["outcome"]) for one in events if one["event"] == "attempt_ended")


def states_of(batch: FakeBatch) -> dict[str, str]:
    """Return the state of each patch, as `status` tells it."""
    told = json.loads(batch.run("status", "--json").stdout)
    return {one["patch"]: f"{one['state']} {one['cause']}".strip() for one in told["patches"]}


def begun(batch: FakeBatch) -> Any:
    """Wait until a worker has begun an attempt; return one."""
    wait_for(lambda: list(batch.output.glob("patches/*/attempt-*/start.json")))
    return wait_for(lambda: at_work(batch.output))[0]


def see_nothing_left(batch: FakeBatch, site: Site) -> None:
    """See that nothing of a batch runs any more, or waits."""
    assert left_of(batch, patience_s=10) == []
    assert wait_for(lambda: site.jobs() == [])


@pytest.mark.all
@pytest.mark.contract
def test_outcomes_and_time_limits_are_the_same_whoever_starts_the_workers(elsewhere: FakeBatch, site: Site) -> None:
    elsewhere.change(limits={"wall_s": 3}, retry={"max_attempts": 2})
    elsewhere.script(p0=["die SIGSEGV", "train"], p1=["exit 1 odd"], p2=["train 600"])
    ended = elsewhere.run_apart("train", timeout_s=200)
    states = states_of(elsewhere)
    assert (ended.returncode, states["p0"], states["p1"]) == (1, "trained", "failed unknown"), ended.stderr
    assert states["p2"].startswith("failed"), states
    assert Counter(ends_of(elsewhere))["p0", "trained"] == 1
    see_nothing_left(elsewhere, site)


@pytest.mark.all
def test_cancel_ends_what_runs_and_what_waits(elsewhere: FakeBatch, site: Site) -> None:
    elsewhere.script(p0=["train 600"], p1=["train 600"], p2=["train 600"])
    assert elsewhere.run_apart("train", "--detach", timeout_s=200).returncode == 0
    begun(elsewhere)
    done = elsewhere.run_apart("cancel", timeout_s=200)
    assert (done.returncode, "0 of 3 patches trained" in done.stdout) == (0, True), done
    see_nothing_left(elsewhere, site)
    elsewhere.script()
    assert elsewhere.run_apart("train", timeout_s=200).returncode == 0  # nobody obeys the old request


@pytest.mark.all
def test_a_parent_that_is_killed_is_followed_by_another_and_nothing_is_trained_twice(
    elsewhere: FakeBatch, site: Site
) -> None:
    elsewhere.script(p0=["await go"], p1=["train 1"])
    parent = elsewhere.start("train")
    wait_for(lambda: list(elsewhere.output.glob("workers/jobs/*")))
    time.sleep(random.uniform(0, 6))
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    again = elsewhere.start("train")
    begun(elsewhere)
    (elsewhere.folder / "go").touch()
    told = again.communicate(timeout=200)
    assert again.returncode == 0, told
    assert ends_of(elsewhere) == [("p0", "trained"), ("p1", "trained"), ("p2", "trained")]
    see_nothing_left(elsewhere, site)


@pytest.mark.all
def test_who_attaches_sees_it_end(elsewhere: FakeBatch, site: Site) -> None:
    elsewhere.script(p0=["await go"])
    assert elsewhere.run_apart("train", "--detach", timeout_s=200).returncode == 0
    begun(elsewhere)
    again = elsewhere.run_apart("train", "--detach", timeout_s=200)
    assert (again.returncode, "nothing was started" in again.stderr) == (0, True)
    attached = elsewhere.start("status", "--watch")
    (elsewhere.folder / "go").touch()
    out, err = attached.communicate(timeout=200)
    assert (attached.returncode, out.splitlines()[-1]) == (0, "3 of 3 patches trained"), err
    see_nothing_left(elsewhere, site)


@pytest.mark.all
def test_a_start_that_was_cut_off_is_found_by_its_name(elsewhere: FakeBatch, site: Site) -> None:
    elsewhere.script(p0=["train 600"])
    assert elsewhere.run_apart("train", "p0", "--detach", timeout_s=200).returncode == 0
    begun(elsewhere)
    [file] = elsewhere.output.glob("workers/jobs/*/submission.json")
    record = json.loads(file.read_text())
    file.write_text(json.dumps(record | {"handles": []}))
    again = elsewhere.run_apart("train", "p0", "--detach", timeout_s=200)
    assert "nothing was started" in again.stderr
    if elsewhere.settings["executor"]["engine"] == "slurm":  # workers of this machine show by their signs alone
        assert json.loads(file.read_text()) == record
    assert elsewhere.run_apart("cancel", timeout_s=200).returncode == 0
    see_nothing_left(elsewhere, site)


@pytest.mark.all
@pytest.mark.contract
def test_a_worker_that_is_killed_costs_one_attempt(elsewhere: FakeBatch, site: Site) -> None:
    parent, job = with_p0_at_work(elsewhere)
    os.kill(worker_pid(job), signal.SIGKILL)
    told = parent.communicate(timeout=200)
    assert parent.returncode == 0, told
    assert [name for name, outcome in ends_of(elsewhere) if outcome == "trained"] == ["p0", "p1", "p2"]
    see_nothing_left(elsewhere, site)


@pytest.mark.all
def test_a_worker_that_is_told_to_stop_is_followed_by_another(elsewhere: FakeBatch, site: Site) -> None:
    parent, job = with_p0_at_work(elsewhere)
    os.kill(worker_pid(job), signal.SIGTERM)
    told = parent.communicate(timeout=200)
    assert parent.returncode == 0, told
    assert ends_of(elsewhere)[:2] == [("p0", "stopped"), ("p0", "trained")]
    see_nothing_left(elsewhere, site)


@pytest.mark.all
def test_a_node_that_is_lost_costs_one_attempt(elsewhere: FakeBatch, site: Site) -> None:
    parent, job = with_p0_at_work(elsewhere)
    site.lose_node_of(job)
    told = parent.communicate(timeout=200)
    assert parent.returncode == 0, told
    assert [name for name, outcome in ends_of(elsewhere) if outcome == "trained"] == ["p0", "p1", "p2"]
    site.mend()
    see_nothing_left(elsewhere, site)


def with_p0_at_work(batch: FakeBatch) -> tuple[subprocess.Popen[str], str]:
    """Start a batch whose first patch does not end at first; return the parent, and the worker that has that patch."""
    batch.script(p0=["train 600", "train"])
    parent = batch.start("train")
    wait_for(lambda: list(batch.output.glob("patches/p0/attempt-01/start.json")))
    [worker] = wait_for(lambda: [one for one in at_work(batch.output) if has_claimed(batch, one.worker, "p0")])
    return parent, worker.job


def has_claimed(batch: FakeBatch, worker: str, patch: str) -> bool:
    claims = sorted(batch.output.glob(f"claims/{patch}/*[0-9]"), key=lambda path: int(path.name))
    return bool(claims) and json.loads(claims[-1].read_text())["worker"] == worker


@pytest.mark.parametrize("num", [pytest.param(40, marks=pytest.mark.all), pytest.param(200, marks=pytest.mark.long)])
def test_tasks_by_the_hundred_are_each_accepted_once(
    tmp_path: Any, site: Site, monkeypatch: pytest.MonkeyPatch, num: int
) -> None:
    monkeypatch.setenv("FAKE_TRAINER_INSTANT", "1")
    batch = make(tmp_path, num)
    batch.change(executor=site.executor)
    ended = batch.run_apart("train", timeout_s=200)
    assert (ended.returncode, f"{num} of {num} patches trained" in ended.stdout) == (0, True), ended.stderr[-2000:]
    assert faults_of(batch, num) == []
    see_nothing_left(batch, site)
