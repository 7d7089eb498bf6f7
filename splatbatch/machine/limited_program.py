"""An external program, run to its end within limits of time and memory; whatever it has started ends with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Literal

from splatbatch.files import MIB
from splatbatch.processes import (
    MARKER,
    descendants,
    descendants_at_a_glance,
    die_with_parent,
    kernel_file,
    send,
    send_group,
)

POLL_S = 0.05
MOST_SAID = 4096
"""Characters of what it said that are kept: the last ones."""
KILLED_WITHIN_S = 0.2
"""So long we look on while one that was killed goes."""
SHELL = ("/bin/sh", "-c", 'exec "$0" "$@"')
"""Starts a hook: a program on a mount that hangs then holds up the shell, and not us."""
NEVER_BEGAN = (126, 127)
"""Exit codes of a shell that cannot start a command."""
HOOK_MARK = "hook"


@dataclass(frozen=True)
class CallBounds:
    """What a program may use."""

    wall_s: float = 1800.0
    memory_mib: int = 8192
    """Of it and all that it starts, together."""


USUAL = CallBounds()
"""Of 10 million Gaussians 880 MiB and 183 s are taken by 3D Tiles; SOG's clustering on a CPU would go on for hours."""


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended."""

    code: int
    """As a shell has it: negative for a signal."""
    said: str
    """The last of what it printed, errors included."""
    peak_mib: int = 0
    """As seen twenty times a second."""
    exceeded: Literal["", "time", "memory"] = ""
    """The limit for which it was ended; empty: it ended by itself."""
    seconds: float = 0.0

    @property
    def is_well(self) -> bool:
        """Return whether it ended by itself and says that all went well."""
        return self.code == 0 and not self.exceeded

    @property
    def last_words(self) -> str:
        """Return the last line of what it said; empty if it said nothing."""
        return next((line.strip() for line in reversed(self.said.splitlines()) if line.strip()), "")

    @property
    def in_words(self) -> str:
        """Return how it ended by itself, and the last line of what it said."""
        ended = f"ended by signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return f"{ended}: {self.last_words}" if self.last_words else ended

    def why(self, bounds: CallBounds) -> str:
        """Return in one line why it did not end well."""
        last = self.last_words or "it said nothing"
        match self.exceeded:
            case "time":
                return f"was ended after {bounds.wall_s:g} s (last: {last})"
            case "memory":
                return f"was ended at {self.peak_mib} MiB of memory; {bounds.memory_mib} may be used (last: {last})"
            case _:
                how = f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
                return f"{how}: {last}"


class LimitedProgram:
    """An external program while it runs, in a session of its own; `poll` ends it at a limit."""

    def __init__(  # noqa: PLR0913 - what a program is given
        self,
        command: Sequence[str],
        bounds: CallBounds,
        message: bytes = b"",
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        tick: Callable[[], None] | None = None,
        kept: Literal["all", "stdout", "nothing"] = "all",
    ) -> None:
        """Start it.

        Args:
            command: of it.
            bounds: at which it is ended.
            message: on its stdin.
            folder: that it runs in; None: ours.
            environment: added to ours.
            tick: called while it is waited for; what that raises ends it.
            kept: so much of what it prints.

        Raises:
            OSError: it cannot be started.
        """
        self._bounds, self._tick, self._began, self._peak_mib = bounds, tick, time.monotonic(), 0
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - read at its end
        # a file, not a pipe: a program that never reads must not hold us up
        with tempfile.TemporaryFile() as told:
            told.write(message)
            told.seek(0)
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=told,
                stdout=subprocess.DEVNULL if kept == "nothing" else self._said,
                stderr=subprocess.STDOUT if kept == "all" else subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, signal.SIGKILL, os.getpid()),  # noqa: PLW1509 - it makes two calls
            )

    def poll(self) -> ProgramEnd | None:
        """Return how it ended, None while it runs within its limits; what it has started has ended, too."""
        exceeded: Literal["", "time", "memory"] = ""
        seconds = time.monotonic() - self._began
        if self._process.poll() is None:
            self._peak_mib = max(self._peak_mib, memory_mib(self._process.pid))
            if seconds > self._bounds.wall_s:
                exceeded = "time"
            elif self._peak_mib > self._bounds.memory_mib:
                exceeded = "memory"
            else:
                return None
        self.end()
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - MOST_SAID))
        words = self._said.read().decode(errors="replace")
        code = self._process.returncode
        return ProgramEnd(-signal.SIGKILL if code is None else code, words, self._peak_mib, exceeded, seconds)

    def wait(self) -> ProgramEnd:
        """Return how it ended, once it has; what is raised meanwhile ends it."""
        try:
            while (end := self.poll()) is None:
                if self._tick:
                    self._tick()
                time.sleep(POLL_S)
            return end
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End it with all that it has started; one that hangs in the kernel is left to it."""
        below = descendants(self._process.pid) if self._process.poll() is None else []
        send_group(signal.SIGKILL, self._process.pid)
        send(signal.SIGKILL, below)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILLED_WITHIN_S)


def run_bounded(
    command: Sequence[str],
    bounds: CallBounds,
    *,
    folder: Path | None = None,
    tick: Callable[[], None] | None = None,
) -> ProgramEnd:
    """Run a program to its end, or until it exceeds a limit; see `LimitedProgram`.

    Raises:
        OSError: it cannot be started.
    """
    return LimitedProgram(command, bounds, folder=folder, tick=tick).wait()


class Hook(LimitedProgram):
    """A command told something once, beside a batch that never waits for it."""

    def __init__(self, argv: Sequence[str], message: bytes, timeout_s: float, *, is_heard: bool = False) -> None:
        """Start it; what it prints goes nowhere, since it may repeat a password.

        Args:
            argv: the command.
            message: on its stdin.
            timeout_s: it is ended after that.
            is_heard: its last line says why it failed; for programs of ours, which repeat no password.

        Raises:
            OSError: it cannot be started.
        """
        bounds = CallBounds(timeout_s, sys.maxsize)
        kept: Literal["stdout", "nothing"] = "stdout" if is_heard else "nothing"
        marked = {MARKER: HOOK_MARK}  # what it leaves running is not of an attempt
        super().__init__([*SHELL, *argv], bounds, message, environment=marked, kept=kept)

    def verdict(self) -> str | None:
        """Return None while it runs, "" if it ended well, else why not."""
        end = self.poll()
        if end is None or end.is_well:
            return None if end is None else ""
        if end.exceeded:
            return f"ended after {self._bounds.wall_s:g} s"
        if end.code in NEVER_BEGAN:
            return f"cannot be started (exit code {end.code})"
        return end.in_words


def memory_mib(pid: int) -> int:
    """Return what a process and all below it hold in memory."""
    resident = (kernel_file(f"/proc/{one}/statm").split()[1:2] for one in (pid, *descendants_at_a_glance(pid)))
    return sum(int(pages) for found in resident for pages in found) * os.sysconf("SC_PAGE_SIZE") // MIB
