"""The history of an output folder: one line per event, append-only, fsynced. Files are the truth, not it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from splatbatch.errors import OutputError
from splatbatch.files import Record, append_line, ends_whole, is_out_of_space, read_lines
from splatbatch.store.events import KINDS, AttemptEnded, Event, GaveUp, Refused, event_of
from splatbatch.store.hashes import short_hash
from splatbatch.store.layout import OutputFolder
from splatbatch.store.obstacles import UNWRITABLE

UNWRITABLE_HINT = "Mend its permissions, or name another output.folder, then run again: it goes on where it ended."
TAIL_BYTES = 1 << 12
"""By which a ledger that has grown is known again."""
Listener = Callable[[Event], None]
Kind = TypeVar("Kind", bound=Event)


class Ledger:
    """Writes events down and passes them on to whoever shows them."""

    def __init__(self, path: Path, *listeners: Listener) -> None:
        self._path = path
        self._listeners = listeners
        self._unwritten: list[Event] = []

    def write(self, event: Event) -> None:
        """Append an event, durably, then show it; what a full disk does not take is kept for later.

        Raises:
            OutputError: the ledger cannot be written, and not for want of room.
        """
        event = replace(event, t=round(time.time(), 3))
        self._unwritten.append(event)
        self.flush()
        for listener in self._listeners:
            listener(event)

    def flush(self) -> bool:
        """Write what could not be written so far; return whether all is written."""
        while self._unwritten:
            try:
                self._path.parent.mkdir(exist_ok=True)
                append_line(self._path, self._unwritten[0].to_record())
            except OSError as error:
                if is_out_of_space(error):
                    return False
                raise OutputError(f"{self._path}: cannot be written ({error.strerror})", UNWRITABLE_HINT) from error
            del self._unwritten[0]
        return True


def lines(output: OutputFolder) -> Iterator[Record]:
    """Yield the history as it stands, also events that nobody here knows; torn and foreign lines are left out."""
    found = (one for path in output.ledgers() for one in read_lines(path))
    return (one for one in found if isinstance(one.get("event"), str))


def events(output: OutputFolder, *kinds: type[Kind]) -> Iterator[Kind]:
    """Yield the events of some kinds; `Event` stands for all."""
    return (event for path in output.ledgers() for event in _events(path, kinds))


def _events(path: Path, kinds: Iterable[type[Kind]], start: int = 0) -> Iterator[Kind]:
    wanted = tuple(kinds)
    names = [name for name, kind in KINDS.items() if issubclass(kind, wanted)]
    found = (event_of(record) for record in read_lines(path, names, start=start))
    return (event for event in found if isinstance(event, wanted))


class Endings:
    """What was decided on patches, as far as their files do not say it; follows the ledger as it grows."""

    def __init__(self, output: OutputFolder) -> None:
        self._output = output
        self._read_bytes = dict.fromkeys(output.ledgers(), 0)
        self._judged: set[tuple[str, int]] = set()
        self._last: dict[str, AttemptEnded | Refused] = {}
        self._given_up: dict[str, GaveUp] = {}
        self._trained: dict[str, int] = {}
        """Last attempts that an index knows as trained, and nothing else of them."""
        self._is_current = False

    @contextlib.contextmanager
    def as_of_now(self) -> Iterator[None]:
        """Look at the ledger now, and not again while thousands of patches are asked for."""
        self._follow()
        self._is_current = True
        try:
            yield
        finally:
            self._is_current = False

    def digest(self) -> Record:
        """Return all that was read, for an index."""
        told = {name: event for name, event in self._last.items() if _is_more_than_trained(event)}
        trained = self._trained | {
            name: one.attempt for name, one in self._last.items() if isinstance(one, AttemptEnded)
        }
        return {
            "files": [[str(path), size, _end_of(path, size)] for path, size in self._read_bytes.items()],
            "judged": sorted(self._judged),
            "trained": {name: number for name, number in trained.items() if name not in told},
            "last": {name: event.to_record() for name, event in told.items()},
            "given_up": {name: event.to_record() for name, event in self._given_up.items()},
        }

    def resume(self, digest: Mapping[str, Any]) -> None:
        """Begin where an index ends, if the ledgers are those that it was made from; else with their first lines."""
        known = {path: (size, end) for path, size, end in digest.get("files", ())}
        if set(known) != {str(path) for path in self._read_bytes}:
            return
        if any(_end_of(path, known[str(path)][0]) != known[str(path)][1] for path in self._read_bytes):
            return
        self._read_bytes = {path: known[str(path)][0] for path in self._read_bytes}
        self._judged = {(name, number) for name, number in digest["judged"]}
        self._trained = dict(digest["trained"])
        self._take(event_of(record) for record in (*digest["last"].values(), *digest["given_up"].values()))

    def is_judged(self, patch: str, attempt: int) -> bool:
        """Return whether an attempt's end was written down."""
        self._follow()
        return (patch, attempt) in self._judged

    def last(self, patch: str) -> AttemptEnded | Refused | None:
        """Return how the last attempt at a patch ended or why it was refused, whichever is later; None if neither."""
        self._follow()
        return AttemptEnded(patch, self._trained[patch], "trained") if self.went_well(patch) else self._last.get(patch)

    def went_well(self, patch: str) -> bool:
        """Return whether an index knows the last attempt at a patch as trained, and nothing was written of it since."""
        self._follow()
        return patch in self._trained and patch not in self._last

    def given_up(self, patch: str) -> GaveUp | None:
        """Return the event by which a patch was given up for good; None if it was not, or was trained since."""
        self._follow()
        return self._given_up.get(patch)

    def _follow(self) -> None:
        """Take in what has been written since the last look."""
        if self._is_current:
            return None
        for path, read_bytes in self._read_bytes.items():
            try:
                size = os.stat(path).st_size  # noqa: PTH116 - asked for each of thousands of patches
            except OSError:
                continue
            if size < read_bytes:  # another ledger
                vars(self).update(vars(Endings(self._output)))
                return self._follow()
            if size > read_bytes:
                self._take(_events(path, (AttemptEnded, Refused, GaveUp), read_bytes))
                self._read_bytes[path] = size if ends_whole(path, size) else read_bytes  # a half line is read again

    def _take(self, found: Iterable[Event | None]) -> None:
        for event in found:
            match event:
                case GaveUp():
                    if event.key:
                        self._given_up[event.patch] = event
                case AttemptEnded():
                    self._last[event.patch] = event
                    self._judged |= {(event.patch, event.attempt)} if event.attempt is not None else set()
                    if event.outcome == "trained":
                        self._given_up.pop(event.patch, None)
                case Refused():
                    self._last[event.patch] = event


def _is_more_than_trained(event: AttemptEnded | Refused) -> bool:
    return isinstance(event, Refused) or event.outcome != "trained" or event.attempt is None


def _end_of(path: Path, size: int) -> str:
    """Return a hash of the last bytes before a place in a file; empty if the file does not reach so far."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read(min(size, TAIL_BYTES))
    except OSError:
        return "" if size else short_hash("")
    return short_hash(tail.decode(errors="replace")) if len(tail) == min(size, TAIL_BYTES) else ""


def judged_attempts(output: OutputFolder) -> dict[tuple[str, int], AttemptEnded]:
    """Return the end of every attempt that was judged, by patch and number.

    Not of one whose result could not be kept: it is judged again, and what it trained is taken.
    """
    return {
        (event.patch, event.attempt): event
        for event in events(output, AttemptEnded)
        if event.attempt is not None and event.cause != UNWRITABLE
    }
