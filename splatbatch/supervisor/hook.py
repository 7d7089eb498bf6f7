"""A command told something once: started aside, bounded in time, ended with all that it started. Waits for nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence

from splatbatch import processes

MARK = "hook"


class Hook:
    """A command that got its message on stdin. What it prints goes nowhere: it may repeat a password."""

    def __init__(self, argv: Sequence[str], message: bytes, timeout_s: float) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        self._timeout_s = timeout_s
        self._ends_at = time.monotonic() + timeout_s
        # a file, not a pipe: a command that never reads must not hold us up
        with tempfile.TemporaryFile() as file:
            file.write(message)
            file.seek(0)
            nowhere = subprocess.DEVNULL
            self._process = subprocess.Popen(
                list(argv),
                stdin=file,
                stdout=nowhere,
                stderr=nowhere,
                env={**os.environ, processes.MARKER: MARK},  # what it leaves running is not of an attempt
                start_new_session=True,
            )

    def verdict(self) -> str | None:
        """Return None while it runs, "" if it ended well, else why not."""
        code = self._process.poll()
        if code is not None:
            return f"exit code {code}" if code else ""
        if time.monotonic() < self._ends_at:
            return None
        self._end()
        return f"ended after {self._timeout_s:g} s"

    def _end(self) -> None:
        below = processes.descendants(self._process.pid)
        processes.send_group(signal.SIGKILL, self._process.pid)
        processes.send(signal.SIGKILL, below)
        self._process.wait()
