"""The history of an output folder: one line per event, append-only, fsynced. Files are the truth, not it."""

from __future__ import annotations

import time
from collections.abc import Callable
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


def events(path: Path) -> list[Record]:
    """Return all events in order; torn and foreign lines are left out."""
    return [record for record in read_lines(path) if "event" in record]


def judged_attempts(path: Path) -> dict[tuple[str, int], Record]:
    """Return the `attempt_ended` event of every attempt that was judged, by patch and number."""
    ended = (record for record in events(path) if record["event"] == "attempt_ended")
    return {
        (str(record.get("patch")), record["attempt"]): record
        for record in ended
        if isinstance(record.get("attempt"), int)
    }
