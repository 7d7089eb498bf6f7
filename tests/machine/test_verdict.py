"""One rule for every engine: the exit record decides, then a heartbeat that moves, then what the engine says."""

from __future__ import annotations

from typing import Any

import pytest

from splatbatch.machine.protocol import Seen
from splatbatch.machine.verdict import verdict
from splatbatch.outcome import (
    Cancelled,
    Exit,
    Exited,
    Killed,
    Lost,
    NotStarted,
    TimedOut,
    exit_from_record,
    exit_to_record,
)

EVERY_EXIT = [
    Exited(0),
    Exited(3),
    Killed(9),
    TimedOut("wall", 60.0),
    TimedOut("stall", 5.0),
    Cancelled("SIGTERM"),
    NotStarted("no such file"),
    Lost("node died"),
]
EVERY_PHASE = ["queued", "running", "ended", "gone", "unknown"]


@pytest.mark.parametrize("end", EVERY_EXIT)
def test_an_exit_is_written_and_read_back(end: Exit) -> None:
    assert exit_from_record(exit_to_record(end)) == end


@pytest.mark.parametrize("phase", EVERY_PHASE)
@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("end", EVERY_EXIT)
def test_the_exit_record_decides_whatever_the_engine_says(end: Exit, phase: Any, moves: bool) -> None:
    record = {**exit_to_record(end), "seconds": 3.2, "host": "a", "pid": 7, "out_of_memory": False}
    assert verdict(record, heartbeat_moves=moves, seen=Seen(phase, "TIMEOUT")) == end


@pytest.mark.parametrize("phase", ["queued", "running", "unknown"])
def test_what_may_still_run_is_waited_for(phase: Any) -> None:
    assert verdict(None, heartbeat_moves=False, seen=Seen(phase)) is None


@pytest.mark.parametrize("phase", ["ended", "gone"])
def test_a_node_that_is_cut_off_but_trains_is_waited_for(phase: Any) -> None:
    assert verdict(None, heartbeat_moves=True, seen=Seen(phase, "NODE_FAIL")) is None


@pytest.mark.parametrize(
    ("seen", "end"),
    [
        (Seen("gone"), Lost("gone")),
        (Seen("ended", "supervisor ended with 1"), Lost("supervisor ended with 1")),
        (Seen("ended", "NODE_FAIL"), Lost("NODE_FAIL")),
        (Seen("ended", "CANCELLED by 1000"), Cancelled("CANCELLED by 1000")),
        (Seen("ended", "TIMEOUT"), TimedOut("wall", 0.0)),
    ],
)
def test_without_any_word_the_engines_reason_counts(seen: Seen, end: Exit) -> None:
    assert verdict(None, heartbeat_moves=False, seen=seen) == end


@pytest.mark.parametrize("record", [{}, {"kind": "melted"}, {"kind": "exited"}, {"kind": ["exited"], "code": 0}])
def test_a_foreign_exit_record_counts_as_lost(record: dict[str, Any]) -> None:
    assert isinstance(verdict(record, heartbeat_moves=False, seen=Seen("ended")), Lost)
