"""The gate in front of the whole batch: nothing starts while the disk or shared memory is short."""

from __future__ import annotations

import shutil
from pathlib import Path

from splatbatch.config import Limits
from splatbatch.files import MIB, SHARED_MEMORY, free_mib, write_whole
from splatbatch.outcome import Diagnosis
from splatbatch.store.events import Paused, Resumed
from splatbatch.store.ledger import Ledger

SHARED_MEMORY_MIB = 64
"""What data loaders need at the very least."""
LOOK_S = 1.0
PAUSE_S = 3600.0
"""So long the patches that wait for room wait, then they are given up: whoever clears a disk at night has an hour."""
PROBE_BYTES = 1 << 20


class DiskGuard:
    """Shuts when room is short, and says so once; opens when it is back, and says that."""

    def __init__(self, folder: Path, limits: Limits, ledger: Ledger) -> None:
        self.reason = ""
        self._failed_write = ""
        self._folder = folder
        self._limits = limits
        self._ledger = ledger
        self._look_at = float("-inf")
        self._shut_at = 0.0

    def is_open(self, now: float) -> bool:
        """Return whether an attempt may start."""
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._note(now, self._what_is_short())
        return not self.reason

    def takes_writes(self, now: float) -> bool:
        """Return whether what failed to be written may be tried again."""
        self.is_open(now)
        return not self._failed_write

    def shut(self, now: float, failed_write: str) -> None:
        """Shut the gate since a write has failed, which is how a quota is seen; until a trial write succeeds."""
        self._failed_write = failed_write
        self._look_at = now + LOOK_S
        self._note(now, self._failed_write)

    def given_up(self, now: float) -> bool:
        """Return whether it has been shut for longer than anyone wants to wait."""
        return bool(self.reason) and now - self._shut_at > PAUSE_S

    def diagnosis(self) -> Diagnosis:
        """Return why the patches that still wait are not trained."""
        advice = "Free space on the disk of output.folder, then run again."
        return Diagnosis("disk_full", "fail", advice, (self.reason,), "start")

    def _note(self, now: float, reason: str) -> None:
        if reason and not self.reason:
            self._shut_at = now
            self._ledger.write(Paused(reason))
        elif self.reason and not reason:
            self._ledger.write(Resumed(round(now - self._shut_at, 1)))
        self.reason = reason

    def _what_is_short(self) -> str:
        if self._failed_write and not self._trial_succeeds():
            return self._failed_write
        self._failed_write = ""
        wanted = self._limits.free_disk_mib
        free = free_mib(self._folder)
        if free is not None and free < wanted:
            return f"{free} MiB free on the disk of {self._folder}, wanted {wanted} (limits.free_disk_mib)"
        return _shared_memory_is_short() if wanted else ""

    def _trial_succeeds(self) -> bool:
        probe = self._folder / ".room"
        try:
            write_whole(probe, lambda file: file.write(bytes(PROBE_BYTES)))
            probe.unlink()
        except OSError:
            return False
        return True


def _shared_memory_is_short() -> str:
    try:
        total, _, free = (amount // MIB for amount in shutil.disk_usage(SHARED_MEMORY))
    except OSError:
        return ""
    # Docker gives 64 MiB in all: there half of it has to do
    wanted = min(SHARED_MEMORY_MIB, total // 2)
    return f"{free} MiB free in {SHARED_MEMORY}, wanted {wanted}" if free < wanted else ""
