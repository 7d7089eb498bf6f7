"""One run at a time per output folder.

On one host the kernel decides (flock), so a killed run leaves nothing to clean up; where the file system has no flock,
whoever makes the next generation of the file first. Between hosts that share the folder without sharing locks, a
sequence number decides: as long as it moves, its writer lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from pathlib import Path
from types import TracebackType

from splatbatch.errors import BusyError, OutputError
from splatbatch.fields import whole
from splatbatch.files import Record, read_json
from splatbatch.output.generations import Generations
from splatbatch.output.records.run import Holder
from splatbatch.processes import boot_id, start_ticks

BEAT_S = 5.0
SILENCE_S = 3 * BEAT_S
RECORD_BYTES = 512
DYING_S = 2.0
"""A killed run's lock may live on in a child between fork and exec, for a moment."""


class OutputLock:
    """Holds the output folder while the `with` block runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sequence = 0
        self._since = time.strftime("%Y-%m-%d %H:%M:%S")
        self._next_beat = 0.0
        self._descriptor = -1
        self._generations = Generations(path)

    def __enter__(self) -> OutputLock:
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise OutputError(f"{self._path}: cannot be opened ({error.strerror})") from error
        locked = self._lock_from_the_living()
        before = read_json(self._path) or {}
        if locked is False or (_lives(before, self._path) if locked is None else _is_beaten(before, self._path)):
            os.close(self._descriptor)
            raise _held(self._path, before)
        if locked is None and (other := self._generations.take(self._identity(), _lives)) is not None:
            os.close(self._descriptor)
            raise _held(self._path, other)
        try:
            self.heartbeat()
        except OSError:
            os.close(self._descriptor)
            raise
        return self

    def _lock_from_the_living(self) -> bool | None:
        """Lock; what is held although nobody alive says so is about to be free, or about to be somebody's."""
        give_up_at = time.monotonic() + DYING_S
        while (locked := self._lock()) is False and holder(self._path) is None and time.monotonic() < give_up_at:
            time.sleep(0.02)
        return locked

    def _lock(self) -> bool | None:
        """Return whether the lock is ours; None if the file system has none (Lustre without -o flock)."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False
        except OSError:
            return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # emptied, not removed: a lock file that vanishes could be locked twice, once under each of two inodes
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._generations.free()

    def heartbeat(self) -> None:
        """Show that we live, at most every few seconds."""
        if time.monotonic() < self._next_beat:
            return
        # its first record must be written; that a later one could not be must not end a batch
        with contextlib.suppress(*((OSError,) if self._sequence else ())):
            self._write()

    def _write(self) -> None:
        self._next_beat = time.monotonic() + BEAT_S
        self._sequence += 1
        text = json.dumps(self._identity()).encode().ljust(RECORD_BYTES)
        # in place, since the lock belongs to this very file, and of one length, so that no reader sees it torn
        os.pwrite(self._descriptor, text, 0)
        self._generations.heartbeat(text)

    def _identity(self) -> Record:
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "boot_id": boot_id(),
            "ticks": start_ticks(os.getpid()),
            "sequence": self._sequence,
            "since": self._since,
        }


def holder(path: Path) -> Holder | None:
    """Return who runs in an output folder, as far as this host can tell; None if nobody does."""
    record = read_json(path) or {}
    found = Holder.from_record(record)
    if not found.host or found.pid is None:
        return None
    return found if _is_elsewhere(record) or _runs_here(record) else None


def sequence_of(path: Path) -> int | None:
    """Return how often the holder has beaten, whether it still lives or not."""
    found = Holder.read(path)
    return found.sequence if found else None


def _is_elsewhere(record: Record) -> bool:
    return record.get("host") != socket.gethostname()


def _runs_here(record: Record) -> bool:
    """Return whether the very process that a record of this host names still runs."""
    pid, ticks = whole(record.get("pid")), record.get("ticks")
    return record.get("boot_id") == boot_id() and pid is not None and start_ticks(pid) == ticks != 0


def _lives(record: Record, beats_in: Path) -> bool:
    """Return whether the writer of a record, on this host or another, still lives."""
    return _is_beaten(record, beats_in) or (not _is_elsewhere(record) and _runs_here(record))


def _is_beaten(record: Record, beats_in: Path) -> bool:
    """Return whether a record is of another host, and still moves."""
    return record.get("host") is not None and _is_elsewhere(record) and _moves(beats_in, record)


def _moves(path: Path, before: Record) -> bool:
    """Return whether the holder on another host still counts; asks for as long as three of its beats."""
    end = time.monotonic() + SILENCE_S
    while time.monotonic() < end:
        time.sleep(0.5)
        if (read_json(path) or before).get("sequence") != before.get("sequence"):
            return True
    return False


def _held(path: Path, holder: Record) -> BusyError:
    known = {"pid", "host", "since"} <= holder.keys()
    who = f"process {holder['pid']} on {holder['host']} since {holder['since']}" if known else "another run"
    return BusyError(
        f"{path.parent}: {who} is training into this folder",
        "Wait for it, end it with `splatbatch cancel`, or name another output.folder. See `splatbatch status`.",
    )
