"""A reader that stays: call after call in one process, until that hangs, dies or is ended."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from test_reader import fails

from splatbatch.isolated import Answer, Crashed, ExpectedError, Hung, Returned
from splatbatch.transfer.resident import InProcessResident, ResidentProcess


def asked(resident: ResidentProcess | InProcessResident, how: str) -> Answer:
    resident.begin(fails, how)
    while (found := resident.look()) is None:
        time.sleep(0.01)
    return found


COUNTED: list[str] = []


def counted(how: str) -> list[Any]:
    COUNTED.append(how)
    return [os.getpid(), len(COUNTED)]


@pytest.mark.contract
def test_a_reader_that_stays_makes_call_after_call_and_keeps_what_they_have_opened() -> None:
    resident = ResidentProcess(hangs_s=5)
    found = []
    for how in "abc":
        resident.begin(counted, how)
        while (one := resident.look()) is None:
            time.sleep(0.01)
        found.append(one.value)
    resident.end()
    assert [number for _, number in found] == [1, 2, 3]
    assert len({pid for pid, _ in found}) == 1 and found[0][0] != os.getpid()


@pytest.mark.contract
@pytest.mark.parametrize("make", [lambda: ResidentProcess(hangs_s=5), InProcessResident])
def test_a_reader_that_stays_answers_as_any(make: Any) -> None:
    resident = make()
    assert asked(resident, "a") == Returned("A")
    assert isinstance(asked(resident, "scene"), ExpectedError)
    assert isinstance(asked(resident, "recursion"), Crashed)
    assert asked(resident, "b") == Returned("B")
    resident.end()


@pytest.mark.contract
def test_a_reader_that_stays_says_that_it_has_died_or_hangs() -> None:
    died, hung = ResidentProcess(hangs_s=5), ResidentProcess(hangs_s=0.6)
    found = asked(died, "dies")
    assert isinstance(found, Crashed) and "SIGKILL" in found.words
    assert asked(died, "a") == Crashed("the reader process is gone", "the reader process is gone")
    assert isinstance(asked(hung, "hangs"), Hung)
    died.end()
    hung.end()
