"""Couriers: helper processes that talk to stores for us, in plain blocking code, while our own loop goes on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from functools import cache
from multiprocessing.connection import Connection, Pipe
from typing import Any

from splatbatch import isolated
from splatbatch.errors import CutOffError, SplatbatchError
from splatbatch.files import is_out_of_space
from splatbatch.isolated import (
    ORDERS,
    Answer,
    Call,
    CallQueue,
    Crashed,
    ExpectedError,
    Hung,
    IsolatedProcess,
    Item,
    Returned,
    StopRequested,
    WaitHooks,
)
from splatbatch.transfer.schemes import open_store
from splatbatch.transfer.store import Store

HANGS_S = 45.0
"""So long a transfer may move nothing: longer than ssh and S3 take to notice that nobody answers."""
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
"""Between a call that failed in passing and the next; the last one again and again."""
MOST_FAULTS = 3
"""Calls in a row that end in what nobody expected: a full disk of ours, say."""
SAYS_S = 10.0
REST_S = 0.05
MOST_FREE = 5
"""Couriers that wait with their connections for calls to come: as many as are busy at one time. A worker beats, asks,
fetches ahead, sends a splat and the pictures of the one before."""


@cache
def store_at(url: str) -> Store:
    """Return the store of a URL, opened once in each courier."""
    return open_store(url)


class Courier:
    """A helper process that makes one call at a time, as it is told; what these have opened stays open."""

    def __init__(self) -> None:
        there, self._orders = Pipe(duplex=False)
        self._process = IsolatedProcess(_obeyed, _orders(), is_low=False, orders=there.fileno())
        there.close()

    @property
    def descriptor(self) -> int | None:
        """What can be read once there is an answer."""
        return self._process.pipe

    def begin(self, call: Call[Item], item: Item) -> None:
        """Have a call made, once the one before has its answer; both travel as pickles, between us alone."""
        self._process.moves()
        with contextlib.suppress(OSError):  # it is gone: its answer says so
            self._orders.send((call, item))

    def look(self) -> Answer | None:
        """Return what has come of the call, if something has; one that crashed or hung is of no more use."""
        if found := self._process.answers():
            return found[0]
        if self._process.has_exited():
            return self._process.why_it_died()
        idle_s = self._process.idle_s()
        return Hung(self._process.note(), idle_s) if idle_s > HANGS_S else None

    def end(self) -> None:
        """End the process; what the kernel holds is abandoned."""
        self._orders.close()
        self._process.end()


_FREE: list[Courier] = []


def _orders() -> Iterator[tuple[Call[Any], Any]]:
    """Yield what a courier is told, until it is told no more."""
    with contextlib.suppress(EOFError), Connection(ORDERS, writable=False) as told:
        while True:
            yield told.recv()


def _obeyed(order: tuple[Call[Any], Any]) -> Any:
    call, item = order
    return call(item)


class TransferJob(CallQueue[Item]):
    """Calls that a courier makes one after the other; one that the store cut off is made again, after a while."""

    def __init__(self, call: Call[Item], items: Iterable[Item], patience: WaitHooks) -> None:
        """Begin nothing yet.

        Args:
            call: is made by a courier; what it returns must be JSON.
            items: of the calls.
            patience: is told that the store does not answer.
        """
        super().__init__(call, items)
        self._tell = patience.tell
        self._courier: Courier | None = None
        self._failures, self._not_before, self._said_at = 0, 0.0, time.monotonic()
        self._faults: list[tuple[Item, Answer]] = []
        """What no call mends; told again and again, for those that are left are not made."""

    @property
    def descriptor(self) -> int | None:
        """What can be read once there is an answer; None: no process is at work."""
        return self._courier.descriptor if self._courier else None

    def look(self) -> list[tuple[Item, Answer]]:
        """Return what has come, and go on; never wait."""
        found = [*self._faults]
        if self._left and self._courier is None and time.monotonic() >= self._not_before:
            self._courier = _FREE.pop() if _FREE else Courier()
            self._courier.begin(self._call, self._left[0])
        while self._courier is not None and (answer := self._courier.look()) is not None:
            if isinstance(answer, Returned):
                found.append((self._left.popleft(), answer))
                self._failures = 0
                self._go_on(self._courier)
                continue
            self._drop()  # whatever it has opened is not trusted any more
            if error := self._lasting(answer):
                self._faults = [(self._left[0], ExpectedError(error))]
                self._left.clear()
                found += self._faults
        return found

    def _go_on(self, ours: Courier) -> None:
        """Have the next call made; after the last one the courier, with its connection, is left to the next job."""
        if self._left:
            ours.begin(self._call, self._left[0])
        elif len(_FREE) < MOST_FREE:
            _FREE.append(ours)
            self._courier = None
        else:
            self._drop()

    def _lasting(self, answer: Answer) -> SplatbatchError | None:
        """Return what no further call mends; else one is made after a while, and that is said after a long one."""
        match answer:
            case ExpectedError(error=CutOffError()) | Hung():
                pass
            case ExpectedError(error=SplatbatchError() as error):
                return error
            case ExpectedError(error=error) if is_out_of_space(error):  # of this machine's disk
                pass
            case _ if self._failures + 1 >= MOST_FAULTS:
                return SplatbatchError(_words(answer), "Is there room on this disk? Else please report it.")
        self._not_before = time.monotonic() + PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
        self._failures += 1
        if self._failures > 1 and time.monotonic() - self._said_at > SAYS_S:
            self._said_at = time.monotonic()
            self._tell(f"{_words(answer)}; it is tried again")
        return None

    def end(self) -> None:
        """Make no further calls, and end the one that is under way."""
        self._left.clear()
        self._drop()

    def _drop(self) -> None:
        if self._courier is not None:
            self._courier.end()
            self._courier = None


def _words(answer: Answer) -> str:
    match answer:
        case ExpectedError(error=error):
            return str(error)
        case Crashed(words=words):
            return f"traffic with the store has failed: {words}"
    return "the store does not answer"


def run(call: Call[Item], items: Iterable[Item], patience: WaitHooks) -> list[tuple[Item, Any]]:
    """Wait until calls are made; return what each has returned.

    Raises:
        SplatbatchError: the store refuses us.
        StopRequested: somebody wants us to stop.
    """
    job = TransferJob(call, items, patience)
    return [(item, answer.result("")) for item, answer in isolated.answers(job, patience)]


def ask(call: Call[Item], item: Item, patience: WaitHooks) -> Any:
    """Return what one call returns; see `run`."""
    return run(call, [item], patience)[0][1]


def pause(seconds: float, patience: WaitHooks) -> None:
    """Wait for so long.

    Raises:
        StopRequested: somebody wants us to stop.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        patience.tick()
        if why := patience.stop():
            raise StopRequested(why)
        time.sleep(REST_S)
