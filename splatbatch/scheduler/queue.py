"""The works that wait for a slot, in the order in which they are to start."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from splatbatch.scheduler.running import Work


class Queue:
    """First come, first served; with several slots the longest come first, so that none is left to the end."""

    def __init__(self, works: Sequence[Work], *, longest_first: bool) -> None:
        self._works = deque(sorted(works, key=lambda work: -work.length) if longest_first else works)

    def __len__(self) -> int:
        return len(self._works)

    def __iter__(self) -> Iterator[Work]:
        return iter(self._works)

    def due(self, now: float) -> Iterator[Work]:
        """Yield what may start now, first the one whose turn it is."""
        return (work for work in self._works if work.not_before <= now)

    def take(self, work: Work) -> None:
        """Remove a work that starts."""
        self._works.remove(work)

    def put_back(self, work: Work) -> None:
        """Take in a work whose turn it was."""
        self._works.appendleft(work)

    def put_last(self, work: Work) -> None:
        """Take in a work that is tried again."""
        self._works.append(work)

    def clear(self) -> list[Work]:
        """Empty the queue; return what waited."""
        works = list(self._works)
        self._works.clear()
        return works
