"""The exit record decides; without one the attempt still runs, or is lost."""

from __future__ import annotations

from typing import Any

import pytest

from splatbatch.machine.protocol import GONE, verdict
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
from splatbatch.output.records.attempt import ExitFacts

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


@pytest.mark.parametrize("end", EVERY_EXIT)
def test_an_exit_is_written_and_read_back(end: Exit) -> None:
    assert exit_from_record(exit_to_record(end)) == end


@pytest.mark.parametrize("gone", ["", GONE])
@pytest.mark.parametrize("end", EVERY_EXIT)
def test_the_exit_record_decides_whatever_is_seen(end: Exit, gone: str) -> None:
    record = {**exit_to_record(end), "seconds": 3.2, "host": "a", "pid": 7, "out_of_memory": False}
    assert verdict(ExitFacts.from_record(record), gone) == end


def test_what_runs_is_waited_for() -> None:
    assert verdict(None, "") is None


def test_without_a_word_an_attempt_whose_supervisor_is_gone_is_lost() -> None:
    assert verdict(None, "supervisor ended with 1") == Lost("supervisor ended with 1")


@pytest.mark.parametrize("record", [{}, {"kind": "melted"}, {"kind": "exited"}, {"kind": ["exited"], "code": 0}])
def test_a_foreign_exit_record_counts_as_lost(record: dict[str, Any]) -> None:
    assert isinstance(verdict(ExitFacts.from_record(record), GONE), Lost)
