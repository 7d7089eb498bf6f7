"""A courier makes call after call in one process; what was cut off, hangs or has crashed is made again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from splatbatch.errors import CutOffError, SplatbatchError, StoreError
from splatbatch.isolated import WaitHooks
from splatbatch.transfer import courier
from splatbatch.transfer.courier import Courier
from splatbatch.transfer.store import Store

SAID: list[str] = []


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Courier]:
    monkeypatch.setattr(courier, "PAUSES_S", (0.05,))
    SAID.clear()
    with closing(Courier(str(tmp_path), WaitHooks(tell=SAID.append))) as found:
        yield found


def pid_and_store(store: Store, item: str) -> tuple[int, int, str]:
    return os.getpid(), id(store), item


def refuses(store: Store, item: str) -> str:
    if item == "refused":
        raise StoreError("no room")
    return item.upper()


def often(store: Store, place: str, how: str, num: int) -> int:
    """Do something for the first few times, then return how often it was."""
    with Path(place).open("a") as log:
        log.write("x")
    if (number := Path(place).stat().st_size) <= num:
        if how == "cut off":
            raise CutOffError("the store /reef is away")
        if how == "hangs":
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.contract
def test_a_courier_makes_call_after_call_by_one_store_in_one_process(ours: Courier) -> None:
    found = [*ours.run((pid_and_store, (item,)) for item in "ab"), ours.ask(pid_and_store, "c")]
    assert [item for _, _, item in found] == ["a", "b", "c"]
    assert len({(pid, store) for pid, store, _ in found}) == 1 and found[0][0] != os.getpid()


@pytest.mark.contract
def test_what_a_store_refuses_ends_the_wait_and_the_courier_goes_on(ours: Courier) -> None:
    with pytest.raises(StoreError, match="no room"):
        ours.run((refuses, (item,)) for item in ("a", "refused", "never"))
    assert (ours.is_over, ours.ask(refuses, "b")) == (True, "B")


@pytest.mark.contract
@pytest.mark.parametrize(("how", "said"), [("cut off", "away; trying again"), ("hangs", "not answer"), ("dies", "")])
def test_a_call_is_made_again_until_the_store_answers(
    ours: Courier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, said: str
) -> None:
    monkeypatch.setattr(courier, "HANGS_S", 0.6)
    monkeypatch.setattr(courier, "SAYS_S", 0.0)
    assert ours.ask(often, str(tmp_path / "log"), how, 2) == 3
    assert said in "".join(SAID)


@pytest.mark.contract
def test_a_call_that_crashes_its_process_each_time_is_given_up(ours: Courier, tmp_path: Path) -> None:
    with pytest.raises(SplatbatchError, match="SIGKILL"):
        ours.ask(often, str(tmp_path / "log"), "dies", 100)
    assert (tmp_path / "log").stat().st_size == courier.MOST_CRASHES


def test_an_error_that_no_wait_mends_is_not_waited_for() -> None:
    def call(_: Any) -> None:
        raise PermissionError(13, "no")

    with pytest.raises(PermissionError):
        courier.patiently(call, None)
