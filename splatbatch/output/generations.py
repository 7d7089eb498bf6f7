"""Files that can be made once, link(2) being atomic everywhere; and records of which the highest generation counts."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from splatbatch.files import MOST_JSON_BYTES, Record, read_json, read_regular, write_object


def create_once(source: Path, target: Path) -> bool:
    """Give the file `source`, which must be on the disk, the name `target`; return whether nobody had that name."""
    try:
        os.link(source, target)
        return True
    except FileExistsError:
        return is_same(source, target)
    except OSError:
        # an answer of NFS that was lost is an error of a link that was made
        return is_same(source, target) or _copied_once(source, target)


def is_same(source: Path, target: Path) -> bool:
    """Return whether both names are of one file."""
    try:
        return source.samefile(target)
    except OSError:
        return False


def numbers_in(folder: str | Path, prefix: str = "", suffix: str = "") -> Iterator[int]:
    """Yield the numbers that stand between prefix and suffix in the names of a folder; none if there is no folder."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208 - asked for each of thousands of tasks
            middle = name[len(prefix) : len(name) - len(suffix)]
            if name.startswith(prefix) and name.endswith(suffix) and middle.isdecimal():
                yield int(middle)


def _copied_once(source: Path, target: Path) -> bool:
    content = read_regular(source, MOST_JSON_BYTES)
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return False
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


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

    def heartbeat(self, text: bytes) -> None:
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
                write_object(self._mine, FREE)
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
    write_object(aside, record)
    try:
        return create_once(aside, path)
    finally:
        aside.unlink(missing_ok=True)
