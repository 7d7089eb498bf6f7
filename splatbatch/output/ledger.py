"""The history of an output folder: one line per event, append-only, fsynced. Files are the truth, not it."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from heapq import merge
from pathlib import Path
from typing import TypeVar

from splatbatch.errors import OutputError
from splatbatch.fields import number
from splatbatch.files import (
    LONGEST_LINE_BYTES,
    Record,
    append_line,
    is_out_of_space,
    names_in,
    object_in,
    raw_lines,
    read_lines,
)
from splatbatch.hashing import file_fact
from splatbatch.output.events import KINDS, AttemptEnded, Event, Notice, event_of
from splatbatch.output.layout import OutputFolder
from splatbatch.output.workers import LOCAL

UNWRITABLE_HINT = "Correct its permissions or name another output.folder, then run again: the batch is resumed."
Listener = Callable[[Event], None]
EventKind = TypeVar("EventKind", bound=Event)


class Ledger:
    """Appends events to a ledger file, and passes each to its listeners."""

    def __init__(
        self, path: Path | None, *listeners: Listener, generation_of: Callable[[str], int] = lambda _: 0
    ) -> None:
        """Prepare it.

        Args:
            path: of the file; no other process writes it. None: no history is kept.
            listeners: hear of each event once it is written.
            generation_of: says under which claim is written of a task.
        """
        self._path = path
        self._listeners = listeners
        self._generation_of = generation_of
        self._unwritten: list[Event] = []

    def write(self, event: Event) -> None:
        """Append an event, durably, then show it; what a full disk does not take is kept for later.

        Raises:
            OutputError: the ledger cannot be written, and not for want of room.
        """
        task = getattr(event, "patch", "")
        generation = self._generation_of(task) if task else 0
        event = replace(event, t=round(time.time(), 3), generation=generation or None)
        self._unwritten.append(event)
        self.flush()
        for listener in self._listeners:
            listener(event)

    def tell_wait(self, words: str) -> None:
        """Append what is waited for; see `write`."""
        self.write(Notice("awaited", words))

    def flush(self) -> bool:
        """Write what could not be written so far; return whether all is written."""
        if self._path is None:
            self._unwritten.clear()
        while self._unwritten and self._path is not None:
            try:
                self._path.parent.mkdir(exist_ok=True)
                append_line(self._path, self._unwritten[0].to_record())
            except OSError as error:
                if is_out_of_space(error):
                    return False
                raise OutputError(f"{self._path}: cannot be written ({error.strerror})", UNWRITABLE_HINT) from error
            del self._unwritten[0]
        return True

    def finish(self) -> None:
        """Write what could not be written so far.

        Raises:
            OSError: the disk is full still.
            OutputError: see `write`.
        """
        if not self.flush():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))


def lines(output: OutputFolder) -> Iterator[Record]:
    """Yield the history of all workers, also events unknown here; torn and foreign lines are left out.

    What does not come from the ledger of `train` has the name of its worker, too.
    """
    ledgers = [_lines_of(path, "" if path.stem in ("ledger", LOCAL) else path.stem) for path in output.ledgers()]
    return merge(*ledgers, key=lambda one: number(one.get("t")) or 0.0)


def _lines_of(path: Path, worker: str) -> Iterator[Record]:
    found = (one for one in read_lines(path) if isinstance(one.get("event"), str))
    return ({**one, "worker": worker} for one in found) if worker else found


def events(output: OutputFolder, *kinds: type[EventKind]) -> Iterator[EventKind]:
    """Yield the events of some kinds; `Event` stands for all.

    Those of one ledger stand in their order; among several workers they stand by the clocks of their hosts, good enough
    to be shown.
    """
    return merge(*(events_in(path, kinds) for path in output.ledgers()), key=lambda event: event.t or 0.0)


def events_in(path: Path, kinds: Iterable[type[EventKind]]) -> Iterator[EventKind]:
    """Yield the events of some kinds that stand in a ledger."""
    return _events(raw_lines(path), tuple(kinds))


def _events(lines: Iterable[bytes], kinds: tuple[type[EventKind], ...]) -> Iterator[EventKind]:
    """Yield the events of some kinds among lines of a ledger; lines without the name of any need not be parsed."""
    names = [f'"{name}"'.encode() for name, kind in KINDS.items() if issubclass(kind, kinds)]
    for line in lines:
        is_wanted = any(name in line for name in names)
        if is_wanted and isinstance(event := event_of(object_in(line) or {}), kinds):
            yield event


class Tail:
    """Follows the ledgers of workers by whole lines: each event is told once, also one that was just being written."""

    def __init__(self, output: OutputFolder, *kinds: type[Event], but: Path | None = None) -> None:
        """Prepare it.

        Args:
            output: whose ledgers they are.
            kinds: of events that are told; without them all.
            but: the ledger that is left out.
        """
        self._output, self._kinds, self._but = output, kinds or (Event,), but
        self._names: list[str] = []
        self.read_bytes: dict[Path, int] = {}
        """How far each ledger was read, to the end of a line."""

    def skip(self) -> None:
        """Leave out what stands there now."""
        self.read_bytes = {path: _size(path) for path in self._output.ledgers()}

    def read(self) -> Iterator[tuple[Path, Event]]:
        """Yield what was written since the last look, with where it stands; a line that is not whole yet is left."""
        if (names := names_in(str(self._output.ledger.parent))) != self._names:
            self._names = names
            self.read_bytes = {path: self.read_bytes.get(path, 0) for path in self._output.ledgers()}
        for path, read_bytes in self.read_bytes.items():
            if path != self._but and _size(path) > read_bytes:
                yield from ((path, event) for event in _events(self._new_lines(path), self._kinds))

    def has_another_ledger(self) -> bool:
        """Return whether a ledger is shorter than what was read of it: it is another file by now."""
        return any(_size(path) < read_bytes for path, read_bytes in self.read_bytes.items())

    def _new_lines(self, path: Path) -> Iterator[bytes]:
        for line in raw_lines(path, self.read_bytes[path]):
            if not line.endswith(b"\n") and len(line) < LONGEST_LINE_BYTES:
                return
            self.read_bytes[path] += len(line)
            yield line


def _size(path: Path) -> int:
    return max(0, file_fact(path).num_bytes)


def judged_attempts(output: OutputFolder) -> dict[tuple[str, int], AttemptEnded]:
    """Return the end of every attempt that was judged, by patch and number.

    Not of one whose result could not be kept: it is judged again, and what it trained is taken.
    """
    return {
        (event.patch, event.attempt): event
        for event in events(output, AttemptEnded)
        if event.attempt is not None and event.is_judged
    }
