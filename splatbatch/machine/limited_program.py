"""A program of somebody else, run to its end within limits of time and memory; whatever it has started ends with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from splatbatch.files import MIB
from splatbatch.processes import descendants, descendants_at_a_glance, die_with_parent, send, send_group

POLL_S = 0.05
MOST_SAID = 4096
"""Characters of what it said that are kept: the last ones."""


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

    def why(self, bounds: CallBounds) -> str:
        """Return in one line why it did not end well."""
        last = next((line.strip() for line in reversed(self.said.splitlines()) if line.strip()), "it said nothing")
        match self.exceeded:
            case "time":
                return f"was ended after {bounds.wall_s:g} s (last: {last})"
            case "memory":
                return f"was ended at {self.peak_mib} MiB of memory; {bounds.memory_mib} may be used (last: {last})"
            case _:
                how = f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
                return f"{how}: {last}"


@dataclass(frozen=True)
class CallContext:
    """Where a program runs."""

    folder: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to ours."""
    tick: Callable[[], None] = lambda: None
    """Called while it runs; what it raises ends the program."""


def run_bounded(command: Sequence[str], bounds: CallBounds, within: CallContext = CallContext()) -> ProgramEnd:
    """Run a program to its end, or until it exceeds a limit.

    Raises:
        OSError: it cannot be started.
    """
    began, peak = time.monotonic(), 0
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            cwd=within.folder,
            env={**os.environ, **within.environment},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, signal.SIGKILL, os.getpid()),  # noqa: PLW1509 - it makes two calls
        )
        exceeded: Literal["", "time", "memory"] = ""
        try:
            while process.poll() is None and not exceeded:
                within.tick()
                peak = max(peak, memory_mib(process.pid))
                if time.monotonic() - began > bounds.wall_s:
                    exceeded = "time"
                elif peak > bounds.memory_mib:
                    exceeded = "memory"
                else:
                    time.sleep(POLL_S)
        finally:
            _end(process)
        size = said.seek(0, os.SEEK_END)
        said.seek(max(0, size - MOST_SAID))
        words = said.read().decode(errors="replace")
    return ProgramEnd(process.returncode, words, peak, exceeded, time.monotonic() - began)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it has started; one that has ended by itself leaves at most its group."""
    below = descendants(process.pid) if process.poll() is None else []
    send_group(signal.SIGKILL, process.pid)
    send(signal.SIGKILL, below)
    process.wait()


def memory_mib(pid: int) -> int:
    """Return what a process and all below it hold in memory."""
    pages = 0
    for one in (pid, *descendants_at_a_glance(pid)):
        with contextlib.suppress(OSError, IndexError, ValueError):
            pages += int(Path(f"/proc/{one}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // MIB
