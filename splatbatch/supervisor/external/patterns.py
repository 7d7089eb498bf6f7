"""Regular expressions of a YAML: they may take so long and no longer, since some never end (nested repeats)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

BUDGET_S = 0.5


class TooSlow(Exception):
    """A regular expression takes longer over a text than anybody wants to wait."""


@contextmanager
def time_limit(seconds: float = BUDGET_S) -> Iterator[None]:
    """Raise `TooSlow` within a block that takes too long; the re module looks for signals while it searches.

    In the main thread only, where Python runs handlers of signals: the parent and the supervisor have no other.
    """

    def ring(_number: int, _frame: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
