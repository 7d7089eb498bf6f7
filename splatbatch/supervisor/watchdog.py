"""Whether an attempt still does anything: writes progress, says something, or uses the processor it trains on."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from splatbatch import processes

IDLE_SHARE = 0.01
"""Who uses less than this share of one CPU does nothing: an idle viewer wakes up now and then."""


@dataclass
class Watchdog:
    """Knows since when nothing has moved."""

    progress: Path
    pid: int
    moved_at: float = field(default_factory=time.monotonic)
    _looked_at: float = field(default_factory=time.monotonic)
    _traces: tuple[int, ...] = ()
    _cpu_s: float = 0.0

    def look(self, log_bytes: int, gpu_percent: int | None) -> None:
        """Note whether anything has moved since the last look.

        Args:
            log_bytes: what the process has said so far.
            gpu_percent: the highest utilisation of its GPU since the last look; None: it has none, so that the
                CPU time of the process and all below it counts.
        """
        now = time.monotonic()
        traces = (log_bytes, *_size_and_time(self.progress))
        if traces != self._traces or self._works(gpu_percent, now - self._looked_at):
            self.moved_at = now
        self._traces, self._looked_at = traces, now

    def idle_s(self) -> float:
        """Return for how long nothing has moved."""
        return time.monotonic() - self.moved_at

    def _works(self, gpu_percent: int | None, since_s: float) -> bool:
        if gpu_percent is not None:
            return gpu_percent > 0
        before, self._cpu_s = self._cpu_s, processes.cpu_s(self.pid)
        # less than before: a process has gone whose time nobody inherited
        return not before <= self._cpu_s <= before + IDLE_SHARE * since_s


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        stat = os.stat(path)  # noqa: PTH116 - one call for both
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns
