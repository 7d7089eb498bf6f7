"""Whether a supervisor still does anything. One that stands still is woken, and ended if that does not help."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from splatbatch.store.attempt_folder import AttemptFolder

SILENCE_S = 60.0
"""A supervisor turns its loop twenty times a second and beats every second; so long without either, it is frozen."""
DEVICE_SILENCE_S = 600.0
"""The same for one that waits for a disk or a share: a file server that restarts must not cost a training."""
WAKING_S = 5.0
MOST_WAKINGS = 3
"""What somebody stops again and again is ended at last: its own limits do not count while it stands."""
LOOK_S = 1.0
LONGEST_STEP_S = 3 * LOOK_S
"""No more than that counts between two looks: when more has passed, we stood still ourselves (a laptop asleep)."""


@dataclass
class SilenceWatch:
    """Counts for how long a supervisor has given no sign of life, by our own clock."""

    pid: int
    folder: AttemptFolder
    limit_s: float = 0.0
    """Of its silence; 0: the usual one. One that was asked to stop gets less."""
    silent_s: float = 0.0
    woken_s: float = -1.0
    wakings: int = 0
    _signs: object = None
    _looked_at: float = field(default_factory=time.monotonic)

    def look(self) -> Literal["", "wake", "end"]:
        """Return what is to be done about it; asked in every round, looks once a second."""
        now = time.monotonic()
        passed_s = now - self._looked_at
        if passed_s < LOOK_S:
            return ""
        self._looked_at = now
        signs = (_turns(self.pid), self.folder.read_heartbeat().sequence)
        if signs != self._signs:
            self._signs, self.silent_s, self.woken_s = signs, 0.0, -1.0
            return ""
        self.silent_s += min(passed_s, LONGEST_STEP_S)
        return self._what_to_do()

    def _what_to_do(self) -> Literal["", "wake", "end"]:
        usual_s = DEVICE_SILENCE_S if _state(self.pid) == "D" else SILENCE_S
        if self.woken_s < 0 and self.silent_s > (self.limit_s or usual_s):
            self.woken_s = self.silent_s
            self.wakings += 1
            return "wake" if self.wakings <= MOST_WAKINGS else "end"
        return "end" if 0 <= self.woken_s < self.silent_s - WAKING_S else ""


def _turns(pid: int) -> str:
    """Return how often a process has gone to sleep by itself: a loop that turns does so all the time, proc(5)."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                return line
    return ""


def _state(pid: int) -> str:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
