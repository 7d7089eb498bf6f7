"""The latest decisions on each task (ended, rejected, given up), read from the ledgers of all workers as they grow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from splatbatch.output.events import AttemptEnded, Event, GaveUp, PatchRejected
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Tail


class TaskHistory:
    """Latest end, rejection and giving up of each task, from the ledgers of all workers of an output folder.

    Each call outside `as_of_now` reads what was appended since the last one. If a ledger was replaced by a shorter one,
    all are read again. Ledgers and lines that cannot be read are left out; nothing is raised.
    """

    def __init__(self, output: OutputFolder) -> None:
        self._output = output
        self._tail = Tail(output, AttemptEnded, PatchRejected, GaveUp)
        self._judged: set[tuple[str, int]] = set()
        self._last: dict[str, AttemptEnded | PatchRejected] = {}
        self._given_up: dict[str, GaveUp] = {}
        self._is_current = False
        self._places: dict[tuple[str, bool], tuple[tuple[int, float], Path]] = {}
        """Order (generation, time) and ledger of the latest event of each task; apart for ends and for giving up."""

    @contextlib.contextmanager
    def as_of_now(self) -> Iterator[None]:
        """Read the ledgers now, and not again within the block, in which thousands of patches may be asked for."""
        self._follow()
        self._is_current = True
        try:
            yield
        finally:
            self._is_current = False

    def is_judged(self, patch: str, attempt: int) -> bool:
        """Return whether the end of an attempt was recorded and judged, so that it need not be collected again.

        Args:
            patch: name of the task.
            attempt: number of the attempt.
        """
        self._follow()
        return (patch, attempt) in self._judged

    def last(self, patch: str) -> AttemptEnded | PatchRejected | None:
        """Return how the last attempt at a patch ended, or why the patch was rejected, whichever is later.

        Events of several workers are ordered by the numbers of their claims, then by time.

        None if neither.
        """
        self._follow()
        return self._last.get(patch)

    def given_up(self, patch: str) -> GaveUp | None:
        """Return the event by which a patch was given up for good.

        None if it was not given up, or was trained since.
        """
        self._follow()
        return self._given_up.get(patch)

    def _follow(self) -> None:
        """Read the events appended since the last call."""
        if self._is_current:
            return
        if self._tail.has_another_ledger():
            vars(self).update(vars(TaskHistory(self._output)))
        for path, event in self._tail.read():
            self._take(event, path)

    def _take(self, event: Event, path: Path) -> None:
        if isinstance(event, GaveUp):
            if event.key and self._is_latest(event, path, is_end=False):
                self._given_up[event.patch] = event
            return
        if isinstance(event, AttemptEnded):
            if event.attempt is not None and event.is_judged:
                self._judged.add((event.patch, event.attempt))
            if event.is_well and self._is_latest(event, path, is_end=False):
                self._given_up.pop(event.patch, None)
        if isinstance(event, AttemptEnded | PatchRejected) and self._is_latest(event, path, is_end=True):
            self._last[event.patch] = event

    def _is_latest(self, event: AttemptEnded | PatchRejected | GaveUp, path: Path, *, is_end: bool) -> bool:
        """Return whether no later event of its task was read, and note its order if so.

        Events are ordered by the generation of their claim, then by time; within one ledger by their lines.
        """
        order, key = (event.generation or 0, event.t or 0.0), (event.patch, is_end)
        before, ledger = self._places.get(key, (order, path))
        is_latest = order >= before or path == ledger
        if is_latest:
            self._places[key] = order, path
        return is_latest
