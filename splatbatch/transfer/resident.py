"""A reader that stays, for one call after the other: what these have opened, a connection say, stays open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe
from typing import Any

from splatbatch import isolated
from splatbatch.isolated import ORDERS, Answer, Call, Hung, IsolatedProcess, Item


class ResidentProcess:
    """A reader that stays: it makes one call at a time, as it is told."""

    def __init__(self, hangs_s: float) -> None:
        """Fork it; `hangs_s`: so long without progress a call counts as hanging."""
        self._hangs_s = hangs_s
        there, self._orders = Pipe(duplex=False)
        self._process = IsolatedProcess(_obeyed, _orders(), is_low=False, orders=there.fileno())
        there.close()

    @property
    def descriptor(self) -> int:
        """What can be read once there is an answer."""
        return self._process.pipe

    def begin(self, call: Call[Item], item: Item) -> None:
        """Have a call made, once the one before has its answer; both travel as pickles, between us alone."""
        self._process.moves()
        with contextlib.suppress(OSError):  # it is gone: its answer says so
            self._orders.send((call, item))

    def look(self) -> Answer | None:
        """Return what has come of the call, if something has; after a Fault or a Hang it is of no more use."""
        if found := self._process.answers():
            return found[0]
        if self._process.has_exited():
            return self._process.why_it_died()
        idle_s = self._process.idle_s()
        return Hung(self._process.note(), idle_s) if idle_s > self._hangs_s else None

    def end(self) -> None:
        """End the process; what the kernel holds is abandoned."""
        self._orders.close()
        self._process.end()


class InProcessResident:
    """Makes each call in our own process, at once."""

    descriptor = None
    _answer: Answer | None = None

    def begin(self, call: Call[Item], item: Item) -> None:
        """Make a call."""
        [(_, self._answer)] = isolated.InProcessCalls(call, [item]).look()

    def look(self) -> Answer | None:
        """Return what has come of it, once."""
        found, self._answer = self._answer, None
        return found

    def end(self) -> None:
        """Make no further calls."""


def resident(hangs_s: float) -> ResidentProcess | InProcessResident:
    """Return a reader that stays, of the usual kind."""
    return InProcessResident() if isolated.DEFAULT_BACKEND is isolated.InProcessCalls else ResidentProcess(hangs_s)


def _orders() -> Iterator[tuple[Call[Any], Any]]:
    """Yield what a reader that stays is told, until it is told no more."""
    with contextlib.suppress(EOFError), Connection(ORDERS, writable=False) as told:
        while True:
            yield told.recv()


def _obeyed(order: tuple[Call[Any], Any]) -> Any:
    call, item = order
    return call(item)
