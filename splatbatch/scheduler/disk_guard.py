"""Pauses a batch while disk space or shared memory is short: no attempt starts, and failed writes wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from splatbatch.config import Limits
from splatbatch.errors import SplatbatchError
from splatbatch.failures.retry import PASSES_WITHIN_S
from splatbatch.files import SHARED_MEMORY, SHARED_MEMORY_MIB, free_mib, is_out_of_space, shared_memory_mib, write_whole
from splatbatch.isolated import WaitHooks
from splatbatch.outcome import Diagnosis
from splatbatch.output.events import Notice, Resumed
from splatbatch.output.ledger import Ledger
from splatbatch.text import clock

Written = TypeVar("Written")

LOOK_S = 1.0
"""Seconds between two looks at the free space."""
DISK_FULL = "disk_full"
"""Cause of attempts that failed since the disk was full."""
PAUSE_S = PASSES_WITHIN_S
"""Seconds that a batch waits for free space before waiting tasks are given up: an hour."""
PROBE_BYTES = 1 << 20
"""Bytes of a trial write: 1 MiB."""


@dataclass
class DiskGuard:
    """Stops new attempts while space is short on the disk of the output folder, or in shared memory.

    Each change is written to the ledger once. All times are seconds by the clock of the loop.
    """

    folder: Path
    limits: Limits
    ledger: Ledger
    reason: str = ""
    """Reason why no attempt may start; empty: attempts may start."""
    _failed_write: str = ""
    _look_at: float = float("-inf")
    _shut_at: float = 0.0

    def is_open(self, now: float) -> bool:
        """Return whether an attempt may start; free space is read at most once a second.

        With `limits.free_disk_mib` 0, only failed writes count.

        Raises:
            OutputError: the ledger cannot be written.
        """
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._note(now, self._what_is_short())
        return not self.reason

    def takes_writes(self, now: float) -> bool:
        """Return whether a write that failed may be repeated: a trial write has succeeded since, or none has failed.

        Raises:
            OutputError: the ledger cannot be written.
        """
        self.is_open(now)
        return not self._failed_write

    def shut(self, now: float, failed_write: str) -> None:
        """Stop new attempts after a failed write, which is the only sign of a quota, until a trial write succeeds.

        Args:
            now: time by the clock of the loop, in seconds.
            failed_write: message of the error, for the ledger.

        Raises:
            OutputError: the ledger cannot be written.
        """
        self._failed_write = failed_write
        self._look_at = now + LOOK_S
        self._note(now, self._failed_write)

    def given_up(self, now: float) -> bool:
        """Return whether space has been short for more than an hour, so that waiting tasks are given up."""
        return bool(self.reason) and now - self._shut_at > PAUSE_S

    def diagnosis(self) -> Diagnosis:
        """Return the diagnosis (`disk_full`) for patches that are given up since space is short."""
        advice = "Free space on the disk of `output.folder`, then run the command again."
        return Diagnosis(DISK_FULL, "fail", advice, (self.reason,), "start")

    def _note(self, now: float, reason: str) -> None:
        if reason and not self.reason:
            self._shut_at = now
            self.ledger.write(Notice("paused", f"{reason}; the batch stops in {clock(PAUSE_S)} unless space is freed"))
        elif self.reason and not reason:
            self.ledger.write(Resumed(round(now - self._shut_at, 1)))
        self.reason = reason

    def _what_is_short(self) -> str:
        if self._failed_write and not takes_writes(self.folder):
            return self._failed_write
        self._failed_write = ""
        wanted = self.limits.free_disk_mib
        free = free_mib(self.folder)
        if free is not None and free < wanted:
            return f"{free} MiB free on the disk of {self.folder}, {wanted} MiB required (limits.free_disk_mib)"
        return _shared_memory_is_short() if wanted else ""


def takes_writes(folder: Path) -> bool:
    """Return whether a trial write of 1 MiB into a folder succeeds, which also tests a quota.

    No file is left behind.
    """
    probe = folder / ".room"
    try:
        write_whole(probe, lambda file: file.write(bytes(PROBE_BYTES)))
        probe.unlink()
    except OSError:
        return False
    return True


def when_there_is_room(write: Callable[[], Written], folder: Path, hooks: WaitHooks) -> Written:
    """Call a function that writes, and return its result; on a full disk call it again once there is room.

    After an hour without room the error is raised.

    Args:
        write: function to call, which may safely be repeated at any point.
        folder: folder on the disk that may be full.
        hooks: functions called while waiting, which may request a stop.

    Raises:
        StopRequested: a stop was requested meanwhile.
        SplatbatchError, OSError: raised by `write`, also if there is no room within the hour.
    """
    give_up_at = 0.0
    while True:
        try:
            return write()
        except (SplatbatchError, OSError) as error:
            now = time.monotonic()
            give_up_at = give_up_at or now + PAUSE_S
            if not is_out_of_space(error) or now > give_up_at:
                raise
            hooks.tick_or_stop()
            hooks.tell(f"paused until there is room on the disk of {folder} ({error})")
        time.sleep(LOOK_S)
        while not takes_writes(folder) and time.monotonic() <= give_up_at:
            hooks.tick_or_stop()
            time.sleep(LOOK_S)


def _shared_memory_is_short() -> str:
    total, free = shared_memory_mib() or (0, 0)
    # Docker gives 64 MiB in all, of which half must suffice
    wanted = min(SHARED_MEMORY_MIB, total // 2)
    return f"{free} MiB free in {SHARED_MEMORY}, {wanted} MiB required" if free < wanted else ""
