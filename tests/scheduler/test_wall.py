"""The wall around a patch: whatever happens for it outside its own process costs that patch, and no other."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import command_line
import doors
import pytest
from fake_trainer import FakeTrainer
from sampled import each

from splatbatch import isolated, trainers
from splatbatch.config import TaskId
from splatbatch.failures.retry import Failure, why_stop_batch
from splatbatch.isolated import Crashed
from splatbatch.output.ledger import Ledger
from splatbatch.scheduler.loop import Loop
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.tasks.batch import open_batch

if TYPE_CHECKING:
    from fake_batch import FakeBatch

FAULTS = ("exception", "memory", "recursion", "hang")


@pytest.fixture(autouse=True)
def real_readers(request: pytest.FixtureRequest, monkeypatch: Any) -> None:
    """Have processes read where one hangs, and wherever that costs the gate nothing."""
    is_real = any(request.node.get_closest_marker(mark) for mark in ("contract", "all", "long"))
    kind = isolated.CallQueue if is_real else isolated.InProcessCalls
    monkeypatch.setattr(command_line, "READERS", kind)
    monkeypatch.setattr(isolated, "DEFAULT_BACKEND", kind)


def rotating() -> Iterator[Any]:
    for index, one in enumerate(doors.ALL):
        fault = FAULTS[index % len(FAULTS)]
        yield pytest.param(*one, fault, marks=pytest.mark.contract if fault == "hang" else ())


EVERY = [(*one, fault) for one in doors.ALL for fault in FAULTS]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: Any) -> None:
    monkeypatch.setattr("splatbatch.failures.retry.PASSES_WITHIN_S", 0.5)


def through(batch: FakeBatch, patch: pytest.MonkeyPatch, entry: str, door: str, fault: str) -> dict[str, str]:
    batch.make("p0", "p1", "p2", retry={"max_attempts": 1})
    patch.setitem(trainers.TRAINERS, "gsplat", FakeTrainer)
    patch.setattr(isolated, "HANGS_S", 0.6)
    patch.setattr("splatbatch.run.decide.AGAIN_S", 0.6)
    if entry == "decide":
        assert batch.run("train").returncode == 0
    doors.put(patch, door, fault)
    return doors.failures(batch, entry)


@pytest.mark.parametrize(("entry", "door", "fault"), each(6, [*rotating()]))
def test_what_fails_or_hangs_at_a_door_costs_one_patch(
    batch: FakeBatch, monkeypatch: Any, entry: str, door: str, fault: str
) -> None:
    cause = "read_hangs" if fault == "hang" else "internal_fault"
    assert through(batch, monkeypatch, entry, door, fault) == ({} if entry == "beside" else {"p1": cause})


@pytest.mark.long
@pytest.mark.parametrize(("entry", "door", "fault"), EVERY)
def test_each_fault_at_each_door_costs_one_patch(
    batch: FakeBatch, monkeypatch: Any, entry: str, door: str, fault: str
) -> None:
    cause = "read_hangs" if fault == "hang" else "internal_fault"
    assert through(batch, monkeypatch, entry, door, fault) == ({} if entry == "beside" else {"p1": cause})


NIGHTS = (
    ("decide", "splatbatch.tasks.freshness:why_not_the_splat", "exception"),
    ("decide", "splatbatch.tasks.freshness:border_hash", "memory"),
    ("decide", "splatbatch.tasks.input_files:InputFiles.list_moved", "recursion"),
    ("audit", "splatbatch.scene.audit.audit:measure", "recursion"),
    ("audit", "splatbatch.scene.audit.audit:check_geometry", "memory"),
    ("audit", "splatbatch.scene.audit.photographs:check_sizes", "hang"),
    ("prepare", "splatbatch.tasks.task:fingerprint", "hang"),
    ("prepare", "splatbatch.scheduler.launch:write_job", "exception"),
    ("prepare", "fake_trainer:FakeTrainer.command", "recursion"),
    ("collect", "splatbatch.scheduler.judge:judge", "hang"),
    ("collect", "splatbatch.output.results:splat_facts", "memory"),
    ("collect", "splatbatch.output.attempt_folder:AttemptFolder.read_progress", "recursion"),
)


@pytest.mark.parametrize("door", [door for _, door in doors.ALL])
def test_every_door_is_a_function_of_today(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    doors.put(monkeypatch, door, "exception")


@pytest.mark.all
@pytest.mark.parametrize(("entry", "door", "fault"), NIGHTS)
def test_a_night_trains_the_other_patches(
    batch: FakeBatch, monkeypatch: Any, entry: str, door: str, fault: str
) -> None:
    batch.make("p0", "p1", "p2", retry={"max_attempts": 1})
    if entry == "decide":
        assert batch.run("train", "p1").returncode == 0
    monkeypatch.setattr(isolated, "HANGS_S", 2.0)
    monkeypatch.setattr("splatbatch.run.decide.AGAIN_S", 2.0)
    doors.put(monkeypatch, door, fault)
    began = time.monotonic()
    ended = batch.run("train", "--config", str(batch.config))
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False), ended.stderr
    assert {batch.result(name)["patch"] for name in ("p0", "p2")} == {"p0", "p2"} and time.monotonic() - began < 60
    told = [one for one in batch.events("attempt_ended") if one["patch"] == "p1" and one["outcome"] == "failed"]
    assert told[-1]["diagnosis"]["cause"] == ("read_hangs" if fault == "hang" else "internal_fault")
    assert (fault == "hang") or "Traceback" in told[-1]["traceback"]


@pytest.mark.all
@pytest.mark.parametrize("fault", ["exception", "memory", "hang"])
def test_a_night_whose_colours_cannot_be_determined_trains_without(
    batch: FakeBatch, monkeypatch: Any, fault: str
) -> None:
    batch.make("p0", "p1")
    monkeypatch.setattr(isolated, "HANGS_S", 2.0)
    doors.put(monkeypatch, "splatbatch.scene.colors.observations:_shots_of", fault)
    ended = batch.run("train", "--config", str(batch.config))
    assert ended.returncode == 0, ended.stderr
    assert "the colours of the photographs could not be determined, and stay as they are" in ended.stderr
    assert "Traceback" not in ended.stderr and {batch.result(name)["patch"] for name in ("p0", "p1")} == {"p0", "p1"}


class HangsOverP1(isolated.InProcessCalls[Any]):
    """Has no answer over what an attempt at p1 has left."""

    def look(self) -> list[tuple[Any, isolated.Answer]]:
        if getattr(self._call, "func", self._call).__name__.strip("_") != "collect":
            return super().look()
        hanging = [one for one in self._left if (one[0] if isinstance(one, tuple) else one.task).name == "p1"]
        for one in hanging:
            self._left.remove(one)
        return super().look() + [(one, isolated.Hung("splat.ply", isolated.HANGS_S)) for one in hanging]


@pytest.mark.parametrize("fault", ["exception", "hang", "too many files"])
def test_a_fault_while_collecting_never_trains_again(batch: FakeBatch, monkeypatch: Any, fault: str) -> None:
    batch.make("p0", "p1")
    with monkeypatch.context() as patch:
        if fault == "hang":
            patch.setattr(command_line, "READERS", HangsOverP1)
        else:
            doors.put(patch, "splatbatch.output.results:keep", fault)
        assert batch.run("train").returncode == 1
        assert batch.run("train").returncode == 1  # the fault is still there: it is not trained for that
    assert [one["patch"] for one in batch.events("attempt_started")] == ["p0", "p1"]
    assert batch.run("train").returncode == 0
    assert [one["patch"] for one in batch.events("attempt_started")] == ["p0", "p1"]
    assert batch.result("p1")["attempt"] == "attempt-01"


@pytest.mark.all
def test_retry_trains_what_could_not_be_collected(batch: FakeBatch, monkeypatch: Any) -> None:
    batch.make("p0", "p1")
    with monkeypatch.context() as patch:
        doors.put(patch, "splatbatch.output.results:keep", "exception")
        assert batch.run("train").returncode == 1
        assert batch.run("retry", "p1").returncode == 1
    assert [one["patch"] for one in batch.events("attempt_started")] == ["p0", "p1", "p1"]


def test_the_same_fault_on_three_patches_stops_the_batch(batch: FakeBatch, monkeypatch: Any) -> None:
    batch.make(*(f"p{index}" for index in range(6)))
    monkeypatch.setattr("splatbatch.output.results.keep", lambda *_: {}["of nobody's making"])
    ended = batch.run("train")
    assert ended.returncode == 1 and "(internal_fault) on 3 patches" in ended.stderr
    assert len(batch.events("attempt_started")) in (3, 4)


def test_faults_in_different_places_stop_nothing() -> None:
    def failed(place: str) -> tuple[Failure, ...]:
        fault = Crashed("KeyError: 'a'", f'  File "/x/{place}", line 3, in look\n').fault("start")
        return (Failure(fault.diagnosis),)

    alike = {TaskId(f"p{index}"): failed("x.py") for index in range(3)}
    unlike = {TaskId(f"p{index}"): failed(f"x{index}.py") for index in range(3)}
    assert "(internal_fault) on 3 patches" in why_stop_batch(alike) and not why_stop_batch(unlike)


@pytest.mark.contract
def test_a_photograph_that_becomes_a_pipe_after_the_audit_hangs_nobody(batch: FakeBatch) -> None:
    batch.make("p0", "p1", "p2").script(p0=["train 2"])
    night = batch.beside("train").until(lambda: batch.ledger.exists() and batch.events("attempt_started"))
    photograph = batch.folder / "images/img3.png"
    photograph.unlink()
    os.mkfifo(photograph)
    assert night.ended().returncode == 1
    assert batch.run("status").returncode == 0


@pytest.mark.contract
def test_photographs_exchanged_after_the_audit_are_audited_again(batch: FakeBatch) -> None:
    from fake_batch import write_photos

    batch.make("p0", "p1").script(p0=["train 3"])
    night = batch.beside("train").until(lambda: batch.ledger.exists() and batch.events("attempt_started"))
    write_photos(batch.folder / "images", ["img0.png"], size=(16, 16))
    ended = night.ended()
    assert ended.returncode == 1 and "p1: refused by the audit: " in ended.stderr
    assert [one["patch"] for one in batch.events("attempt_started")] == ["p0"]


@pytest.mark.all
@pytest.mark.parametrize("gigabytes", [0.8, pytest.param(5.6, marks=pytest.mark.long)])
def test_a_large_splat_is_collected_while_others_start_and_end(
    batch: FakeBatch, monkeypatch: Any, gigabytes: float, record_property: Any
) -> None:
    monkeypatch.setitem(trainers.TRAINERS, "gsplat", FakeTrainer)
    opened = open_batch(batch.make("p0", "p1", "p2", "p3", "p4").config)
    opened.output.create()
    beats: list[float] = []
    rounds = RunHooks(stop=lambda: "", tick=lambda: beats.append(time.monotonic()))
    executor = doors.AtOnce(hole_bytes=int(gigabytes * 1e9))
    Loop(opened.config, executor, Ledger(opened.output.ledger), opened.tasks, rounds).run()
    assert [one["patch"] for one in batch.events("attempt_ended")][-1] == "p0"
    gap_s = max(b - a for a, b in pairwise(beats))
    record_property("figure", f"{beats[-1] - beats[0]:.1f} s, longest gap of beats {gap_s:.2f} s")
    assert gap_s < 2


@pytest.mark.contract
def test_sigterm_is_obeyed_while_a_reader_hangs(batch: FakeBatch, monkeypatch: Any) -> None:
    batch.make("p0", "p1").script(p0=["train 1"])
    doors.put(monkeypatch, "splatbatch.tasks.task:fingerprint", "hang")
    night = batch.beside("train").until(lambda: batch.ledger.exists() and batch.events("attempt_ended"))
    began = time.monotonic()
    night.send(signal.SIGTERM)
    assert night.ended().returncode == 143 and time.monotonic() - began < 40
