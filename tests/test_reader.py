"""A reader: what hangs, fails or dies there costs one call, and never who made it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from splatbatch import isolated
from splatbatch.errors import SceneError
from splatbatch.files import open_regular
from splatbatch.isolated import (
    CallQueue,
    Crashed,
    ExpectedError,
    Hung,
    InProcessCalls,
    Returned,
    StopRequested,
    WaitHooks,
    answer,
    answers,
)
from splatbatch.processes import kernel_file

KINDS = pytest.mark.parametrize("kind", [CallQueue, InProcessCalls])


def fails(how: str) -> Any:
    match how:
        case "recursion":
            return fails("recursion")
        case "memory":
            return len(bytearray(1 << 45))
        case "scene":
            raise SceneError("p0: no photographs", "Copy them.")
        case "disk":
            raise OSError(errno.ENOSPC, "No space left on device", "/a/b")
        case "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hangs":
            time.sleep(1000)
        case "no json":
            return {how}
    return how.upper()


def data_mib(_: str) -> int:
    """Return how much more memory than it has this process may take, in MiB."""
    held = int(kernel_file("/proc/self/statm").split()[5]) * os.sysconf("SC_PAGE_SIZE")
    return (resource.getrlimit(resource.RLIMIT_DATA)[0] - held) >> 20


@pytest.mark.contract
def test_a_reader_may_take_a_share_of_the_memory_that_is_left_to_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "available_mib", lambda: 4000)
    (_, found), *_ = answers(CallQueue(data_mib, ["a"]))
    assert isinstance(found, Returned) and 2900 < found.value <= 3000
    monkeypatch.setattr(isolated, "available_mib", lambda: sys.maxsize)
    (_, found), *_ = answers(CallQueue(data_mib, ["a"]))
    assert isinstance(found, Returned) and found.value > 1 << 40


@pytest.mark.contract
@KINDS
def test_what_a_call_returns_or_raises_is_its_answer_and_the_next_call_is_made(kind: type[CallQueue[Any]]) -> None:
    found = dict(answers(kind(fails, ["a", "recursion", "memory", "scene", "disk", "no json", "b"])))
    assert (found["a"], found["b"]) == (Returned("A"), Returned("B"))
    assert isinstance(found["recursion"], Crashed) and found["recursion"].words.startswith("RecursionError")
    assert isinstance(found["memory"], Crashed) and "MemoryError" in found["memory"].traceback
    assert isinstance(found["no json"], Crashed) and found["no json"].words.startswith("TypeError")
    assert isinstance(found["disk"], ExpectedError) and isinstance(found["disk"].error, OSError)
    assert (found["disk"].error.errno, found["disk"].error.filename) == (errno.ENOSPC, "/a/b")
    assert isinstance(found["scene"], ExpectedError) and isinstance(found["scene"].error, SceneError)
    assert found["scene"].error.hint == "Copy them."


@pytest.mark.contract
def test_a_reader_that_is_killed_or_hangs_costs_one_item() -> None:
    found = dict(answers(CallQueue(fails, ["a", "dies", "b", "hangs", "c"], hangs_s=0.6)))
    assert [found[name] for name in "abc"] == [Returned("A"), Returned("B"), Returned("C")]
    assert isinstance(found["dies"], Crashed) and "SIGKILL" in found["dies"].words
    assert isinstance(found["hangs"], Hung) and found["hangs"].seconds > 0.6


@pytest.mark.contract
def test_a_reader_says_what_it_reads_and_the_parent_that_it_waits(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(isolated, "SAYS_S", 0.3)
    (tmp_path / "a.jpg").write_bytes(b"a")
    told: list[str] = []

    def read(name: str) -> None:
        with open_regular(tmp_path / name):
            time.sleep(1000)

    found = dict(answers(CallQueue(read, ["a.jpg"], hangs_s=1.5), WaitHooks(tell=told.append)))
    assert isinstance(found["a.jpg"], Hung) and found["a.jpg"].path == str(tmp_path / "a.jpg")
    assert told and told[0].startswith(f"waits for {tmp_path}/a.jpg: no answer for 0 s")


@pytest.mark.contract
def test_whoever_waits_beats_and_is_stopped_at_once() -> None:
    beats: list[float] = []
    began = time.monotonic()
    patience = WaitHooks(lambda: beats.append(time.monotonic()), lambda: "SIGTERM" if len(beats) > 4 else "")
    with pytest.raises(StopRequested, match="SIGTERM"):
        answer(fails, "hangs", patience)
    assert time.monotonic() - began < 30  # it hangs for a minute
    assert max(b - a for a, b in pairwise(beats)) < 5


@pytest.mark.contract
def test_readers_that_hang_are_ended_and_their_number_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(isolated, "MOST_AT_ONCE", 3)
    monkeypatch.setattr(isolated, "_AT_WORK", set())  # a test before this one may have left readers of its own
    begun = [CallQueue(fails, ["hangs"]) for _ in range(5)]
    assert all(not one.look() for one in begun)
    assert sum(one.descriptor is not None for one in begun) == 3
    for one in begun:
        one.end()
    assert answer(fails, "a") == Returned("A")
    time.sleep(0.1)
    assert isolated.num_stuck_readers() == 0


def test_once_many_readers_cannot_be_ended_nothing_more_is_read_that_might_hang(monkeypatch: Any) -> None:
    monkeypatch.setattr(isolated, "_ABANDONED", dict.fromkeys(range(1 << 22, (1 << 22) + 8), 0.0))
    monkeypatch.setattr("splatbatch.isolated.os.waitpid", lambda *_: (0, 0))
    found = dict(answers(CallQueue(fails, ["a", "b"])))
    assert all(isinstance(one, Hung) for one in found.values())


@pytest.mark.contract
def test_a_lock_of_the_parent_is_not_held_by_its_reader(tmp_path: Path) -> None:
    file = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    try:
        assert answer(lambda number: Path(f"/proc/self/fd/{number}").exists(), file) == Returned(False)
    finally:
        os.close(file)
