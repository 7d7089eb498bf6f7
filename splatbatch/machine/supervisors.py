"""Start of supervisors: forked by a fork server within milliseconds, or as a new program where that fails."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from splatbatch import processes
from splatbatch.output.attempt_folder import AttemptFolder

SUPERVISOR = "splatbatch.supervisor"
"""Module that runs as a supervisor."""
FORK_SERVER = "splatbatch.supervisor.fork_server"
"""Module that runs as the fork server."""
ROOM = 4096
"""Longest path in bytes (limits.h, PATH_MAX).

The command line of the fork server has room for a path of this length.
"""
ANSWER_S = 30.0
"""Seconds that the fork server may take to answer, its imports included."""
LOOK_S = 0.005
"""Seconds between two looks at a process that is waited for."""


@dataclass
class ForkedChild:
    """A child process that the fork server forked and this process adopted.

    The class has the methods of Popen that are used.
    """

    pid: int
    _ended: int | None = None

    def poll(self) -> int | None:
        """Return the exit code as `subprocess` gives it, negative for a signal; None while the process runs.

        If another part of this process has waited for it already, the exit code counts as that of SIGKILL.
        """
        if self._ended is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # another part of this process has waited for it
                self._ended = -signal.SIGKILL
            else:
                self._ended = os.waitstatus_to_exitcode(status) if pid else None
        return self._ended

    def wait(self, timeout: float) -> int:
        """Wait for the end of the process, and return its exit code as `poll` does.

        Args:
            timeout: longest wait, in seconds.

        Raises:
            subprocess.TimeoutExpired: the process still runs then.
        """
        give_up_at = time.monotonic() + timeout
        while (ended := self.poll()) is None:
            if time.monotonic() > give_up_at:
                raise subprocess.TimeoutExpired(SUPERVISOR, timeout)
            time.sleep(LOOK_S)
        return ended

    def send_signal(self, sig: int) -> None:
        """Send a signal to the process; nothing happens if it has ended."""
        if self.poll() is None:
            processes.send(sig, [self.pid])


Child = subprocess.Popen[bytes] | ForkedChild
"""A child process of this process: a program, or a process forked by the fork server."""


class Supervisors:
    """Starts supervisors: by one fork server while it answers, after that as programs.

    Supervisors live on when the fork server dies. Outside Linux no fork server is used.
    """

    def __init__(self) -> None:
        self._server: _Server | None = _AHEAD.pop() if _AHEAD else None
        self._is_given_up = sys.platform != "linux"

    def start(self, folder: AttemptFolder) -> Child:
        """Start the supervisor of an attempt, and return its process without waiting for it.

        The fork server is waited for up to `ANSWER_S` seconds. Call this from the main thread: the supervisor
        dies with that thread.

        Raises:
            OSError: no process can be started.
        """
        if forked := self._forked(folder):
            return forked
        return _start(SUPERVISOR, str(folder.path), stdin=subprocess.DEVNULL, dies_by=signal.SIGTERM)

    def server(self) -> int | None:
        """Return the pid of the fork server; None before its start, and once it has failed or was closed."""
        return self._server.process.pid if self._server else None

    def close(self) -> None:
        """End the fork server, and wait for its end without a limit of time; the supervisors that it forked go on."""
        if self._server:
            self._server.end()
            self._server.channel.close()
            self._server = None

    def _forked(self, folder: AttemptFolder) -> Child | None:
        if self._is_given_up:
            return None
        with suppress(OSError, ValueError):
            self._server = self._server or _Server.start()
            if pid := self._server.ask(os.fsencode(folder.path)):
                return ForkedChild(pid)
        self._is_given_up = True  # one that has failed once is not trusted again
        self.close()
        return None


@dataclass(frozen=True)
class _Server:
    process: subprocess.Popen[bytes]
    channel: socket.socket

    @staticmethod
    def start(*programs: str) -> _Server:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            process = _start(FORK_SERVER, " " * ROOM, *programs, stdin=its.fileno(), dies_by=signal.SIGKILL)
        ours.settimeout(ANSWER_S)
        return _Server(process, ours)

    def ask(self, path: bytes) -> int:
        """Return the pid of the supervisor forked for an attempt folder; 0 if none was and none will be."""
        with suppress(OSError):
            self.channel.send(path)
            return int(self.channel.recv(ROOM) or 0)
        # it stands still or is gone; if it has made one all the same, that answers before the channel ends
        self.end()
        return int(self.channel.recv(ROOM) or 0)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


_AHEAD: list[_Server] = []
"""The fork server that `start_ahead` started; the first `Supervisors` takes it over."""


def start_ahead(*programs: str) -> None:
    """Start the fork server early, so that it imports these programs while this process does other work.

    If it cannot be started, or this is not Linux, nothing happens.

    Args:
        programs: modules with a `__main__` to import.
    """
    if sys.platform == "linux" and not _AHEAD:
        with suppress(OSError):
            _AHEAD.append(_Server.start(*programs))


def _start(module: str, *arguments: str, stdin: int, dies_by: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(processes.die_with_parent, dies_by, os.getpid()),  # noqa: PLW1509 - one thread here
    )
