"""`cancel`: a batch ended from another shell, wholly or in part, and never the wrong one."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fake_batch import FakeBatch
from process_family import wait_until
from turns import CLOCK

from splatbatch.files import read_json, write_json
from splatbatch.output.exclusive import holder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.run import CancelRequest, WorkerRecord
from splatbatch.scheduler import cancel

if TYPE_CHECKING:
    from command_line import Beside


def start(batch: FakeBatch, *running: str) -> Beside:
    """Start a batch; return when these patches train."""
    places = [batch.output / "patches" / patch / "attempt-01" / "progress.jsonl" for patch in running]
    return batch.beside("train").until(lambda: all(place.exists() for place in places))


def start_again(batch: FakeBatch) -> Beside:
    """Start a batch whose p0 was trained once; return when it trains anew."""
    return batch.beside("train").until((batch.output / "patches/p0/attempt-02/progress.jsonl").exists)


def start_apart(batch: FakeBatch) -> subprocess.Popen[str]:
    """Start a batch in a process of its own; return when p0 trains."""
    parent = batch.start("train")
    wait_until((batch.output / "patches/p0/attempt-01/progress.jsonl").exists)
    return parent


def outcomes(batch: FakeBatch) -> dict[str, str]:
    return {event["patch"]: event["outcome"] for event in batch.events("attempt_ended")}


def requests(batch: FakeBatch) -> list[Any]:
    return OutputFolder(batch.output).cancels()


def test_cancel_ends_the_batch_as_sigterm_does_and_says_what_came_of_it(batch: FakeBatch) -> None:
    parent = start(batch.make("p0", "p1").script(p0=["hang"]), "p0")
    ended = batch.run("cancel")
    assert (ended.returncode, parent.ended().returncode) == (0, 143)
    assert "cancelled. Batch: 0 of 2 patches trained; stopped: p0; waiting: p1" in ended.stdout
    assert outcomes(batch) == {"p0": "stopped"}
    assert [event["patches"] for event in batch.events("cancel_requested")] == [[]]  # also where its signal is first
    assert requests(batch) == []


@pytest.mark.all
def test_an_older_splat_of_other_settings_does_not_count_as_trained(batch: FakeBatch) -> None:
    assert batch.make("p0", "p1").run("train").returncode == 0
    batch.change(training={"max_steps": 30})
    parent = start_again(batch.script(p0=["hang"]))
    ended = batch.run("cancel")
    assert (ended.returncode, parent.ended().returncode) == (0, 143)
    stands = batch.run("status").stdout
    assert "cancelled. Batch: 0 of 2 patches trained; stopped: p0; stale: p1" in ended.stdout
    assert "0 of 2 patches trained; stopped: p0; stale: p1" in stands


@pytest.mark.all
def test_cancel_says_that_nobody_can_tell_what_is_stale_where_the_scene_is_gone(batch: FakeBatch) -> None:
    assert batch.make("p0").run("train").returncode == 0
    batch.change(training={"max_steps": 30})
    parent = start_again(batch.script(p0=["hang"]))
    (batch.folder / "patches").rename(batch.folder / "moved")
    ended = batch.run("cancel")
    assert (ended.returncode, parent.ended().returncode) == (0, 143)
    assert "cannot determine which splats are out of date" in ended.stdout + ended.stderr


def test_where_nothing_runs_there_is_nothing_to_cancel(batch: FakeBatch) -> None:
    batch.make("p0")
    for _ in range(2):
        ended = batch.run("cancel")
        assert (ended.returncode, ended.stderr) == (0, "")
        assert "no batch is running" in ended.stdout
        assert batch.run("train").returncode == 0


@pytest.mark.all
def test_a_batch_on_another_host_is_ended_by_the_file_alone(batch: FakeBatch) -> None:
    parent = start(batch.make("p0").script(p0=["hang deaf"]), "p0")
    output = OutputFolder(batch.output)
    cancel.ask(output, replace(holder(output) or WorkerRecord(), host="elsewhere"), [])
    assert parent.ended().returncode == 143
    assert outcomes(batch) == {"p0": "stopped"}
    assert batch.events("cancel_requested")[0]["patches"] == []
    assert requests(batch) == []


@pytest.mark.all
def test_a_batch_that_was_stopped_by_ctrl_z_is_ended_too(batch: FakeBatch) -> None:
    parent = start_apart(batch.make("p0").script(p0=["hang"]))
    os.kill(parent.pid, signal.SIGSTOP)
    assert batch.run("cancel").returncode == 0
    assert parent.wait(5) == 143


def test_cancelled_patches_are_stopped_or_not_started_and_the_others_go_on(batch: FakeBatch) -> None:
    batch.make("p0", "p1", "p2", executor={"cpu_slots": 1}).script(p0=["hang", "train"])
    parent = start(batch, "p0")
    ended = batch.run("cancel", "p0", "p2")
    assert (ended.returncode, parent.ended().returncode) == (0, 1)
    assert "p0: stopped" in ended.stdout
    assert "p2: stopped: cancelled by" in ended.stdout
    assert outcomes(batch) == {"p0": "stopped", "p1": "trained", "p2": "stopped"}
    assert batch.run("train").returncode == 0


@pytest.mark.all
def test_a_patch_that_stands_by_is_not_started_either(batch: FakeBatch) -> None:
    batch.make("p0", "p1", "p2", constants={"splatbatch.scheduler.standby.ON_CPUS": True}).script(p0=["await go"])
    parent = start(batch, "p0", "p1")
    assert batch.run("cancel", "p1").returncode == 0
    (batch.folder / "go").touch()
    assert parent.ended().returncode == 1
    assert outcomes(batch) == {"p0": "trained", "p1": "stopped", "p2": "trained"}


@pytest.mark.all
def test_a_patch_that_waits_for_its_retry_is_not_tried_again(batch: FakeBatch) -> None:
    batch.make("p0", "p1", executor={"cpu_slots": 2}, constants={"splatbatch.failures.retry.FIRST_WAIT_S": 60})
    parent = start(batch.script(p0=["exit 1 CUDA error: unspecified launch failure"], p1=["await go"]), "p0", "p1")
    parent.until(lambda: batch.events("retry"))
    assert batch.run("cancel", "p0").returncode == 0
    (batch.folder / "go").touch()
    assert parent.ended().returncode == 1
    assert outcomes(batch) == {"p0": "stopped", "p1": "trained"}


@pytest.mark.parametrize("patches", [[], ["p0"]])
def test_a_request_to_an_earlier_process_of_the_same_number_stops_nothing(batch: FakeBatch, patches: list[str]) -> None:
    night = start(batch.make("p0").script(p0=["hang", "train"]), "p0")
    output = OutputFolder(batch.output)
    run = holder(output) or WorkerRecord()
    earlier = replace(run, ticks=run.ticks - 1)
    write_json(output.new_cancel(), CancelRequest(earlier.identity(), tuple(patches)).to_record())
    night.until(lambda: requests(batch) == []).send(signal.SIGTERM)
    assert (night.ended().returncode, batch.events("cancel_requested")) == (143, [])
    write_json(output.new_cancel(), CancelRequest(earlier.identity(), tuple(patches)).to_record())
    assert batch.run("train").returncode == 0
    assert requests(batch) == []


@pytest.mark.all
@pytest.mark.parametrize("patches", [[], ["p0"]])
def test_a_request_that_is_left_over_does_not_stop_the_next_batch(batch: FakeBatch, patches: list[str]) -> None:
    parent = start_apart(batch.make("p0").script(p0=["hang", "train"]))
    output = OutputFolder(batch.output)
    run = holder(output) or WorkerRecord()
    parent.kill()
    parent.communicate()
    write_json(output.new_cancel(), CancelRequest(run.identity(), tuple(patches)).to_record())
    output.new_cancel().write_text("{")
    assert batch.run("train").returncode == 0
    assert requests(batch) == []


def test_a_dead_batch_of_another_host_is_not_waited_for(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatbatch.run.cancel.CANCEL_SILENCE_S", 3.0)
    output = OutputFolder(batch.make("p0").output)
    output.create()
    record = {"worker": "local", "token": "t", "host": "elsewhere", "pid": 7, "boot_id": "x", "ticks": 1, "sequence": 3}
    output.worker("local").parent.mkdir(parents=True)
    write_json(output.worker("local"), record)
    began = CLOCK.now()
    ended = batch.run("cancel")
    assert ended.returncode == 0
    assert "process 7 on elsewhere does not respond" in ended.stderr
    assert CLOCK.now() - began < 25
    assert requests(batch) == []


def test_an_unknown_patch_cannot_be_cancelled(batch: FakeBatch) -> None:
    ended = batch.make("p0").run("cancel", "p7")
    assert ended.returncode == 2
    assert read_json(batch.output / "lock") is None
