"""One run at a time per output folder, on one host and between hosts, and never a lock that outlives its holder."""

from __future__ import annotations

import errno
import fcntl
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from turns import CLOCK, Program

from splatbatch.errors import OutputError
from splatbatch.output import generations, lock
from splatbatch.output.lock import OutputLock, holder
from splatbatch.output.records.run import Holder
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
from splatbatch.output.lock import OutputLock
from splatbatch.errors import OutputError
lock, begin = Path(sys.argv[1]), float(sys.argv[2])
time.sleep(max(0.0, begin - time.time() - 0.02))
while time.time() < begin:
    pass
try:
    with OutputLock(lock):
        print("held", flush=True)
        sys.stdin.readline()
except OutputError:
    print("refused", flush=True)
"""
HOLD = """
import sys, time
from pathlib import Path
from splatbatch.output.lock import OutputLock
with OutputLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""
DYING = """
import fcntl, sys, time
with open(sys.argv[1], "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(1)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    command, pipe = [sys.executable, "-c", code, *map(str, arguments)], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


def foreign(path: Path, **facts: Any) -> dict[str, Any]:
    record = {"host": "elsewhere", "pid": 7, "boot_id": "x", "ticks": 1, "sequence": 3, "since": "yesterday", **facts}
    path.write_text(json.dumps(record))
    return record


def beats_after(seconds: float, path: Path, **facts: Any) -> None:
    """Have the other host beat after a while."""

    def beat() -> None:
        time.sleep(seconds)
        foreign(path, **facts)

    CLOCK.programs.append(Program(beat))


def test_a_lock_is_held_inside_and_free_afterwards(path: Path) -> None:
    with OutputLock(path):
        assert (holder(path) or Holder()).host == socket.gethostname()
        with pytest.raises(OutputError, match=r"process \d+ on .* is training into this folder"), OutputLock(path):
            pass
    assert holder(path) is None
    with OutputLock(path):
        pass


@pytest.mark.contract
def test_the_lock_of_a_killed_process_is_free(path: Path) -> None:
    process = python(HOLD, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    assert (holder(path) or Holder()).pid == process.pid
    process.kill()
    process.wait()
    assert holder(path) is None
    with OutputLock(path):
        assert (holder(path) or Holder()).pid != process.pid


@pytest.mark.usefixtures("clock")
def test_the_lock_of_a_silent_foreign_host_is_taken_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "SILENCE_S", 0.6)
    before = foreign(path)
    assert holder(path) == Holder.from_record(before)
    with OutputLock(path):
        assert (holder(path) or Holder()).host == socket.gethostname()


@pytest.mark.usefixtures("clock")
def test_the_lock_of_a_foreign_host_that_beats_is_respected(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "SILENCE_S", 5.0)
    foreign(path)
    beats_after(0.2, path, **{"sequence": 4})
    with pytest.raises(OutputError, match="process 7 on elsewhere since yesterday"), OutputLock(path):
        pass
    assert (holder(path) or Holder()).sequence == 4


@pytest.mark.parametrize("junk", [b"", b"{", b"\0\0", b"[1]", b'{"pid": "x"}', b'{"host": null}'])
def test_junk_in_the_lock_file_is_nobody(path: Path, junk: bytes) -> None:
    path.write_bytes(junk)
    with OutputLock(path):
        assert (holder(path) or Holder()).sequence == 1


def test_the_record_of_this_host_before_its_last_boot_is_nobody(path: Path) -> None:
    foreign(path, host=socket.gethostname(), boot_id="before")
    assert holder(path) is None
    foreign(path, host=socket.gethostname(), boot_id=boot_id(), pid=1 << 30)
    assert holder(path) is None


def test_the_lock_beats_now_and_then_and_is_never_seen_torn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "BEAT_S", 0.0)
    with OutputLock(path) as held:
        size = path.stat().st_size
        for _ in range(200):
            held.heartbeat()
            assert path.stat().st_size == size
        assert (holder(path) or Holder()).sequence == 201
        monkeypatch.setattr(lock, "BEAT_S", 60.0)
        held.heartbeat()
        held.heartbeat()
        assert (holder(path) or Holder()).sequence == 202


@pytest.mark.parametrize("reason", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_the_file_system_has_no_locks_the_record_decides(
    path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(reason, "no locks here")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with OutputLock(path), pytest.raises(OutputError, match="is training into this folder"), OutputLock(path):
        pass
    with OutputLock(path):
        pass


@pytest.fixture
def without_flock(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOSYS, "no locks here")

    monkeypatch.setattr(fcntl, "flock", no_locks)


def race(path: Path, number: int) -> list[str]:
    """Let processes lock at one instant, without flock; return what each says."""
    begin = time.time() + 1.5
    racers = [python(NO_FLOCK + RACE, path, begin) for _ in range(number)]
    said = [racer.stdout.readline().strip() for racer in racers if racer.stdout]
    for racer in racers:
        racer.communicate("go\n")
    return sorted(said)


@pytest.mark.contract
@pytest.mark.all(but="a free generation")
@pytest.mark.parametrize("before", ["nothing", "a killed holder", "a free generation"])
def test_of_many_without_flock_one_holds_the_lock(path: Path, before: str) -> None:
    if before == "a killed holder":
        holder_ = python(NO_FLOCK + HOLD, path)
        assert holder_.stdout is not None
        assert holder_.stdout.readline() == "held\n"
        holder_.kill()
        holder_.wait()
    if before == "a free generation":
        assert race(path, 1) == ["held"]
    assert race(path, 6) == ["held", *["refused"] * 5]


def test_a_living_holder_without_flock_is_respected_whatever_the_lock_file_says(
    path: Path, without_flock: None
) -> None:
    with OutputLock(path):
        path.write_bytes(b"")
        with pytest.raises(OutputError, match=r"process \d+ on"), OutputLock(path):
            pass


def test_who_slept_while_others_came_and_went_does_not_hold_the_lock(
    path: Path, without_flock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, slept = generations._made, []

    def slow(mine: Path, record: dict[str, Any]) -> bool:
        if not slept:
            slept.append(mine)
            for _ in range(4):
                with OutputLock(path):
                    pass
            owner.__enter__()
        return real(mine, record)

    owner = OutputLock(path)
    monkeypatch.setattr(generations, "_made", slow)
    with pytest.raises(OutputError), OutputLock(path):
        pass
    owner.__exit__(None, None, None)
    with OutputLock(path):
        assert [one.name for one in sorted(path.parent.glob("lock.*"))] == ["lock.5", "lock.6"]


def test_where_there_are_no_links_either_a_lock_is_held_by_one(
    path: Path, without_flock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(generations.os, "link", no_links)
    with OutputLock(path), pytest.raises(OutputError, match=r"process \d+ on"), OutputLock(path):
        pass
    with OutputLock(path):
        pass


@pytest.mark.usefixtures("clock")
def test_a_generation_whose_maker_was_killed_before_it_wrote_is_taken_over(
    path: Path, without_flock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generations, "UNWRITTEN_S", 0.2)
    path.with_name("lock.1").touch()
    with OutputLock(path):
        assert (holder(path.with_name("lock.2")) or Holder()).sequence == 1


@pytest.mark.usefixtures("clock")
def test_a_foreign_host_that_beats_is_respected_without_flock_too(
    path: Path, without_flock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "SILENCE_S", 5.0)
    generation = path.with_name("lock.3")
    foreign(generation)
    beats_after(0.2, generation, sequence=4)
    with pytest.raises(OutputError, match="process 7 on elsewhere since yesterday"), OutputLock(path):
        pass


def test_a_lock_in_a_folder_that_is_not_there_is_said(path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be opened"), OutputLock(path / "below"):
        pass


@pytest.mark.contract
def test_a_lock_that_outlives_its_killed_holder_for_a_moment_is_waited_for(path: Path) -> None:
    """The holder's child between fork and exec has its descriptors still."""
    process = python(DYING, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with OutputLock(path):
        assert process.wait() == 0


def test_a_beat_that_does_not_fit_on_the_disk_ends_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(lock, "BEAT_S", 0.0)
    with OutputLock(path) as held:
        monkeypatch.setattr(lock.os, "pwrite", full)
        held.heartbeat()
        with pytest.raises(OutputError, match=r"process \d+ on"), OutputLock(path):
            pass
