"""A lock where the file system has no flock: whoever makes the next generation of a file holds it until he frees it.

Making one is atomic everywhere (link(2), else O_EXCL). The highest generation decides, it is never removed, and nobody
makes one while its holder lives: so two can never hold it, however long either of them was asleep in between.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from splatbatch.files import Record, read_json, write_json
from splatbatch.store.claims.once import made_once, numbers_in

FREE = {"free": True}
UNWRITTEN_S = 2.0
"""Where there is no link(2) a new generation is empty for a moment; so long empty, its maker was killed."""


class Generations:
    """The generations of a lock file: lock.1, lock.2, …"""

    def __init__(self, lock: Path) -> None:
        self._lock = lock
        self._mine: Path | None = None

    def take(self, record: Record, lives: Callable[[Record, Path], bool]) -> Record | None:
        """Make the next generation ours; return who holds the lock if it cannot be.

        `lives` says whether a holder still counts; it is asked with the file that it beats in.
        """
        number, before = self._highest(), self._record(self._highest())
        if before is not None and lives(before, self._path(number)):
            return before
        mine = self._path(number + 1)
        if not _made(mine, record):
            return self._record(number + 1) or {}
        if (newer := self._highest()) > number + 1:  # we slept while others came and went
            mine.unlink(missing_ok=True)
            return self._record(newer) or {}
        self._mine = mine
        for older in self._numbers():
            if older < number:  # the last but one stays: who lists the folder right now must see either it or ours
                self._path(older).unlink(missing_ok=True)
        return None

    def beat(self, text: bytes) -> None:
        """Write into our generation that we live; in place, so that nobody sees it missing."""
        if self._mine:
            descriptor = os.open(self._mine, os.O_WRONLY)
            try:
                os.pwrite(descriptor, text, 0)
            finally:
                os.close(descriptor)

    def free(self) -> None:
        """Say that nobody holds it any more; the file stays, for the highest number must never come again."""
        if self._mine:
            with contextlib.suppress(OSError):
                write_json(self._mine, FREE)
            self._mine = None

    def _record(self, number: int) -> Record | None:
        """Return who made a generation; None if it is free, or nobody has written into it for long."""
        end = time.monotonic() + UNWRITTEN_S
        while number and (record := read_json(self._path(number))) != FREE:
            if record is not None:
                return record
            if time.monotonic() > end:
                return None
            time.sleep(0.02)
        return None

    def _highest(self) -> int:
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        return list(numbers_in(self._lock.parent, f"{self._lock.name}."))

    def _path(self, number: int) -> Path:
        return self._lock.with_name(f"{self._lock.name}.{number}")


def _made(path: Path, record: Record) -> bool:
    """Make a file that nobody else has made, its content in it from the first moment on where link(2) is to be had."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")  # containers may share host name and process number
    write_json(aside, record)
    try:
        return made_once(aside, path)
    finally:
        aside.unlink(missing_ok=True)
