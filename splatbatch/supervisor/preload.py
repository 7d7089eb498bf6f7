"""Preloaded processes: children that have imported a trainer already and start it within milliseconds.

A supervisor forks such a child first of all, before the supervisor holds any state; the child waits for a command. The
child then behaves like a process started by name. It is in its own session, and dies with the supervisor.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import math
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from splatbatch import processes
from splatbatch.machine import control_group
from splatbatch.machine.supervisors import ForkedChild

MOST_BYTES = 1 << 20
"""Longest message to a preloaded process, in bytes: its command and its environment."""
BEGUN_S = 10.0
"""Seconds that a preloaded process may take to confirm that it runs the command."""
ADDED: dict[str, str] = {}
"""Environment variables that the programs set while they were imported."""


def load(programs: Sequence[str]) -> None:
    """Import programs (`NAME.__main__`); a program that fails is started by name later, and reports its error then.

    Variables that a program adds to the environment are kept in `ADDED`, for its own processes alone.
    """
    environment = dict(os.environ)
    gc.disable()  # it would look through all that is imported, again and again: an eighth of the time
    for program in programs:
        with suppress(Exception):
            importlib.import_module(f"{program}.__main__")
    ADDED.update({name: value for name, value in os.environ.items() if name not in environment})
    gc.enable()
    os.environ.clear()
    os.environ.update(environment)


class PreloadedProcess(ForkedChild):
    """A child process that has imported programs, and waits to be told which to run."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        """Take a forked child, which waits for its command at the other end of `channel`."""
        super().__init__(pid)
        self.channel = channel

    def begin(self, argv: Sequence[str], env: dict[str, str], cwd: Path, output: int, group: Path | None) -> bool:
        """Let the child run a command; return whether it runs, like a process started by name.

        False: the program is not loaded, the folder is missing, or the child does not answer; then start the program by
        name.

        Args:
            argv: command line: `sys.executable`, "-m", the name of the program, its arguments.
            env: all environment variables of the command.
            cwd: working folder.
            output: descriptor for stdout and stderr.
            group: control group of the process; None: none.
        """
        if not _is_loaded(argv) or not cwd.is_dir():
            return False
        told = {"argv": argv, "env": env, "cwd": str(cwd), "group": group and str(group)}
        with suppress(OSError):
            self.channel.settimeout(BEGUN_S)
            socket.send_fds(self.channel, [json.dumps(told).encode()], [output])
            return bool(self.channel.recv(1))
        return False

    def dismiss(self) -> None:
        """Kill the child, since no command is left for it, and wait for its end without a limit of time."""
        self.send_signal(signal.SIGKILL)
        self.wait(math.inf)
        self.channel.close()


def spare() -> PreloadedProcess | None:
    """Fork a preloaded process, which waits for `PreloadedProcess.begin`; None if no program was loaded.

    Raises:
        OSError: no process can be forked.
    """
    if not any(name.endswith(".__main__") and hasattr(module, "run") for name, module in [*sys.modules.items()]):
        return None
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    me = os.getpid()
    if (pid := os.fork()) == 0:
        ours.close()
        _wait_and_run(its, me)
    its.close()
    return PreloadedProcess(pid, ours)


def _is_loaded(argv: Sequence[str]) -> bool:
    return len(argv) > 2 and tuple(argv[:2]) == (sys.executable, "-m") and hasattr(_program(argv[2]), "run")


def _program(name: str) -> object:
    return sys.modules.get(f"{name}.__main__")


def _wait_and_run(channel: socket.socket, parent: int) -> NoReturn:
    code = 1
    try:
        processes.die_with_parent(signal.SIGKILL, parent)
        os.setsid()
        data, streams, _, _ = socket.recv_fds(channel, MOST_BYTES, 1)
        if data:
            told = json.loads(data)
            _become(told["argv"], told["env"], streams[0])
            control_group.enter(Path(told["group"]) if told["group"] else None)
            os.chdir(told["cwd"])
            channel.send(b"1")
            os.closerange(3, processes.MOST_FILES)
            _program(told["argv"][2]).run()  # type: ignore[attr-defined]
    except BaseException as error:  # noqa: BLE001 - nothing of the supervisor's may run on in here
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
        if not isinstance(error, SystemExit):
            traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _become(argv: list[str], env: dict[str, str], output: int) -> None:
    """Set command line, environment, stdout and stderr of this process, also as /proc shows them."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        os.dup2(output, number)
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]  # as PYTHONUNBUFFERED has it
    os.environ.clear()
    os.environ.update(ADDED | env)  # copies: what lies where the first environment lay is not read any more
    sys.argv = [argv[2], *argv[3:]]
    processes.raise_file_limit()
    entitle(argv)
    entitle([f"{processes.MARKER}={env.get(processes.MARKER, '')}"], first_field=47)


def entitle(words: Sequence[str], first_field: int = 45) -> bool:
    """Change the command line of this process in /proc; return False if its place is unknown or too small.

    Args:
        words: words of the command line or, for the environment, "NAME=VALUE".
        first_field: 45: the command line; 47: the environment. These are fields of `processes.stat_of`: arg_start and
            arg_end (45, 46), env_start and env_end (47, 48), see proc(5).
    """
    title = b"\0".join(map(os.fsencode, words)) + b"\0"
    fields = processes.stat_of(os.getpid())
    start, end = int(fields[first_field]), int(fields[first_field + 1])
    if not start or end - start < len(title):
        return False
    ctypes.memmove(start, title.ljust(end - start, b"\0"), end - start)
    return True
