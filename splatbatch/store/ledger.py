"""The history of an output folder: one line per event, append-only, fsynced. Files are the truth, not it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from splatbatch.errors import OutputError
from splatbatch.fields import mapping, text, whole
from splatbatch.files import Record, append_line, ends_whole, is_out_of_space, read_lines
from splatbatch.store.obstacles import UNWRITABLE

UNWRITABLE_HINT = "Mend its permissions, or name another output.folder, then run again: it goes on where it ended."
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
                raise OutputError(f"{self._path}: cannot be written ({error.strerror})", UNWRITABLE_HINT) from error
            del self._unwritten[0]
        return True


def events(path: Path, *kinds: str, start: int = 0) -> Iterator[Record]:
    """Yield the events of some kinds, or all, in order, from a byte on; torn and foreign lines are left out."""
    known = (one for one in read_lines(path, kinds, start=start) if isinstance(one.get("event"), str))
    return (one for one in known if not kinds or one["event"] in kinds)


class Endings:
    """What was decided on patches, as far as their files do not say it; follows the ledger as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self._judged: set[tuple[str, int]] = set()
        self._last: dict[str, Record] = {}
        self._given_up: dict[str, Record] = {}

    def is_judged(self, patch: str, attempt: int) -> bool:
        """Return whether an attempt's end was written down."""
        self._follow()
        return (patch, attempt) in self._judged

    def last(self, patch: str) -> Record | None:
        """Return how the last attempt at a patch ended or why it was refused, whichever is later; None if neither."""
        self._follow()
        return self._last.get(patch)

    def given_up(self, patch: str) -> Record | None:
        """Return the event by which a patch was given up for good; None if it was not, or was trained since."""
        self._follow()
        return self._given_up.get(patch)

    def _follow(self) -> None:
        """Take in what has been written since the last look."""
        try:
            size = os.stat(self._path).st_size  # noqa: PTH116 - asked for each of thousands of patches
        except OSError:
            return
        if size == self._read_bytes:
            return
        if size < self._read_bytes:  # another ledger
            vars(self).update(vars(Endings(self._path)))
        for event in events(self._path, *_KINDS, start=self._read_bytes):
            self._take(event)
        self._read_bytes = size if ends_whole(self._path, size) else self._read_bytes  # a half line is read again

    def _take(self, event: Record) -> None:
        patch, attempt = text(event.get("patch")), whole(event.get("attempt"))
        match event["event"]:
            case "gave_up":
                if isinstance(event.get("key"), dict):
                    self._given_up[patch] = event
            case "attempt_ended":
                self._last[patch] = event
                self._judged |= {(patch, attempt)} if attempt is not None else set()
                if event.get("outcome") == "trained":
                    self._given_up.pop(patch, None)
            case _:
                self._last[patch] = event


_KINDS = ("attempt_ended", "refused", "gave_up")


def judged_attempts(path: Path) -> dict[tuple[str, int], Record]:
    """Return the `attempt_ended` event of every attempt that was judged, by patch and number.

    Not of one whose result could not be kept: it is judged again, and what it trained is taken.
    """
    return {
        (text(record.get("patch")), attempt): record
        for record in events(path, "attempt_ended")
        if (attempt := whole(record.get("attempt"))) is not None
        and mapping(record.get("diagnosis")).get("cause") != UNWRITABLE
    }
