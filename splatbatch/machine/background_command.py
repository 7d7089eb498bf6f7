"""Background commands of splatbatch that outlive the command that starts them: own session, output in a log file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

Detached = subprocess.Popen[bytes]
"""A started background command; it runs on if this process ends."""


def command_of(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the command line that runs this installation of splatbatch with other arguments.

    The program is an absolute path.
    """
    called = Path(sys.argv[0])
    program = [str(called.resolve())] if called.is_file() and called.name != "__main__.py" else ["-m", "splatbatch"]
    return (sys.executable, *program, *arguments)


def start(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Detached:
    """Start a command in a session of its own; its output is appended to a log, and nothing waits for its end.

    Args:
        command: program and arguments.
        log: path of the log; its folder must exist.
        environment: all environment variables of the command; None: those of this process.

    Raises:
        OSError: the command cannot be started, or the log cannot be written.
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
