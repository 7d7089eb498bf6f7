"""One run at a time per output folder: on one host, between hosts, with and without locks and links, never two."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from turns import CLOCK, Program

from splatbatch.errors import BusyError, OutputError
from splatbatch.output import exclusive, generations, workers
from splatbatch.output.claims import EXCLUSIVE, Claims
from splatbatch.output.exclusive import hold, holder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.attempt import Claim
from splatbatch.output.records.run import WorkerRecord
from splatbatch.output.workers import LOCAL, WorkerFile
from splatbatch.processes import boot_id

NO_FLOCK = """
import errno, fcntl
def no_locks(*_):
    raise OSError(errno.ENOSYS, "no locks here")
fcntl.flock = no_locks
"""
RACE = """
import sys, time
from pathlib import Path
from splatbatch.output.exclusive import hold
from splatbatch.output.layout import OutputFolder
from splatbatch.errors import BusyError
output, begin = OutputFolder(Path(sys.argv[1])), float(sys.argv[2])
time.sleep(max(0.0, begin - time.time() - 0.02))
while time.time() < begin:
    pass
try:
    with hold(output, "", print):
        print("held", flush=True)
        sys.stdin.readline()
except BusyError:
    print("refused", flush=True)
"""
HOLD = """
import sys, time
from pathlib import Path
from splatbatch.output.exclusive import hold
from splatbatch.output.layout import OutputFolder
with hold(OutputFolder(Path(sys.argv[1])), "", print):
    print("held", flush=True)
    time.sleep(600)
"""
ELSEWHERE = {"host": "elsewhere", "pid": 7, "boot_id": "x", "ticks": 1, "sequence": 3, "since": "yesterday"}
NAMED = "process 7 on elsewhere since yesterday"


@pytest.fixture
def output(tmp_path: Path) -> OutputFolder:
    folder = OutputFolder(tmp_path / "output")
    folder.create()
    return folder


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    command, pipe = [sys.executable, "-c", code, *map(str, arguments)], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


@contextmanager
def holding(output: OutputFolder, code: str = HOLD) -> Iterator[subprocess.Popen[str]]:
    """Have another process hold the folder."""
    process = python(code, output.path)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def held(output: OutputFolder) -> Any:
    return hold(output, "", print)


def claimed_by(output: OutputFolder, **facts: Any) -> WorkerFile:
    """Have a `train` of another host, or of another time, hold the folder."""
    run = WorkerFile(output, LOCAL)
    run.record = replace(run.record, **{**ELSEWHERE, **facts})
    run.__enter__()
    assert isinstance(Claims(output, run, lambda _: False).take(EXCLUSIVE), Claim)
    run.appear()
    return run


def beats_after(seconds: float, run: WorkerFile) -> None:
    """Have the other host beat after a while."""

    def beat() -> None:
        time.sleep(seconds)
        run._write()

    CLOCK.programs.append(Program(beat))


def generation(output: OutputFolder) -> int:
    return max(generations.numbers_in(output.claims / EXCLUSIVE))


def test_a_folder_is_held_inside_and_free_afterwards(output: OutputFolder) -> None:
    with held(output):
        assert (holder(output) or WorkerRecord()).pid == os.getpid()
        with pytest.raises(BusyError, match=r"process \d+ on .* is training into this folder"), held(output):
            pass
        assert (holder(output) or WorkerRecord()).worker == LOCAL
    assert holder(output) is None
    with held(output):
        assert generation(output) == 2
    assert not list(output.worker(LOCAL).parent.glob(".*"))


@pytest.mark.contract
@pytest.mark.parametrize("ends", ["alive", "dead", "frozen"])
def test_of_this_host_the_process_decides(output: OutputFolder, ends: str) -> None:
    with holding(output) as process:
        assert (holder(output) or WorkerRecord()).pid == process.pid
        if ends == "frozen":  # it may thaw
            process.send_signal(signal.SIGSTOP)
        if ends == "dead":
            process.kill()
            process.wait()
            began = time.monotonic()
            assert holder(output) is None
            with held(output):
                assert time.monotonic() - began < 1
        else:
            with pytest.raises(BusyError, match=f"process {process.pid} on"), held(output):
                pass


def test_a_run_before_the_last_boot_of_this_host_is_gone_at_once(output: OutputFolder) -> None:
    claimed_by(output, host=socket.gethostname(), boot_id="before")
    assert holder(output) is None
    with held(output):
        assert (holder(output) or WorkerRecord()).boot_id == boot_id()


@pytest.mark.usefixtures("clock")
def test_a_run_of_another_host_that_moves_is_respected(output: OutputFolder) -> None:
    run = claimed_by(output)
    beats_after(6, run)
    began = CLOCK.now()
    with pytest.raises(BusyError, match=NAMED), held(output):
        pass
    assert CLOCK.now() - began < 10
    assert (holder(output) or WorkerRecord()).sequence == 4


@pytest.mark.usefixtures("clock")
def test_a_run_of_another_host_that_is_silent_is_taken_over_within_three_minutes(
    output: OutputFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    run = claimed_by(output)
    assert holder(output) == run.record
    began = CLOCK.now()
    with held(output):
        assert workers.SILENCE_S <= CLOCK.now() - began < workers.SILENCE_S + 5
        assert (holder(output) or WorkerRecord()).host == socket.gethostname()
        run._write()  # it thaws: its name is another's by now
        assert (holder(output) or WorkerRecord()).host == socket.gethostname()
        assert (WorkerRecord.read(output.worker(LOCAL)) or WorkerRecord()).host == socket.gethostname()
    assert f"to see whether {NAMED} is still training" in capsys.readouterr().out


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("moves", [True, False])
def test_a_clock_that_is_set_back_changes_nothing(
    output: OutputFolder, monkeypatch: pytest.MonkeyPatch, moves: bool
) -> None:
    run, day_before = claimed_by(output), time.time() - 86400
    monkeypatch.setattr(time, "time", lambda: day_before)
    if moves:
        beats_after(6, run)
        with pytest.raises(BusyError, match=NAMED), held(output):
            pass
    else:
        with held(output):
            assert generation(output) == 2


LOCK = {
    "host": socket.gethostname(),
    "pid": os.getpid(),
    "boot_id": boot_id(),
    "ticks": None,
    "sequence": 1,
    "since": "today",
}


@pytest.mark.parametrize("shows", ["lock", "name"])
def test_a_train_of_the_version_before_is_respected_until_it_ends(output: OutputFolder, shows: str) -> None:
    """It knows no exclusive claim: it holds the file lock, and then is the worker `local`."""
    with WorkerFile(output) as other:
        record = {**other.record.to_record(), "worker": LOCAL}
        if shows == "lock":
            record = {key: record[key] for key in ("host", "pid", "boot_id", "ticks", "sequence", "since")}
        place = output.lock if shows == "lock" else output.worker(LOCAL)
        place.write_text(json.dumps(record))
        assert (holder(output) or WorkerRecord()).pid == os.getpid()
        with pytest.raises(BusyError, match=f"process {os.getpid()} on"), held(output):
            pass
    place.write_text(json.dumps({**record, "has_ended": True, "pid": 1 << 30}))
    assert holder(output) is None
    with held(output):
        assert generation(output) == 1
        assert output.lock.samefile(output.worker(LOCAL))


def test_a_train_of_the_version_before_is_kept_out(output: OutputFolder) -> None:
    """It locks the file `lock`, and believes who is named in it."""
    with held(output) as mine:
        record = json.loads(output.lock.read_text())
        assert record.keys() >= {"host", "pid", "boot_id", "ticks", "sequence", "since"}
        assert record["pid"] == os.getpid()
        descriptor = os.open(output.lock, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine._write()
        assert json.loads(output.lock.read_text())["sequence"] == record["sequence"] + 1
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


@pytest.mark.parametrize("junk", [b"", b"{", b"\0\0", b"[1]", b'{"pid": "x"}', b'{"host": null}'])
def test_junk_in_the_lock_of_the_version_before_holds_nothing(output: OutputFolder, junk: bytes) -> None:
    output.lock.write_bytes(junk)
    with held(output):
        assert (holder(output) or WorkerRecord()).pid == os.getpid()


@pytest.fixture
def without_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOSYS, "no locks here")

    monkeypatch.setattr(fcntl, "flock", no_locks)


@pytest.mark.parametrize("has_links", [True, False])
def test_without_locks_and_without_links_a_folder_is_held_by_one(
    output: OutputFolder, without_flock: None, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    if not has_links:
        monkeypatch.setattr(generations.os, "link", no_links)
    for number in (1, 2):
        with held(output):
            with pytest.raises(BusyError, match=r"process \d+ on"), held(output):
                pass
            assert generation(output) == number


def test_a_claim_that_was_torn_when_its_maker_was_killed_is_taken_over(output: OutputFolder) -> None:
    output.claim(EXCLUSIVE, 1).parent.mkdir(parents=True)
    output.claim(EXCLUSIVE, 1).touch()
    with held(output):
        assert generation(output) == 2


def test_who_slept_while_others_came_and_went_does_not_hold_the_folder(
    output: OutputFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, slept = generations.create_once, []

    def slow(source: Path, target: Path) -> bool:
        if not slept:
            slept.append(target)
            for _ in range(4):
                with held(output):
                    pass
            owner.__enter__()
        return real(source, target)

    owner = held(output)
    monkeypatch.setattr("splatbatch.output.claims.create_once", slow)
    with pytest.raises(BusyError), held(output):
        pass
    owner.__exit__(None, None, None)
    assert holder(output) is None


def race(output: OutputFolder, number: int, before: str = "") -> list[str]:
    """Let processes take the folder at one instant; return what each says."""
    begin = time.time() + 1.5
    racers = [python(before + RACE, output.path, begin) for _ in range(number)]
    said = [racer.stdout.readline().strip() for racer in racers if racer.stdout]
    for racer in racers:
        racer.communicate("go\n")
    return sorted(said)


@pytest.mark.contract
@pytest.mark.all(but="a killed run")
@pytest.mark.parametrize("locks", [NO_FLOCK, ""], ids=["no locks", "locks"])
@pytest.mark.parametrize("before", ["nothing", "a killed run", "a run that has ended"])
def test_of_many_one_holds_the_folder(output: OutputFolder, before: str, locks: str) -> None:
    if before == "a killed run":
        with holding(output, locks + HOLD):
            pass
    if before == "a run that has ended":
        assert race(output, 1, locks) == ["held"]
    assert race(output, 6, locks) == ["held", *["refused"] * 5]


def test_a_folder_that_is_not_there_is_said(output: OutputFolder) -> None:
    with pytest.raises(OutputError, match="cannot be written"), held(OutputFolder(output.path / "below")):
        pass


def test_a_beat_that_does_not_fit_on_the_disk_ends_nothing(
    output: OutputFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(workers, "BEAT_S", 0.0)
    with held(output) as mine:
        monkeypatch.setattr(workers.os, "pwrite", full)
        mine.heartbeat()
        with pytest.raises(BusyError, match=r"process \d+ on"), held(output):
            pass


def test_the_file_beats_now_and_then_and_is_never_seen_torn(
    output: OutputFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "BEAT_S", 0.0)
    with held(output) as mine:
        size = output.worker(LOCAL).stat().st_size
        before = (holder(output) or WorkerRecord()).sequence
        for _ in range(200):
            mine.heartbeat()
            assert output.worker(LOCAL).stat().st_size == size
        assert (holder(output) or WorkerRecord()).sequence == before + 200
        monkeypatch.setattr(workers, "BEAT_S", 60.0)
        mine.heartbeat()
        mine.heartbeat()
        assert (holder(output) or WorkerRecord()).sequence == before + 201
        assert exclusive.LOOK_S < 1
