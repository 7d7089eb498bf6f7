"""A courier makes call after call in one process, until that hangs, dies or is ended; a job makes them again."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from in_process_courier import InProcessCourier
from test_reader import fails

from splatbatch.errors import CutOffError, StoreError
from splatbatch.isolated import Answer, Crashed, ExpectedError, Hung, Returned, WaitHooks
from splatbatch.transfer import courier
from splatbatch.transfer.courier import Courier, TransferJob


def asked(ours: Courier, how: str) -> Answer:
    ours.begin(fails, how)
    while (found := ours.look()) is None:
        time.sleep(0.01)
    return found


COUNTED: list[str] = []


def counted(how: str) -> list[Any]:
    COUNTED.append(how)
    return [os.getpid(), len(COUNTED)]


@pytest.mark.contract
def test_a_courier_makes_call_after_call_and_keeps_what_they_have_opened() -> None:
    ours = Courier()
    found = []
    for how in "abc":
        ours.begin(counted, how)
        while (one := ours.look()) is None:
            time.sleep(0.01)
        found.append(one.value)
    ours.end()
    assert [number for _, number in found] == [1, 2, 3]
    assert len({pid for pid, _ in found}) == 1 and found[0][0] != os.getpid()


@pytest.mark.contract
@pytest.mark.parametrize("make", [Courier, InProcessCourier])
def test_a_courier_answers_as_any(make: Any) -> None:
    ours = make()
    assert asked(ours, "a") == Returned("A")
    assert isinstance(asked(ours, "scene"), ExpectedError)
    assert isinstance(asked(ours, "recursion"), Crashed)
    assert asked(ours, "b") == Returned("B")
    ours.end()


@pytest.mark.contract
def test_a_courier_says_that_it_has_died_or_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    died, hung = Courier(), Courier()
    found = asked(died, "dies")
    assert isinstance(found, Crashed) and "SIGKILL" in found.words
    assert asked(died, "a") == Crashed("the reader process is gone", "the reader process is gone")
    monkeypatch.setattr(courier, "HANGS_S", 0.6)
    assert isinstance(asked(hung, "hangs"), Hung)
    died.end()
    hung.end()


def test_a_job_makes_again_what_was_cut_off_and_tells_what_lasts_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "Courier", InProcessCourier)
    monkeypatch.setattr(courier, "_FREE", [])
    monkeypatch.setattr(courier, "PAUSES_S", (0.0,))
    calls, found = list[str](), list[tuple[str, Answer]]()

    def call(item: str) -> str:
        calls.append(item)
        if item == "cut off" and calls.count(item) < 3:
            raise CutOffError("the store does not answer")
        if item == "refused":
            raise StoreError("no room")
        return item.upper()

    job = TransferJob(call, ["a", "cut off", "refused", "never"], WaitHooks())
    while not job.is_over:
        found += job.look()
    assert calls == ["a", *["cut off"] * 3, "refused"]
    assert found[:2] == [("a", Returned("A")), ("cut off", Returned("CUT OFF"))]
    [(item, answer)] = found[2:]
    assert (item, str(answer.error)) == ("refused", "no room")
    assert job.look() == job.look() == found[2:]  # else a worker would go on as if all had been sent
