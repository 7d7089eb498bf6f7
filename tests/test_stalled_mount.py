"""A mount that has stalled holds up no command for ever, and costs a night the patches that lie there."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from stalled import stalled

if TYPE_CHECKING:
    from fake_batch import FakeBatch

pytestmark = pytest.mark.contract  # what a mount that does not answer does to who reads
SOON = {"splatbatch.isolated.HANGS_S": 3.0, "splatbatch.isolated.SAYS_S": 1.0}


@pytest.fixture(autouse=True)
def soon(monkeypatch: Any) -> None:
    monkeypatch.setenv("FAKE_TRAINER_CONSTANTS", json.dumps(SOON | {"splatbatch.run.decide.AGAIN_S": 3.0}))


@pytest.mark.all
@pytest.mark.parametrize("command", ["status", "verify-dims", "plan", "report"])
def test_photographs_that_do_not_answer_hang_no_query(batch: FakeBatch, command: str) -> None:
    assert batch.make("p0", "p1").run("train").returncode == 0
    with stalled(batch.folder / "images"):
        ended = batch.run_apart(command, timeout_s=60)
    assert ended.returncode == 3, ended.stderr
    assert "splatbatch: waits for " in ended.stderr and "has not answered for" in ended.stderr


@pytest.mark.all
def test_a_train_over_photographs_that_do_not_answer_ends_and_says_so(batch: FakeBatch) -> None:
    batch.make("p0", "p1")
    with stalled(batch.folder / "images"):
        ended = batch.run_apart("train", timeout_s=100)
    assert (ended.returncode in (1, 3), "Traceback" in ended.stderr) == (True, False), ended.stderr
    assert "does not answer" in ended.stdout + ended.stderr or "no answer for" in ended.stdout + ended.stderr


@pytest.mark.all
def test_a_mount_that_stalls_in_the_night_is_waited_for_and_leaves_what_trains_alone(batch: FakeBatch) -> None:
    batch.make("p0", "p1", retry={"max_attempts": 1}).script(p0=["train 3"])
    process = batch.start("train")
    while not (batch.ledger.exists() and batch.events("attempt_started")):
        time.sleep(0.05)
    with stalled(batch.folder / "images"):
        while "read_hangs" not in (told := process.stderr.readline()):
            assert process.poll() is None
    assert told.startswith("20") and "p1: " in told
    _, told = process.communicate(timeout=100)
    assert (process.returncode, "Traceback" in told) == (0, False), told
    assert (batch.result("p0")["attempt"], batch.events("gave_up")) == ("attempt-01", [])


@pytest.mark.all
def test_sigterm_is_obeyed_while_the_scene_does_not_answer(batch: FakeBatch) -> None:
    batch.make("p0", "p1")
    with stalled(batch.folder / "images"):
        process = batch.start("train")
        while "waits for" not in process.stderr.readline():
            assert process.poll() is None
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 143 and time.monotonic() - began < 30
