"""A command told something once: started aside, bounded in time, ended with all that it started. Waits for nobody."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import IO

from splatbatch import processes

MARK = "hook"
SHELL = ("/bin/sh", "-c", 'exec "$0" "$@"')
"""Starts the command: a program on a mount that hangs then holds up the shell, and not us."""
NEVER_BEGAN = (126, 127)
"""Exit codes of a shell that cannot start a command."""
KILLED_WITHIN_S = 0.2
"""So long we look on while one that was killed goes; one that hangs in the kernel is left to it."""
TAIL_BYTES = 4096


class Hook:
    """A command that got its message on stdin. What it prints goes nowhere: it may repeat a password."""

    def __init__(self, argv: Sequence[str], message: bytes, timeout_s: float, *, is_heard: bool = False) -> None:
        """Start it.

        Args:
            argv: the command.
            message: on its stdin.
            timeout_s: it is ended after that.
            is_heard: its last line says why it failed; for programs of ours, which repeat no password.

        Raises:
            OSError: it cannot be started.
        """
        self._timeout_s = timeout_s
        self._ends_at = time.monotonic() + timeout_s
        self._said: IO[bytes] | None = tempfile.TemporaryFile() if is_heard else None  # noqa: SIM115 - read at its end
        # a file, not a pipe: a command that never reads must not hold us up
        with tempfile.TemporaryFile() as file:
            file.write(message)
            file.seek(0)
            self._process = subprocess.Popen(
                [*SHELL, *argv],
                stdin=file,
                stdout=self._said or subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, processes.MARKER: MARK},  # what it leaves running is not of an attempt
                start_new_session=True,
            )

    def verdict(self) -> str | None:
        """Return None while it runs, "" if it ended well, else why not."""
        code = self._process.poll()
        if code is not None:
            return self._why(code) if code else ""
        if time.monotonic() < self._ends_at:
            return None
        self.end()
        return f"ended after {self._timeout_s:g} s"

    def end(self) -> None:
        """End it with all that it has started."""
        below = processes.descendants(self._process.pid)
        processes.send_group(signal.SIGKILL, self._process.pid)
        processes.send(signal.SIGKILL, below)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILLED_WITHIN_S)

    def _why(self, code: int) -> str:
        if code in NEVER_BEGAN:
            return f"cannot be started (exit code {code})"
        ended = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
        said = self._last_line()
        return f"{ended}: {said}" if said else ended

    def _last_line(self) -> str:
        if self._said is None:
            return ""
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - TAIL_BYTES))
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""
