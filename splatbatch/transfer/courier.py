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
    ExpectedError,
    IsolatedProcess,
    WaitHooks,
)
from splatbatch.transfer.schemes import open_store

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
Call = Callable[..., Any]
"""Is made by a courier, of its store; what it returns must be JSON."""
Order = tuple[Call, tuple[Any, ...]]
"""A call, and its arguments beside the store; it travels as a pickle, between us alone."""
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

    def begin(self, call: Call, *arguments: object) -> None:
        """Have a call made, after those that are left."""
        self._left.append((call, arguments))

    def run(self, orders: Iterable[Order]) -> list[Any]:
        """Wait until some calls were made; return what they returned.

        Raises:
            SplatbatchError: the store refuses us.
            StopRequested: the wait was ended.
        """
        self._left.extend(orders)
        try:
            return [answer.result("") for _, answer in isolated.answers(self, self._patience)]
        finally:
            self.end()

    def ask(self, call: Call, *arguments: object) -> Any:
        """Return what one call returns; see `run`."""
        return self.run([(call, arguments)])[0]

    def look(self) -> list[tuple[Order, Answer]]:
        """Return the answer to the first call that is left, if it has come, and go on; never wait."""
        if not self._left:
            return []
        process = self._told_process()
        if found := process.answers():
            self._is_told, self._crashes = False, 0
            return [(self._left.popleft(), found[0])]
        if process.is_closed:
            words, self._crashes = process.why_it_died().words, self._crashes + 1
            self._drop()
            if self._crashes >= MOST_CRASHES:
                self._crashes = 0
                error = SplatbatchError(f"the transfer process crashed: {words}", "Please report this.")
                return [(self._left.popleft(), ExpectedError(error))]
        elif process.idle.seconds() > HANGS_S:
            self._drop()
            self._patience.tell(f"the store does not answer{AGAIN}")
        elif not (note := process.note()).endswith(AGAIN):
            self._answered_at = time.monotonic()
        elif time.monotonic() - self._answered_at > SAYS_S:
            self._answered_at = time.monotonic()
            self._patience.tell(note)
        return []

    def end(self) -> None:
        """Make no further calls; one that is under way is ended with its process."""
        if self._left:
            self.close()

    def close(self) -> None:
        """End the process."""
        self._left.clear()
        self._drop()

    def _told_process(self) -> IsolatedProcess:
        """Return the process, once it was told the first call that is left."""
        if self._process is None:
            there, self._orders = Pipe(duplex=False)
            self._process = IsolatedProcess(self._call, _received(), is_low=False, orders=there.fileno())
            there.close()
        if not self._is_told:
            self._is_told, self._answered_at = True, time.monotonic()
            self._process.idle.moves()
            with contextlib.suppress(OSError):  # it is gone: its answer says so
                self._orders.send(self._left[0])
        return self._process

    def _drop(self) -> None:
        self._is_told = False
        if self._process is not None:
            self._orders.close()
            super().end()


store_at = cache(open_store)
"""Returns the store of a URL, opened once in each courier."""


def _received() -> Iterator[Order]:
    """Yield what a courier is told; its process ends once it is told no more."""
    told = Connection(ORDERS, writable=False)
    while True:
        yield told.recv()


def _obey(url: str, order: Order) -> object:
    call, arguments = order
    return patiently(call, store_at(url), *arguments)


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
        patience.tick_or_stop()
        time.sleep(REST_S)
