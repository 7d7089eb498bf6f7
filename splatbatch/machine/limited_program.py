"""External programs that run within limits of time and memory; at a limit all their child processes end, too."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
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
"""Seconds between two checks of a program's limits."""
MOST_SAID = 4096
"""Most bytes of a program's output that are kept: its end."""
KILLED_WITHIN_S = 0.2
"""Seconds that a killed program is waited for."""
SHELL = ("/bin/sh", "-c", 'exec "$0" "$@"')
"""Command that starts a hook.

A program on a stalled mount then holds up the shell, not the batch.
"""
NEVER_BEGAN = (126, 127)
"""Exit codes of a shell that cannot start a command."""
HOOK_MARK = "hook"
"""Marker of the processes of a hook, which belong to no attempt."""


@dataclass(frozen=True)
class CallBounds:
    """Limits of a program: `wall_s` seconds from its start, and memory together with all its descendants."""

    wall_s: float = 1800.0
    memory_mib: int = 8192
    """Most resident memory of the program and all its descendants together, in MiB."""


USUAL = CallBounds()
"""Limits of programs that make files of a splat, unless others are given.

For 10 million Gaussians, 3D Tiles take 880 MiB and 183 s; SOG's clustering on a CPU takes hours.
"""


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended, after `seconds` since its start."""

    code: int
    """Exit code; negative: minus the number of the signal that ended the program.

    That of SIGKILL, too, if a killed program has not ended yet.
    """
    said: str
    """Last `MOST_SAID` bytes of the kept output, as text; empty if nothing was printed or kept."""
    peak_mib: int = 0
    """Most resident memory seen, in MiB, as looked at in each `LimitedProgram.poll`; 0: never looked at."""
    exceeded: Literal["", "time", "memory"] = ""
    """Limit at which the program was killed; empty: it ended within its limits."""
    seconds: float = 0.0

    @property
    def is_well(self) -> bool:
        """Whether the program exited with 0, within its limits."""
        return self.code == 0 and not self.exceeded

    @property
    def last_words(self) -> str:
        """Last line of the kept output that is not blank; empty if there is none."""
        return next((line.strip() for line in reversed(self.said.splitlines()) if line.strip()), "")

    @property
    def in_words(self) -> str:
        """Exit code or signal, and the last line of the output, for a message."""
        ended = f"ended by signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return f"{ended}: {self.last_words}" if self.last_words else ended

    def why(self, bounds: CallBounds) -> str:
        """Return in one line why the program failed: the limit, with its last line of output, or `in_words`.

        Args:
            bounds: limits that the program had, for the message.
        """
        last = self.last_words or "no output"
        match self.exceeded:
            case "time":
                return f"was ended after {bounds.wall_s:g} s (last: {last})"
            case "memory":
                return f"was ended at {self.peak_mib} MiB of memory; {bounds.memory_mib} may be used (last: {last})"
            case _:
                return self.in_words


class LimitedProgram:
    """A running external program in a session of its own; `poll` ends the program when it exceeds a limit.

    The program dies with this process. Once it has ended, `poll` kills what is left of its process group; at a limit,
    all its descendants.
    """

    def __init__(  # noqa: PLR0913 - what a program is given
        self,
        command: Sequence[str],
        bounds: CallBounds,
        message: bytes = b"",
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        kept: Literal["all", "stdout", "nothing"] = "all",
    ) -> None:
        """Start the program.

        Args:
            command: the program and its arguments.
            bounds: limits at which the program is ended.
            message: bytes on its stdin; empty: none.
            folder: its working folder; None: that of this process.
            environment: variables added to those of this process; None: none.
            kept: which output is kept for `ProgramEnd.said`; "all" is stdout and stderr.

        Raises:
            OSError: the program cannot be started.
        """
        self._bounds, self._began, self._peak_mib = bounds, time.monotonic(), 0
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
        """Return how the program ended, or None while it runs within its limits.

        A program beyond a limit is ended first.

        Call it often: memory and time are only checked here.
        """
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
        """Wait for the end of the program and return how it ended; an exception meanwhile ends the program."""
        try:
            while (end := self.poll()) is None:
                time.sleep(POLL_S)
            return end
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Kill the program and all its descendants; if it has ended, what is left of its process group.

        A hang in the kernel is not waited for.
        """
        below = descendants(self._process.pid) if self._process.poll() is None else []
        send_group(signal.SIGKILL, self._process.pid)
        send(signal.SIGKILL, below)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILLED_WITHIN_S)


def run_bounded(command: Sequence[str], bounds: CallBounds, *, folder: Path | None = None) -> ProgramEnd:
    """Run a program to its end, or until it exceeds a limit, and return how it ended; see `LimitedProgram`.

    Args:
        command: the program and its arguments.
        bounds: limits at which the program is ended.
        folder: its working folder; None: that of this process.

    Raises:
        OSError: the program cannot be started.
    """
    return LimitedProgram(command, bounds, folder=folder).wait()


class Hook(LimitedProgram):
    """A command of the user that gets one message on its stdin, and runs beside a batch.

    The batch need not wait: it asks `verdict` now and then. The memory of the command is not limited.
    """

    def __init__(self, argv: Sequence[str], message: bytes, timeout_s: float, *, is_heard: bool = False) -> None:
        """Start the command; its output is dropped by default, since it may repeat a password.

        Args:
            argv: the command.
            message: bytes on its stdin.
            timeout_s: seconds after which the command is ended.
            is_heard: keep its stdout, whose last line says why it failed; for programs of splatbatch alone.

        Raises:
            OSError: the shell cannot be started.
        """
        super().__init__(
            [*SHELL, *argv],
            CallBounds(timeout_s, sys.maxsize),
            message,
            environment={MARKER: HOOK_MARK},  # what it leaves running is not of an attempt
            kept="stdout" if is_heard else "nothing",
        )

    def verdict(self) -> str | None:
        """Return None while the command runs, "" if it succeeded, else why it failed."""
        end = self.poll()
        if end is None or end.is_well:
            return None if end is None else ""
        if end.exceeded:
            return f"took too long, and was ended after {self._bounds.wall_s:g} s"
        if end.code in NEVER_BEGAN:
            return f"cannot be started (exit code {end.code})"
        return end.in_words


def memory_mib(pid: int) -> int:
    """Return the resident memory of a process and all its descendants together, in MiB; 0 if the process is gone."""
    resident = (kernel_file(f"/proc/{one}/statm").split()[1:2] for one in (pid, *descendants_at_a_glance(pid)))
    return sum(int(pages) for found in resident for pages in found) * os.sysconf("SC_PAGE_SIZE") // MIB
