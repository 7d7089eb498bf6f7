"""`python -m splatbatch.supervisor.fork_server <blanks> PROGRAM…`: has imported what supervisors need, and forks them.

Its parent sends paths of attempt folders through stdin, a socket, one at a time; the supervisor of each answers
with its number. It is then as if started as a program: a child of that very parent, in a session of its own, without
any descriptor of the server, under its own command line. It outlives the server. Programs are loaded, too: what they
are to do begins at once.
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
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.supervisor import preload
from splatbatch.supervisor.watch import supervise

SUPERVISOR = "splatbatch.supervisor"
CHANNEL = 0
MOST_BYTES = 1 << 13
"""Of a message; a path has 4096 at most."""
NONE_MADE = b"0"


def serve(parent: int) -> None:
    """Fork until the other side closes the channel."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, no parent can wait for a child
    gc.freeze()  # what is never looked at again stays shared with those that are forked; to collect it takes 0.1 s
    while message := os.read(CHANNEL, MOST_BYTES):
        try:
            _fork(os.fsdecode(message), parent)
        except OSError:  # no process is to be had
            os.write(CHANNEL, NONE_MADE)


def _fork(path: str, parent: int) -> None:
    """Make a supervisor without a parent, so that its subreaper, our parent, adopts it."""
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
    """Supervise, once our parent has adopted us and knows our number; never come back."""
    code = 1
    try:
        os.read(gate, 1)
        os.close(gate)
        if _introduced(path, parent):
            code = supervise(AttemptFolder(Path(path)), preload.spare())
    finally:
        os._exit(code)


def _introduced(path: str, parent: int) -> bool:
    """Leave everything of the server's behind; return whether our parent now counts on us."""
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
