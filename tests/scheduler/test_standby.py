"""The process of the next patch stands by while one trains; it counts for nothing until it is told to go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from fake_batch import FakeBatch
from supervised import alive, wait_for

from splatbatch.files import read_json

ALWAYS = {"constants": {"splatbatch.scheduler.standby.ON_CPUS": True}}


def standing_by(batch: FakeBatch, patch: str) -> dict[str, Any] | None:
    """Return the heartbeat of a patch's standby once it waits."""
    folder = batch.output / f"patches/{patch}/attempt-01"
    progress = folder / "progress.jsonl"
    ready = progress.exists() and '"standby"' in progress.read_text() and not (folder / "go.json").exists()
    return read_json(folder / "heartbeat.json") if ready else None


def interrupted(batch: FakeBatch, how: Callable[[subprocess.Popen[str]], None]) -> tuple[int, int]:
    """Stop a batch whose p1 stands by; return its exit code and the pid of the standby."""
    process = batch.script(p0=["hang"]).start("train")
    pid = wait_for(lambda: standing_by(batch, "p1"))["child"]
    how(process)
    process.communicate(timeout=90)
    return process.returncode, pid


def test_the_next_patch_stands_by_and_goes_when_the_slot_is_free(batch: FakeBatch) -> None:
    batch.make("p0", "p1", "p2", **ALWAYS).script(p0=["train 1"])
    night = batch.beside("train").until(lambda: standing_by(batch, "p1"))
    assert not (batch.output / "patches/p2").exists()
    assert night.ended().returncode == 0
    assert [event["patch"] for event in batch.events("attempt_started")] == ["p0", "p1", "p2"]
    assert [batch.result(patch)["attempt"] for patch in ("p0", "p1", "p2")] == ["attempt-01"] * 3
    assert json.loads((batch.output / "patches/p1/attempt-01/go.json").read_text())["slot"] == "cpu0"


def test_time_on_standby_is_no_time_of_the_attempt(batch: FakeBatch) -> None:
    batch.make("p0", "p1", **ALWAYS).script(p0=["train 6"], p1=["train 0.5"])
    assert batch.run("train").returncode == 0
    assert 0.4 < batch.result("p1")["seconds"] < 5  # with its standby it would be 6 at least


def test_a_standby_that_never_becomes_ready_is_replaced_and_no_attempt(batch: FakeBatch) -> None:
    batch.make("p0", "p1", "p2", **ALWAYS).script(p0=["train 4"], p1=["unready train"])
    assert batch.run("train").returncode == 0
    assert len(batch.events("attempt_started")) == len(batch.events("attempt_ended")) == 3
    assert batch.result("p1")["attempt"] == "attempt-01"


@pytest.mark.all
def test_a_killed_standby_is_no_failure(batch: FakeBatch) -> None:
    process = batch.make("p0", "p1", **ALWAYS).script(p0=["train 1.5"]).start("train")
    os.kill(wait_for(lambda: standing_by(batch, "p1"))["child"], signal.SIGKILL)
    assert process.wait(90) == 0
    assert [event["outcome"] for event in batch.events("attempt_ended")] == ["trained", "trained"]


@pytest.mark.parametrize(("sig", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_leaves_no_attempt_of_the_standby(batch: FakeBatch, sig: int, code: int) -> None:
    night = batch.make("p0", "p1", **ALWAYS).script(p0=["hang"]).beside("train")
    night.until(lambda: standing_by(batch, "p1")).send(sig)
    assert night.ended().returncode == code
    assert not (batch.output / "patches/p1/attempt-01").exists()


@pytest.mark.all
@pytest.mark.parametrize(("sig", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_ends_the_standby_and_leaves_no_attempt(batch: FakeBatch, sig: int, code: int) -> None:
    ended, pid = interrupted(batch.make("p0", "p1", **ALWAYS), lambda process: process.send_signal(sig))
    assert ended == code
    assert not alive(pid)
    assert not (batch.output / "patches/p1/attempt-01").exists()


@pytest.mark.all
def test_a_standby_whose_parent_is_killed_ends_and_the_next_run_begins_anew(batch: FakeBatch) -> None:
    _, pid = interrupted(batch.make("p0", "p1", **ALWAYS), lambda process: process.kill())
    wait_for(lambda: not alive(pid))
    batch.script()
    assert batch.run("train").returncode == 0
    assert batch.result("p1")["attempt"] == "attempt-01"
    assert [event["patch"] for event in batch.events("attempt_ended")].count("p1") == 1


def test_status_shows_who_stands_by(batch: FakeBatch) -> None:
    night = batch.make("p0", "p1", **ALWAYS).script(p0=["hang"]).beside("train")
    night.until(lambda: standing_by(batch, "p1"))
    said = batch.run("status").stdout
    assert "waiting (standby)" in said


def test_a_retry_stands_by_too_once_it_is_due(batch: FakeBatch) -> None:
    batch.make("p0", "p1", **ALWAYS).script(p0=["die SIGKILL", "train"], p1=["train 1"])
    assert batch.run("train").returncode == 0
    assert (batch.output / "patches/p0/attempt-02/go.json").exists()
    assert batch.result("p0")["attempt"] == "attempt-02"


def test_standbys_can_be_switched_off(batch: FakeBatch) -> None:
    batch.make("p0", "p1").script(p0=["train 0.5"])
    assert batch.run("train").returncode == 0
    assert not list(batch.output.glob("patches/*/attempt-01/go.json"))
