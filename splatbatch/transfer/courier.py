"""The courier: a helper process that makes the calls to a store, which may block, while the main process goes on."""

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
"""Seconds without any progress after which a call counts as hung; ssh and S3 notice a silent server earlier."""
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
"""Pauses before a cut-off request is made again, in seconds; the last one repeats."""
MOST_CRASHES = 3
"""Number of crashes of its process in a row after which a call is answered with an error."""
SAYS_S = 10.0
"""Seconds without an answer of the store after which the user gets a message."""
REST_S = 0.05
AGAIN = "; trying again"
Call = Callable[..., Any]
"""A function that a courier calls with its store as the first argument; its result must be a value that JSON can
hold."""
Order = tuple[Call, tuple[Any, ...]]
"""A call, and its arguments after the store; sent, pickled, from the main process to the courier."""
R = TypeVar("R")


class Courier(CallQueue[Order]):
    """A helper process that makes calls to one store, one after the other; its connection stays open in between.

    A cut-off request is made again until the store answers. A call that hangs is made again by a new process.
    """

    _orders: Connection

    def __init__(self, url: str, patience: WaitHooks) -> None:
        """Prepare a courier; its process starts with the first call.

        Args:
            url: URL of the store.
            patience: hooks called during a wait for an answer; `tell` gets messages that the store does not answer.
        """
        super().__init__(partial(_obey, url), ())
        self.url, self.tell, self._patience = url, patience.tell, patience
        self._is_told, self._crashes, self._answered_at = False, 0, time.monotonic()

    @property
    def wait(self) -> None:
        """None: a courier reports no waits to its caller, since `look` itself tells the user of them."""

    def begin(self, call: Call, *arguments: object) -> None:
        """Queue a call after the earlier ones, and return at once; a later `look` returns its answer.

        Args:
            call: function that the courier calls with its store as the first argument.
            arguments: its further arguments.
        """
        self._left.append((call, arguments))

    def run(self, orders: Iterable[Order]) -> list[Any]:
        """Make some calls, wait for them, and return their results in the same order; no other call may be open.

        The wait has no time limit: a call is repeated while the store does not answer, or the disk is full.

        Raises:
            SplatbatchError: the store refuses a call, or a call crashes its process `MOST_CRASHES` times. Or the URL is
                not valid, or a library for it is missing; see `open_store`. No later call is made.
            OSError: a call raised this error, or the process cannot be started.
            TaskFault: a call raised an unexpected error.
            StopRequested: a stop was requested during the wait.
        """
        self._left.extend(orders)
        try:
            return [answer.result("") for _, answer in isolated.answers(self, self._patience)]
        finally:
            self.end()

    def ask(self, call: Call, *arguments: object) -> Any:
        """Make one call, wait for it without a time limit, and return its result.

        Args:
            call: function that the courier calls with its store as the first argument.
            arguments: its further arguments.

        Raises:
            SplatbatchError: see `run`, as for all other errors.
        """
        return self.run([(call, arguments)])[0]

    def look(self) -> list[tuple[Order, Answer]]:
        """Return the first open call with its answer if the answer has come, else an empty list; never waits.

        After `MOST_CRASHES` crashes of its process in a row the answer of a call is an error.

        This method also starts the next call, replaces a process that hangs or has crashed, and tells the user of long
        waits.

        Raises:
            OSError: the process cannot be started.
        """
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
                error = SplatbatchError(f"the transfer process crashed: {words}", "Please report this message.")
                return [(self._left.popleft(), ExpectedError(error))]
        elif process.idle.seconds() > HANGS_S:
            self._drop()
            self.tell(f"the store does not answer{AGAIN}")
        elif not (note := process.note()).endswith(AGAIN):
            self._answered_at = time.monotonic()
        elif time.monotonic() - self._answered_at > SAYS_S:
            self._answered_at = time.monotonic()
            self.tell(note)
        return []

    def end(self) -> None:
        """Drop all open calls; if there are any, end the process, with the call under way."""
        if self._left:
            self.close()

    def close(self) -> None:
        """Drop all open calls, and end the process; a later call starts another process."""
        self._left.clear()
        self._drop()

    def _told_process(self) -> IsolatedProcess:
        """Return the process, started if necessary, after sending it the first open call."""
        if self._process is None:
            there, self._orders = Pipe(duplex=False)
            self._process = IsolatedProcess(self._call, _received(), is_low=False, orders=there.fileno())
            there.close()
        if not self._is_told:
            self._is_told, self._answered_at = True, time.monotonic()
            self._process.idle.moves()
            with contextlib.suppress(OSError):  # it has died: its answer says so
                self._orders.send(self._left[0])
        return self._process

    def _drop(self) -> None:
        self._is_told = False
        if self._process is not None:
            self._orders.close()
            super().end()


store_at = cache(open_store)
"""Returns the store of a URL, as `open_store` does; a courier opens each store once."""


def _received() -> Iterator[Order]:
    """Yield the orders sent to this courier; its process ends when the pipe is closed."""
    told = Connection(ORDERS, writable=False)
    while True:
        yield told.recv()


def _obey(url: str, order: Order) -> object:
    call, arguments = order
    return patiently(call, store_at(url), *arguments)


def patiently(request: Callable[..., R], *arguments: object) -> R:
    """Make a request and return its result; repeat it while the store is cut off, or this machine's disk is full.

    Before each repetition it waits for the next of `PAUSES_S`, without a limit in all. All other errors are raised.

    Args:
        request: the function to call.
        arguments: its arguments.
    """
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


def pause(seconds: float, patience: WaitHooks, calls: Courier | None = None) -> None:
    """Wait for some seconds, and call the hooks meanwhile.

    Args:
        seconds: longest time to wait.
        patience: the hooks.
        calls: the wait ends once all calls of this courier are answered, as its `look`, called by a hook, finds; None:
            the wait takes all its time.

    Raises:
        StopRequested: a stop was requested during the wait.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (calls and calls.is_over):
        patience.tick_or_stop()
        time.sleep(REST_S)
