"""The end of a batch: all who are told of it share one budget, and what that does not hold is said in a line each."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator

import pytest
from fake_batch import FakeBatch
from process_family import wait_until
from told import listen

from splatbatch.errors import ExecutorError
from splatbatch.machine.limited_program import Hook
from splatbatch.monitor import mlflow_runs
from splatbatch.monitor.sinks import Sinks
from splatbatch.run import context
from splatbatch.run.interruption import Interruption
from splatbatch.scheduler import session

SLEEP = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)  # {os.getpid()}"
HANG = [sys.executable, "-c", SLEEP]
KEEP = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Return where a server takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


PATIENT = {
    "splatbatch.monitor.notify.TIMEOUT_S": 600.0,
    "splatbatch.monitor.mlflow_runs.TIMEOUT_S": 600.0,
}


@pytest.fixture
def hanging(batch: FakeBatch, silent_server: str, monkeypatch: pytest.MonkeyPatch) -> FakeBatch:
    """Return a batch whose command, mail server and MLflow hang for as long as they are let."""
    monkeypatch.setattr(mlflow_runs, "find_spec", lambda _: True)
    monkeypatch.setattr(mlflow_runs, "PROGRAM", tuple(HANG))
    notify = {"command": HANG, "urls": [f"mailto://me:pw@{silent_server}?to=a@b.c&from=a@b.c"]}
    return batch.make("p0", "p1", notify=notify, tracking={"mlflow": "http://127.0.0.1:9"}, constants=PATIENT)


def test_all_that_hang_share_one_budget_and_are_told_in_a_line_each(
    hanging: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("apprise")
    monkeypatch.setattr(context, "BUDGET_S", 0.02)
    told = listen(monkeypatch, lambda _: None)
    times: list[float] = []
    finish = Sinks.finish

    def timed(*arguments: object) -> Iterator[str]:
        times.append(time.monotonic())
        yield from finish(*arguments)  # type: ignore[arg-type]
        times.append(time.monotonic())

    monkeypatch.setattr(Sinks, "finish", timed)
    ended = hanging.run("train")
    assert (ended.returncode, 0.02 <= times[1] - times[0] < 3) == (0, True)
    said = [line.partition("notification failed: ")[2] for line in ended.stderr.splitlines() if "notification" in line]
    assert sorted(line.split(":")[0] for line in said) == ["notify.command", "notify.urls", "tracking.mlflow"], said
    assert (len(told.heard), told.running) == (3, [])


@pytest.mark.all
def test_a_night_whose_mlflow_server_and_command_are_away_ends_within_its_budget(batch: FakeBatch) -> None:
    pytest.importorskip("mlflow")
    batch.make("p0", notify={"command": HANG}, tracking={"mlflow": "http://127.0.0.1:9"}, constants=PATIENT)
    parent = batch.start("train")
    wait_until((batch.output / "report.html").exists)
    began = time.monotonic()
    _, said = parent.communicate(timeout=60)
    assert parent.returncode == 0 and time.monotonic() - began < 30 + 5
    assert said.count("notification failed: notify.command") == 1


@pytest.mark.all
def test_after_sigterm_those_who_are_told_have_what_is_left_of_the_grace(hanging: FakeBatch) -> None:
    hanging.change(limits={"grace_s": 3}, tracking={"mlflow": ""})
    parent = hanging.script(p0=["hang"]).start("train")
    wait_until((hanging.output / "patches/p0/attempt-01/progress.jsonl").exists)
    parent.send_signal(signal.SIGTERM)
    began = time.monotonic()
    _, said = parent.communicate(timeout=60)
    assert parent.returncode == 143 and "notify.command: the message was not delivered in time" in said
    assert time.monotonic() - began < 15


@pytest.mark.all
def test_after_sigterm_those_who_listen_are_told(batch: FakeBatch) -> None:
    told = batch.folder / "told"
    batch.make("p0", notify={"command": [sys.executable, "-c", KEEP, str(told)]}).script(p0=["hang deaf"])
    parent = batch.start("train")
    wait_until((batch.output / "patches/p0/attempt-01/progress.jsonl").exists)
    parent.send_signal(signal.SIGTERM)
    parent.communicate(timeout=60)
    assert '"stopped": "SIGTERM"' in told.read_text()


@pytest.mark.parametrize(
    ("grace_s", "since_s", "left_s"),
    [(10.0, None, 30.0), (10.0, 4.0, 6.0), (10.0, 20.0, 2.0), (100.0, 1.0, 30.0)],
)
def test_the_budget_is_thirty_seconds_or_what_is_left_of_the_grace(
    grace_s: float, since_s: float | None, left_s: float
) -> None:
    interruption = Interruption.__new__(Interruption)
    interruption.signal, interruption._at = 0, 0.0
    if since_s is not None:
        interruption.signal, interruption._at = signal.SIGTERM, time.monotonic() - since_s
    assert interruption.left_s(time.monotonic(), 30.0, grace_s) == pytest.approx(left_s, abs=0.2)


@pytest.mark.all
def test_no_beat_waits_for_those_who_hang(hanging: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "BUDGET_S", 1.0)
    took: list[float] = []
    beat = Sinks.tick

    def timed(sinks: Sinks) -> list[str]:
        began = time.monotonic()
        said = list(beat(sinks))
        took.append(time.monotonic() - began)
        return said

    monkeypatch.setattr(Sinks, "tick", timed)
    hanging.constants |= {"splatbatch.monitor.notify.TIMEOUT_S": 0.2}
    hanging.change(retry={"max_attempts": 1})
    hanging.script(p0=["exit 1 CUDA error: out of memory"])
    assert hanging.run("train").returncode == 1
    assert len(took) > 5 and max(took) < 2


@pytest.mark.contract
def test_a_command_that_was_stopped_holds_nobody_up() -> None:
    hook = Hook(["/bin/sh", "-c", "kill -STOP $$"], b"", 0.2)
    began = time.monotonic()
    while (verdict := hook.verdict()) is None:
        assert time.monotonic() - began < 60
        time.sleep(0.01)
    assert verdict == "took too long, and was ended after 0.2 s"


def test_a_night_that_ends_with_an_error_is_told_of(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ExecutorError("GPU 7: there is none", "Name another.")

    monkeypatch.setattr(session, "run", fail)
    told = listen(monkeypatch)
    ended = batch.make("p0", notify={"command": ["tell"]}).run("train")
    assert (ended.returncode, "GPU 7: there is none" in ended.stderr) == (5, True)
    assert b"ended with an error: GPU 7: there is none" in told.heard[-1]
