"""Traffic with a store: calls made by reader processes, again after whatever passes, while our own loop goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from splatbatch import isolated
from splatbatch.errors import CutOffError, SplatbatchError
from splatbatch.files import is_out_of_space
from splatbatch.isolated import Crashed, ExpectedError, Hung, Returned, StopRequested, WaitHooks, rest
from splatbatch.transfer.resident import InProcessResident, ResidentProcess, resident
from splatbatch.transfer.schemes import open_store
from splatbatch.transfer.store import Store

Item = TypeVar("Item")
HANGS_S = 45.0
"""So long a transfer may move nothing: longer than ssh and S3 take to notice that nobody answers."""
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
"""Between a call that failed in passing and the next; the last one again and again."""
MOST_FAULTS = 3
"""Calls in a row that end in what nobody expected: a full disk of ours, say."""
SAYS_S = 10.0
POLL_S = 0.05
MOST_FREE = 5
"""Readers that wait with their connections for calls to come: as many as are busy at one time. A worker beats, asks,
fetches ahead, sends a splat and the pictures of the one before."""
_FREE: list[ResidentProcess | InProcessResident] = []
_OPEN: dict[str, Store] = {}


def store_at(url: str) -> Store:
    """Return the store of a URL, opened once in each reader process."""
    if url not in _OPEN:
        _OPEN[url] = open_store(url)
    return _OPEN[url]


class TransferJob(Generic[Item]):
    """Calls that are made one after the other beside our loop; one that the store cut off is made again."""

    def __init__(self, call: Callable[[Item], Any], items: Iterable[Item], say: Callable[[str], None]) -> None:
        """Begin nothing yet.

        Args:
            call: is made by a reader process; what it returns must be JSON.
            items: of the calls.
            say: hears that the store does not answer.
        """
        self._call, self._left, self._say = call, list(items), say
        self._reader: ResidentProcess | InProcessResident | None = None
        self._failures, self._not_before, self._said_at = 0, 0.0, time.monotonic()
        self.found: list[tuple[Item, Any]] = []
        """What each call has returned."""
        self.error: SplatbatchError | None = None
        """What no call mends: those that are left are not made."""

    @property
    def is_over(self) -> bool:
        """Whether no further call is made."""
        return not self._left or self.error is not None

    def look(self) -> bool:
        """Take in what has come, and go on; never wait. Return whether it is over."""
        if self.is_over or time.monotonic() < self._not_before:
            return self.is_over
        if self._reader is None:
            self._reader = _FREE.pop() if _FREE else resident(HANGS_S)
            self._reader.begin(self._call, self._left[0])
        while self._reader is not None and (answer := self._reader.look()) is not None:
            goes_on = self._take(self._left[0], answer)
            if not goes_on:
                self.end()  # whatever it has opened is not trusted any more
            elif self._left:
                self._reader.begin(self._call, self._left[0])
            else:
                self._release()
        return self.is_over

    def _take(self, item: Item, answer: isolated.Answer) -> bool:
        """Take in what came of a call; return whether the next is made at once."""
        match answer:
            case Returned(value=value):
                self.found.append((item, value))
                self._left.remove(item)
                self._failures = 0
                return True
            case ExpectedError(error=SplatbatchError() as error) if not isinstance(error, CutOffError):
                self.error = error
            case ExpectedError(error=CutOffError()) | Hung():
                self._wait(answer)
            case ExpectedError(error=error) if is_out_of_space(error):  # of this machine's disk
                self._wait(answer)
            case _ if self._failures + 1 < MOST_FAULTS:
                self._wait(answer)
            case _:
                self.error = SplatbatchError(_words(answer), "Is there room on this disk? Else please report it.")
        return False

    def _release(self) -> None:
        """Leave the reader, with its connection, to the next."""
        if self._reader is not None and len(_FREE) < MOST_FREE:
            _FREE.append(self._reader)
            self._reader = None
        self.end()

    def end(self) -> None:
        """End the call that is under way."""
        if self._reader is not None:
            self._reader.end()
            self._reader = None

    def _wait(self, answer: object) -> None:
        """Have the call made again after a while; say so where it has been for long."""
        pause_s = PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
        self._failures += 1
        self._not_before = time.monotonic() + pause_s
        if self._failures > 1 and time.monotonic() - self._said_at > SAYS_S:
            self._said_at = time.monotonic()
            self._say(f"{_words(answer)}; it is tried again")


def _words(answer: object) -> str:
    match answer:
        case ExpectedError(error=error):
            return str(error)
        case Hung():
            return "the store does not answer"
        case Crashed(words=words):
            return f"traffic with the store has failed: {words}"
    return "the store does not answer"


def run(errand: TransferJob[Item], patience: WaitHooks) -> list[tuple[Item, Any]]:
    """Wait until calls are made; return what each has returned.

    Raises:
        SplatbatchError: the store refuses us.
        StopRequested: somebody wants us to stop.
    """
    try:
        while not errand.look():
            patience.tick()
            if why := patience.stop():
                raise StopRequested(why)
            rest(POLL_S, [errand._reader] if errand._reader else [])
    finally:
        errand.end()
    if errand.error is not None:
        raise errand.error
    return errand.found


def ask(call: Callable[[Item], Any], item: Item, patience: WaitHooks) -> Any:
    """Return what one call returns; see `run`."""
    return run(TransferJob(call, [item], patience.tell), patience)[0][1]
