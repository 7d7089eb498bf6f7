"""The courier: a helper process that talks to a store for us, in plain blocking code, while our own loop goes on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import chain, repeat
from multiprocessing.connection import Connection, Pipe
from typing import Any, TypeVar

from splatbatch import files, isolated
from splatbatch.errors import CutOffError, SplatbatchError
from splatbatch.files import is_out_of_space
from splatbatch.isolated import (
    ORDERS,
    Answer,
    CallQueue,
    Crashed,
    ExpectedError,
    Hung,
    IsolatedProcess,
    StopRequested,
    WaitHooks,
)
from splatbatch.transfer.schemes import open_store
from splatbatch.transfer.store import Store

HANGS_S = 45.0
"""A call that moves nothing for so long hangs: ssh and S3 notice earlier that their server is silent."""
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
"""Between a request that was cut off and the next; the last one again and again."""
MOST_CRASHES = 3
"""So often in a row a call may end its process."""
SAYS_S = 10.0
"""After so long without an answer the user is told."""
REST_S = 0.05
AGAIN = "; trying again"
Call = Callable[[Store, Any], Any]
"""Is made by a courier; what it returns must be JSON."""
Order = tuple[Call, Any]
"""A call, and what it is about; it travels as a pickle, between us alone."""
R = TypeVar("R")


class Courier(CallQueue[Order]):
    """A helper process that makes calls of one store, one after the other; its connection stays open between them.

    A request that was cut off is made again until the store answers. A call that hangs is made again by a new process.
    """

    _orders: Connection

    def __init__(self, url: str, patience: WaitHooks) -> None:
        """Start nothing yet.

        Args:
            url: of the store.
            patience: ticks and may stop us while a call is waited for; it hears that the store does not answer.
        """
        super().__init__(partial(_obey, url), ())
        self.url, self._patience = url, patience
        self._is_told, self._crashes, self._answered_at = False, 0, time.monotonic()

    @property
    def wait(self) -> None:
        """Nothing: `look` itself says that the store does not answer."""
        return

    def begin(self, call: Call, *items: object) -> None:
        """Have a call made for each item, after those that are left."""
        self._left.extend((call, item) for item in items)

    def run(self, call: Call, items: Iterable[object]) -> list[Any]:
        """Wait until a call was made for each item; return what they returned.

        Raises:
            SplatbatchError: the store refuses us.
            StopRequested: the wait was ended.
        """
        self.begin(call, *items)
        try:
            return [answer.result("") for _, answer in isolated.answers(self, self._patience)]
        finally:
            self.end()

    def ask(self, call: Call, item: object = None) -> Any:
        """Return what one call returns; see `run`."""
        return self.run(call, [item])[0]

    def look(self) -> list[tuple[Order, Answer]]:
        """Return what has come, and go on; never wait."""
        found: list[tuple[Order, Answer]] = []
        while self._left and (answer := self._answer()) is not None:
            self._is_told = False
            if isinstance(answer, Hung):
                self._drop()
                self._patience.tell(f"the store does not answer{AGAIN}")
                continue
            if isinstance(answer, Crashed):
                self._drop()
                self._crashes += 1
                if self._crashes < MOST_CRASHES:
                    continue
                words = f"the transfer process crashed: {answer.words}"
                answer = ExpectedError(SplatbatchError(words, "Please report this."))
            self._crashes = 0
            found.append((self._left.popleft(), answer))
        note, now = self._process.note() if self._process else "", time.monotonic()
        if found or not note.endswith(AGAIN):
            self._answered_at = now
        elif now - self._answered_at > SAYS_S:
            self._answered_at = now
            self._patience.tell(note)
        return found

    def end(self) -> None:
        """Make no further calls; one that is under way is ended with its process."""
        if self._left:
            self.close()

    def close(self) -> None:
        """End the process."""
        self._left.clear()
        self._drop()

    def _answer(self) -> Answer | None:
        """Return what has come of the first call that is left, if something has; see that it is made."""
        if self._process is None:
            there, self._orders = Pipe(duplex=False)
            self._process = IsolatedProcess(self._call, _received(), is_low=False, orders=there.fileno())
            there.close()
        if not self._is_told:
            self._process.moves()
            self._is_told = True
            with contextlib.suppress(OSError):  # it is gone: its answer says so
                self._orders.send(self._left[0])
        if found := self._process.answers():
            return found[0]
        if self._process.has_exited():
            return self._process.why_it_died()
        idle_s = self._process.idle_s()
        return Hung(self._process.note(), idle_s) if idle_s > HANGS_S else None

    def _drop(self) -> None:
        self._is_told = False
        if self._process is not None:
            self._orders.close()
            super().end()


@cache
def store_at(url: str) -> Store:
    """Return the store of a URL, opened once in each courier."""
    return open_store(url)


def _received() -> Iterator[Order]:
    """Yield what a courier is told, until it is told no more."""
    with contextlib.suppress(EOFError), Connection(ORDERS, writable=False) as told:
        while True:
            yield told.recv()


def _obey(url: str, order: Order) -> object:
    call, item = order
    return patiently(call, store_at(url), item)


def patiently(request: Callable[..., R], *arguments: object) -> R:
    """Return what a request returns; it is made again while the store is cut off, or this machine's disk is full."""
    pauses = chain(PAUSES_S, repeat(PAUSES_S[-1]))
    while True:
        try:
            found = request(*arguments)
            files.note_reading("")
            return found
        except (CutOffError, OSError) as error:
            if not isinstance(error, CutOffError) and not is_out_of_space(error):
                raise
            files.note_reading(f"{error}{AGAIN}")
        time.sleep(next(pauses))


def pause(seconds: float, patience: WaitHooks) -> None:
    """Wait for so long.

    Raises:
        StopRequested: the wait was ended.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        patience.tick()
        if why := patience.stop():
            raise StopRequested(why)
        time.sleep(REST_S)
