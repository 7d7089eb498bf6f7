"""The history of an output folder: one line per event, append-only, fsynced. Files are the truth, not it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from splatbatch.errors import OutputError
from splatbatch.files import Record, append_line, is_out_of_space, read_lines

Listener = Callable[[Record], None]


class Ledger:
    """Writes events down and passes them on to whoever shows them."""

    def __init__(self, path: Path, *listeners: Listener) -> None:
        self._path = path
        self._listeners = listeners
        self._unwritten: list[Record] = []

    def write(self, event: str, **facts: Any) -> None:
        """Append an event, durably, then show it; what a full disk does not take is kept for later.

        Raises:
            OutputError: the ledger cannot be written, and not for want of room.
        """
        record = {"t": round(time.time(), 3), "event": event, **facts}
        self._unwritten.append(record)
        self.flush()
        for listener in self._listeners:
            listener(record)

    def flush(self) -> bool:
        """Write what could not be written so far; return whether all is written."""
        while self._unwritten:
            try:
                append_line(self._path, self._unwritten[0])
            except OSError as error:
                if is_out_of_space(error):
                    return False
                raise OutputError(f"{self._path}: cannot be written ({error.strerror})") from error
            del self._unwritten[0]
        return True


def events(path: Path, *kinds: str) -> Iterator[Record]:
    """Yield the events of some kinds, or all, in order; torn and foreign lines are left out."""
    return (one for one in read_lines(path, kinds) if "event" in one and (not kinds or one["event"] in kinds))


class Endings:
    """What was decided on patches, as far as their files do not say it; the ledger is read when this is first asked."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_judged(self, patch: str, attempt: int) -> bool:
        """Return whether an attempt's end was written down."""
        return (patch, attempt) in self._read[0]

    def last(self, patch: str) -> Record | None:
        """Return how the last attempt at a patch ended or why it was refused, whichever is later; None if neither."""
        return self._read[1].get(patch)

    @cached_property
    def _read(self) -> tuple[set[tuple[str, int]], dict[str, Record]]:
        judged, last = set(), {}
        for event in events(self._path, "attempt_ended", "refused"):
            last[str(event.get("patch", ""))] = event
            if event["event"] == "attempt_ended" and isinstance(event.get("attempt"), int):
                judged.add((str(event.get("patch")), event["attempt"]))
        return judged, last


def judged_attempts(path: Path) -> dict[tuple[str, int], Record]:
    """Return the `attempt_ended` event of every attempt that was judged, by patch and number."""
    return {
        (str(record.get("patch")), record["attempt"]): record
        for record in events(path, "attempt_ended")
        if isinstance(record.get("attempt"), int)
    }
