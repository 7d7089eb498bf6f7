"""A command of ours that outlives the one that started it: in a session of its own, its words in a file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

Detached = subprocess.Popen[bytes]


def command_of(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the command line of this very program with other arguments."""
    called = Path(sys.argv[0])
    program = [str(called.resolve())] if called.is_file() and called.name != "__main__.py" else ["-m", "splatbatch"]
    return (sys.executable, *program, *arguments)


def start(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Detached:
    """Start a command; what it prints goes into `log`.

    Raises:
        OSError: it cannot be started, or the file cannot be written.
    """
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
