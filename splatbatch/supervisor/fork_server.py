"""The fork server, `python -m splatbatch.supervisor.fork_server <blanks> PROGRAM…`: forks supervisors in milliseconds.

The server has imported all modules that supervisors need, and the named programs. Its parent sends paths of attempt
folders through stdin, a socket, one at a time; each supervisor answers with its pid. A supervisor is then as if started
as a program: a child of that parent, in its own session, without descriptors of the server, with its own command line.
A supervisor outlives the server.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from splatbatch import processes
from splatbatch.machine.supervisors import SUPERVISOR
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.supervisor import preload
from splatbatch.supervisor.watch import supervise

CHANNEL = 0
"""Descriptor of the socket to the parent: stdin."""
MOST_BYTES = 1 << 13
"""Longest message in bytes; a path has at most 4096."""
NONE_MADE = b"0"
"""Answer if no supervisor was forked."""


def serve(parent: int) -> None:
    """Fork a supervisor for each path from the channel, until the parent closes it.

    If no process can be forked, the answer is `NONE_MADE`.

    Args:
        parent: pid of the parent, which adopts the supervisors.

    Raises:
        OSError: the channel fails.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, no parent can wait for a child
    gc.freeze()  # what is never looked at again stays shared with those that are forked; to collect it takes 0.1 s
    while message := os.read(CHANNEL, MOST_BYTES):
        try:
            _fork(os.fsdecode(message), parent)
        except OSError:  # no process is to be had
            os.write(CHANNEL, NONE_MADE)


def _fork(path: str, parent: int) -> None:
    """Fork a supervisor by way of a child that exits, so that the server's parent, a subreaper, adopts it."""
    wait_here, gate = os.pipe()
    if (between := os.fork()) == 0:
        try:
            if os.fork() == 0:
                os.close(gate)
                _become_supervisor(path, parent, wait_here)
        except OSError:
            os.write(CHANNEL, NONE_MADE)
        os._exit(0)
    os.close(wait_here)
    os.waitpid(between, 0)
    os.close(gate)


def _become_supervisor(path: str, parent: int, gate: int) -> NoReturn:
    """Run as the supervisor once the server's parent has adopted this process and knows its pid; never return."""
    code = 1
    try:
        os.read(gate, 1)
        os.close(gate)
        if _introduced(path, parent):
            code = supervise(AttemptFolder(Path(path)), preload.spare())
    finally:
        os._exit(code)


def _introduced(path: str, parent: int) -> bool:
    """Give up session, command line and descriptors of the server, and send the pid; return False if that failed."""
    os.setsid()
    if os.getppid() != parent or not preload.entitle((sys.executable, "-m", SUPERVISOR, path)):
        os.write(CHANNEL, NONE_MADE)
        return False
    processes.die_with_parent(signal.SIGTERM, parent)
    os.write(CHANNEL, str(os.getpid()).encode())
    processes.redirect_to_null(CHANNEL)
    return True


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, OSError):
        parent = os.getppid()
        preload.load(sys.argv[2:])
        serve(parent)
