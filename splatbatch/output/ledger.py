"""The ledgers of an output folder: the history of a batch, one line per event, append-only and fsynced.

Whether a patch is up to date follows from its files, not from the ledger.
"""

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

UNWRITABLE_HINT = "Fix its permissions, or set another output.folder, then run again: the batch is resumed."
Listener = Callable[[Event], None]
EventKind = TypeVar("EventKind", bound=Event)


class Ledger:
    """Appends events to the ledger file of one worker, and passes each event to its listeners."""

    def __init__(
        self, path: Path | None, *listeners: Listener, generation_of: Callable[[str], int] = lambda _: 0
    ) -> None:
        """Keep the arguments; nothing is written yet.

        Args:
            path: path of the file, which no other process writes. None: events only go to the listeners.
            listeners: called with each event once it is written, or held back by a full disk.
            generation_of: returns the number of a task's claim, which its events name; 0: the task has none.
        """
        self._path = path
        self._listeners = listeners
        self._generation_of = generation_of
        self._unwritten: list[Event] = []

    def write(self, event: Event) -> None:
        """Append an event, synced to disk, then pass it to the listeners; on a full disk the event is kept for `flush`.

        Time and claim number of the event are set here.

        Raises:
            OutputError: the ledger cannot be written for another reason than a full disk.
        """
        task = getattr(event, "patch", "")
        generation = self._generation_of(task) if task else 0
        event = replace(event, t=round(time.time(), 3), generation=generation or None)
        self._unwritten.append(event)
        self.flush()
        for listener in self._listeners:
            listener(event)

    def tell_wait(self, words: str) -> None:
        """Append a notice on what the run waits for, with this text; see `write`.

        Raises:
            OutputError: see `write`.
        """
        self.write(Notice("awaited", words))

    def flush(self) -> bool:
        """Write the events that a full disk has held back; return whether all are written, True without a file.

        Raises:
            OutputError: the ledger cannot be written for another reason than a full disk.
        """
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
        """Write the events that a full disk has held back, at the end of a run.

        Raises:
            OSError: the disk is still full.
            OutputError: the ledger cannot be written for another reason.
        """
        if not self.flush():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))


def lines(output: OutputFolder) -> Iterator[Record]:
    """Yield the lines of all ledgers by time, as JSON objects, also events that this version does not know.

    Lines of one ledger keep their order; torn lines and unreadable ledgers are left out. A line that is not from the
    ledger of `train` also names its worker.
    """
    ledgers = [_lines_of(path, "" if path.stem in ("ledger", LOCAL) else path.stem) for path in output.ledgers()]
    return merge(*ledgers, key=lambda one: number(one.get("t")) or 0.0)


def _lines_of(path: Path, worker: str) -> Iterator[Record]:
    found = (one for one in read_lines(path) if isinstance(one.get("event"), str))
    return ({**one, "worker": worker} for one in found) if worker else found


def events(output: OutputFolder, *kinds: type[EventKind]) -> Iterator[EventKind]:
    """Yield the events of some kinds from all ledgers by time; `Event` stands for all kinds.

    Events of one ledger keep their order. Those of several workers are merged by the clocks of their hosts, which is
    good enough for display, but not for decisions. Torn lines and unreadable ledgers are left out.
    """
    return merge(*(events_in(path, kinds) for path in output.ledgers()), key=lambda event: event.t or 0.0)


def events_in(path: Path, kinds: Iterable[type[EventKind]]) -> Iterator[EventKind]:
    """Yield the events of some kinds from one ledger, in their order; none if the ledger cannot be read."""
    return _events(raw_lines(path), tuple(kinds))


def _events(lines: Iterable[bytes], kinds: tuple[type[EventKind], ...]) -> Iterator[EventKind]:
    """Yield the events of some kinds from ledger lines; lines that contain no name of these kinds are not parsed."""
    names = [f'"{name}"'.encode() for name, kind in KINDS.items() if issubclass(kind, kinds)]
    for line in lines:
        is_wanted = any(name in line for name in names)
        if is_wanted and isinstance(event := event_of(object_in(line) or {}), kinds):
            yield event


class Tail:
    """Follows the ledgers of all workers: `read` yields each event once, as soon as its line is complete."""

    def __init__(self, output: OutputFolder, *kinds: type[Event], but: Path | None = None) -> None:
        """Start at the first line of each ledger.

        Args:
            output: folder of the ledgers.
            kinds: kinds of events to yield; without any, all.
            but: path of a ledger to leave out.
        """
        self._output, self._kinds, self._but = output, kinds or (Event,), but
        self._names: list[str] = []
        self.read_bytes: dict[Path, int] = {}
        """Number of bytes read of each ledger, up to the end of a line."""

    def skip(self) -> None:
        """Skip the events written until now: the next `read` begins after them."""
        self.read_bytes = {path: _size(path) for path in self._output.ledgers()}

    def read(self) -> Iterator[tuple[Path, Event]]:
        """Yield the events written since the last call, each with the path of its ledger; an incomplete line waits.

        Ledgers that appear later are read from their first line. Unreadable ones are left out.
        """
        if (names := names_in(str(self._output.ledger.parent))) != self._names:
            self._names = names
            self.read_bytes = {path: self.read_bytes.get(path, 0) for path in self._output.ledgers()}
        for path, read_bytes in self.read_bytes.items():
            if path != self._but and _size(path) > read_bytes:
                yield from ((path, event) for event in _events(self._new_lines(path), self._kinds))

    def has_another_ledger(self) -> bool:
        """Return whether a ledger is now shorter than the part read of it, so that it must be another file."""
        return any(_size(path) < read_bytes for path, read_bytes in self.read_bytes.items())

    def _new_lines(self, path: Path) -> Iterator[bytes]:
        for line in raw_lines(path, self.read_bytes[path]):
            if not line.endswith(b"\n") and len(line) < LONGEST_LINE_BYTES:
                return
            self.read_bytes[path] += len(line)
            yield line


def _size(path: Path) -> int:
    return max(0, file_fact(path).num_bytes)


def judged_attempts(output: OutputFolder) -> dict[tuple[str, int | None], AttemptEnded]:
    """Return the event of the end of every attempt that was judged, by name of the task and number of the attempt.

    An attempt whose files could not be collected is left out: the next run judges it again. Of several events with one
    number the last counts. One without an exit, as of a later attempt that could not be started, counts only alone.
    """
    judged = [event for event in events(output, AttemptEnded) if event.is_judged]
    return {
        (event.patch, event.attempt): event
        for has_exit in (False, True)
        for event in judged
        if bool(event.exit) == has_exit
    }
