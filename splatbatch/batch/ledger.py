"""The history of an output folder: one line per event, append-only, fsynced. Files are the truth, not it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from splatbatch.files import Record, append_line, read_lines

Listener = Callable[[Record], None]


class Ledger:
    """Writes events down and passes them on to whoever shows them."""

    def __init__(self, path: Path, listener: Listener | None = None) -> None:
        self._path = path
        self._listener = listener

    def write(self, event: str, **facts: Any) -> None:
        """Append an event, durably, then show it."""
        record = {"t": round(time.time(), 3), "event": event, **facts}
        append_line(self._path, record)
        if self._listener:
            self._listener(record)


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
