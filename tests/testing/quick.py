"""What a test of the gate may not do: sleep above ten milliseconds, or start a process.

A tenth of the tests did, and took most of the time of all. Those that must are a `journey` (a promise, a command or an
exit code, by the installed program), a `contract` (another program, a server, the kernel), or run by `--all` alone.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

LONGEST_SLEEP_S = 0.01
STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")
"""Audit events: docs.python.org, "Audit events table"."""
EXEMPT = ("all", "long", "journey", "contract", "gpu")
"""Marks of tests that may."""
BETWEEN = (__file__, str(Path(__file__).with_name("turns.py")))
"""Files through which others wait."""


class Watch:
    """Notes what a test does that takes long, and where; None is looked at while `seen` is None."""

    def __init__(self) -> None:
        self.seen: Counter[str] | None = None
        self.has_started = False
        """Whether the test has started a process, which knows the real time alone."""
        self._sleep = time.sleep
        time.sleep = self._rest
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _: object) -> None:
        if event in STARTS:
            self.hear_start(event)

    def hear_start(self, how: str) -> None:
        """Note that a process is started, by this process or for it."""
        self.has_started = True
        if self.seen is not None:
            self._note(f"starts a process ({how})")

    def _rest(self, seconds: float) -> None:
        if self.seen is not None and seconds > LONGEST_SLEEP_S:
            self._note(f"sleeps {seconds:.2g} s")
        self._sleep(seconds)

    def _note(self, what: str) -> None:
        frame: FrameType | None = sys._getframe(2)
        while frame and not is_ours(frame.f_code.co_filename):
            frame = frame.f_back
        if self.seen is not None:
            self.seen[f"{what} at {frame.f_code.co_filename}:{frame.f_lineno}" if frame else what] += 1


def is_ours(name: str) -> bool:
    """Return whether a file is of the product or its tests."""
    return ("/splatbatch/" in name or "/tests/" in name) and "/site-packages/" not in name and name not in BETWEEN


WATCH = Watch()
