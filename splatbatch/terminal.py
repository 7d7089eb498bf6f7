"""Output for people that never blocks: text that a terminal or a pipe does not take is dropped.

Data for programs (`--json`) is written as usual, and nothing of it is dropped.
"""

from __future__ import annotations

import atexit
import errno
import io
import os
import select
import socket
import stat
import sys
import time
from collections.abc import Callable

OWN_DESCRIPTOR = "/proc/self/fd/{}"
"""Path that opens a descriptor anew with flags of its own: O_NONBLOCK there does not affect other processes."""
MOST_PENDING_BYTES = 1 << 16
"""Bytes kept for a terminal or pipe that takes nothing, beyond which further writes are dropped. A longer write is kept
if nothing waits before it."""
SMALL_BYTES = {True: 1, False: 512}
"""Bytes that a terminal (True) or a pipe (False; PIPE_BUF of POSIX) takes at once when poll(2) reports room."""
PATIENCE_S = 0.5
"""Time in seconds that the program waits at its end for a reader that takes nothing of the pending text."""
LONGEST_FAREWELL_S = 5.0
"""Longest time in seconds that the program waits at its end for a slow reader."""

Send = Callable[[bytes], int]
"""Writes bytes without waiting; returns how many were written, or raises BlockingIOError if there is no room."""
Advance = Callable[[int, int], None]
"""Called with the progress of a long piece of work: the number done, and the total."""


def unheard(done: int, total: int) -> None:
    """Ignore the progress of a long piece of work: the default where no progress is shown."""


class DroppingWriter(io.RawIOBase):
    """A stream over a descriptor whose writes never block and never fail; a write that finds no room is dropped whole.

    Up to `MOST_PENDING_BYTES` bytes wait for a slow reader; more only of a single longer write.
    """

    def __init__(self, descriptor: int) -> None:
        """Write to an open file descriptor of this process, given by number.

        Raises:
            OSError: the descriptor is not open.
        """
        self._descriptor = descriptor
        self._is_terminal = os.isatty(descriptor)
        self._send = _sender(descriptor)
        self._pending = bytearray()
        self._moved_at = 0.0
        self._lost = 0

    def writable(self) -> bool:
        """Return True, as the replaced stream does."""
        return True

    def isatty(self) -> bool:
        """Return whether the descriptor was a terminal when this stream was made.

        The terminal may have closed since.
        """
        return self._is_terminal

    def fileno(self) -> int:
        """Return the number of the descriptor."""
        return self._descriptor

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Write now, keep for later, or drop the data whole; always return its length, without waiting."""
        if self.is_stuck() and len(self._pending) + len(data) > MOST_PENDING_BYTES:
            self._lost += bytes(data).count(b"\n")
            return len(data)
        if not self._pending:
            self._moved_at = time.monotonic()
        self._pending += data
        self.is_stuck()
        return len(data)

    def is_stuck(self) -> bool:
        """Try to write the pending bytes; return whether any are still pending. After an error they are dropped."""
        while self._pending:
            try:
                taken = self._send(bytes(self._pending))
            except BlockingIOError:
                return True
            except OSError:  # a dead terminal, a closed pipe, a full disk
                self._pending.clear()
                return False
            del self._pending[:taken]
            self._moved_at = time.monotonic()
        return False

    def take_lost(self) -> int:
        """Return the number of lines dropped for lack of room since the last call, for a message to the user; or 0.

        Also 0 while the stream has no room for such a message; the next call then counts the same lines again.
        """
        if not self._lost or self.is_stuck():
            return 0
        lost, self._lost = self._lost, 0
        return lost

    def part(self) -> None:
        """Wait at the end of the program for pending text to be written.

        The wait takes up to about `LONGEST_FAREWELL_S` seconds, and ends if nothing is taken for `PATIENCE_S` seconds.
        """
        end = time.monotonic() + LONGEST_FAREWELL_S
        ready = select.poll()
        ready.register(self._descriptor, select.POLLOUT)
        while self.is_stuck() and time.monotonic() < min(end, self._moved_at + PATIENCE_S):
            ready.poll(50)


def _sender(descriptor: int) -> Send:
    """Return the function that writes to a descriptor without waiting: to a file, socket, pipe or terminal."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return lambda data: os.write(descriptor, data)
    if stat.S_ISSOCK(mode):  # of systemd's journal; a socket cannot be opened anew
        peer = socket.socket(fileno=os.dup(descriptor))
        return lambda data: peer.send(data, socket.MSG_DONTWAIT)
    try:
        own = os.open(OWN_DESCRIPTOR.format(descriptor), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:  # no /proc, or a terminal of another user (su)
        return lambda data: _send_if_ready(descriptor, data)
    return lambda data: os.write(own, data)


def _send_if_ready(descriptor: int, data: bytes) -> int:
    ready = select.poll()
    ready.register(descriptor, select.POLLOUT)
    if not ready.poll(0):
        raise BlockingIOError
    return os.write(descriptor, data[: SMALL_BYTES[os.isatty(descriptor)]])


def never_block() -> None:
    """Replace stdout and stderr of this process, until its end, by streams that drop text that is not read.

    A stream that another program or a test has put there stays.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        # what a test, or a program that has us inside it, has put there is its own affair
        if isinstance(stream, io.TextIOWrapper) and stream is getattr(sys, f"__{name}__"):
            writer = DroppingWriter(stream.fileno())
            words = io.TextIOWrapper(writer, encoding=stream.encoding, errors="replace", write_through=True)  # type: ignore[type-var]
            setattr(sys, name, words)
            atexit.register(writer.part)


def stderr_writer() -> DroppingWriter | None:
    """Return the DroppingWriter behind stderr; None if `never_block` has not replaced stderr."""
    writer = getattr(sys.stderr, "buffer", None)
    return writer if isinstance(writer, DroppingWriter) else None


def open_closed_descriptors() -> None:
    """Open stdin, stdout and stderr on /dev/null where the shell closed them (`2>&-`).

    Otherwise the next opened file would get their number, and messages would be written into that file.

    Raises:
        OSError: /dev/null cannot be opened.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != descriptor:
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
            os.set_inheritable(descriptor, True)
        if getattr(sys, name) is None:
            mode = "r" if descriptor == 0 else "w"
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def is_of_dead_terminal(error: OSError) -> bool:
    """Return whether an error is EIO because the terminal of stdout or stderr is gone."""
    if error.errno != errno.EIO:
        return False
    ends = select.poll()
    for descriptor in (1, 2):
        ends.register(descriptor, select.POLLOUT)
    return any(seen & select.POLLHUP for _, seen in ends.poll(0))
