"""Exceptions and panics in a log: the lines of each, and the line of its message.

Lines of other threads, ranks and progress bars may stand between the lines of a traceback; they are no part of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from splatbatch.failures import signs
from splatbatch.failures.words import Patterns

_STREAM = re.compile(r"\[rank\d+\]: |\d+: ")
"""The prefix that torchrun or `srun --label` writes before each line of a process."""
_FRAME = re.compile(r'\s+file "')
_NAMED = re.compile(r"(\w+\.)*\w+(: |:?$)")
_LEAD = re.compile(rf"({_STREAM.pattern})?[ \t]*(?=traceback)")
MOST_STRAY = 8
"""Number of foreign lines between two lines of a traceback after which the traceback counts as cut.

Lines that name another rank do not count.
"""
Extent = tuple[int, Sequence[int]]
"""The index of the line with an exception's message, and the indices of all lines of the exception in order.

A traceback that was cut has no message: the first index is that of its last line.
"""


@dataclass(frozen=True)
class ExceptionTrace:
    """An exception or a panic in a log, with its frames and the exceptions that it was raised from.

    Lines are indices into the lines of the log, from 0.
    """

    says: int
    """Index of the line of the message; of a traceback that was cut, index of its last line."""
    lines: tuple[int, ...]
    """Indices of the lines of the exception, in order; foreign lines between them are left out."""
    has_frames: bool
    """Whether the exception begins with the head of a traceback or of a panic, not only with its message."""
    counts: bool
    """Whether the exception ended a program or thread; False below `Exception ignored in`."""
    is_main: bool
    """Whether the exception may have ended the program; False if it ended only a thread."""

    @property
    def begin(self) -> int:
        """Index of the first line of the exception."""
        return self.lines[0]

    @property
    def end(self) -> int:
        """Index of the last line of the exception."""
        return self.lines[-1]


class ExceptionReader:
    """Reader that finds exceptions and panics in the lines of a log.

    The lines must be in small letters. `marked` returns the indices of the lines that patterns match.
    """

    def __init__(self, lines: Sequence[str], marked: Callable[[Patterns], set[int]]) -> None:
        self._lines = lines
        self._tracebacks, self._panics = marked(signs.TRACEBACK), marked(signs.PANIC)
        self._messages, self._panic_ends = marked(signs.RAISED), marked(signs.PANIC_ENDS)
        self._chains, self._threads = marked(signs.CHAINED), marked(signs.IN_THREAD)
        self._aside, self._warnings = marked(signs.ASIDE), marked(signs.WARNINGS)

    def find(self) -> tuple[ExceptionTrace, ...]:
        """Return every exception and panic, in the order in which they end; () without any."""
        found: list[ExceptionTrace] = []
        taken: set[int] = set()
        last = -1
        for begin in sorted(self._tracebacks | self._panics | self._messages):
            is_head = begin in self._tracebacks or begin in self._panics
            if begin in taken or (begin <= last and not is_head):
                continue
            says, own = self._extent(begin, begin <= last)
            taken.update(own)
            last = max(last, own[-1])
            counts, is_main = not self._aside & {begin - 1, begin}, begin - 1 not in self._threads
            one = ExceptionTrace(says, tuple(own), is_head, counts, is_main)
            before = self._raised_before(found, begin)
            if before and self._chains & set(range(before.end + 1, begin)):
                found.remove(before)
                one = replace(one, lines=(*before.lines, *own))
            found.append(one)
        return tuple(sorted(found, key=lambda one: one.end))

    def _raised_before(self, found: Sequence[ExceptionTrace], begin: int) -> ExceptionTrace | None:
        """Return the last exception of the same process that ended before a line."""
        stream = self._stream(begin)
        return next((one for one in reversed(found) if one.end < begin and self._stream(one.begin) == stream), None)

    def _stream(self, at: int) -> str:
        """Return the prefix of a line that names the rank that wrote it; empty without one."""
        found = _STREAM.match(self._lines[at])
        return found[0] if found else ""

    def _extent(self, begin: int, is_within: bool) -> Extent:
        """Return the extent of the exception that begins at a line, perhaps within another thread's traceback."""
        if begin in self._tracebacks:
            return self._traceback(begin, is_within)
        if begin in self._panics:
            return self._panic(begin)
        return begin, range(begin, self._end_of_message(begin, self._stream(begin)) + 1)

    def _panic(self, begin: int) -> Extent:
        """Return the extent of a panic: up to one of PANIC_ENDS, else up to the end of its message."""
        head = self._lines[begin].rstrip()
        says = begin + ("panicked at" in head and head.endswith(":") and begin + 1 < len(self._lines))
        ends = (at for at in range(begin + 1, begin + signs.PANIC_LINES + 1) if at in self._panic_ends)
        if (end := next(ends, None)) is None:
            end = says
            while end + 1 < len(self._lines) and (end + 1 in self._panics or self._is_indented(end + 1)):
                end += 1
            says = says if says > begin else end
        return says, range(begin, end + 1)

    def _traceback(self, begin: int, is_within: bool) -> Extent:
        """Return the extent of a traceback, from its head to the end of its message; a cut one has no message."""
        own, stream, has_frames = [begin], self._lead(begin), False
        while True:
            at = self._after_frames(own, stream)
            has_frames = has_frames or any(self._is_frame(one, stream) for one in own)
            expects_code = self._is_frame(own[-1], stream) or not has_frames  # some logs leave frames out
            follows = self._continuation(at, stream, expects_code, is_within)
            if follows is None:
                return own[-1], own
            if not self._is_indented(follows, stream):
                return follows, [*own, *range(follows, self._end_of_message(follows, stream) + 1)]
            own.append(follows)

    def _lead(self, begin: int) -> str:
        """Return the prefix of all lines of a traceback: the name of a rank, and its common indentation."""
        found = _LEAD.match(self._lines[begin])
        lead, following = found[0] if found else "", self._lines[begin + 1 : begin + 2]
        return lead if all(line.startswith(lead) for line in following) else self._stream(begin)

    def _after_frames(self, own: list[int], stream: str) -> int:
        """Append the indented lines that follow to `own`; return the next line of the same process that is not."""
        for at in range(own[-1] + 1, len(self._lines)):
            if self._is_of(stream, at):
                if at in self._tracebacks or not self._is_indented(at, stream):
                    return at
                own.append(at)
        return len(self._lines)

    def _continuation(self, at: int, stream: str, expects_code: bool, is_within: bool) -> int | None:
        """Return the line where a traceback goes on: its next frame or code, or its message; None: it was cut."""
        found: dict[str, int] = {}
        num_stray = 0
        while at < len(self._lines) and num_stray < MOST_STRAY:
            num_stray += self._is_of(stream, at)
            if at in self._tracebacks and self._is_of(stream, at):
                if is_within:
                    break
                at = self._traceback(at, is_within=True)[1][-1]
            elif self._is_frame(at, stream) or (expects_code and self._lines[at].startswith(f"{stream}    ")):
                return at
            elif self._is_message(at, stream, is_within):
                if at not in self._warnings:
                    return at
                found.setdefault("said", at)
            elif self._is_named(at, stream):
                found.setdefault("named", at)
            at += 1
        return found.get("said", found.get("named"))

    def _is_message(self, at: int, stream: str, is_within: bool) -> bool:
        """Return whether a line is the message of this traceback; if frames follow it, it belongs to another one."""
        is_said = at in self._messages and self._is_of(stream, at)
        return is_said and (is_within or not self._is_frame(at + 1, stream))

    def _is_named(self, at: int, stream: str) -> bool:
        """Return whether a line may be the message of an exception with an unusual name."""
        is_of = self._is_of(stream, at) and at not in self._warnings
        return is_of and _NAMED.match(self._lines[at], len(stream)) is not None

    def _is_frame(self, at: int, stream: str) -> bool:
        is_of = at < len(self._lines) and self._is_of(stream, at)
        return is_of and _FRAME.match(self._lines[at], len(stream)) is not None

    def _is_of(self, stream: str, at: int) -> bool:
        """Return whether a line may come from the process with this prefix."""
        return self._lines[at].startswith(stream) if stream else not self._lines[at].startswith("[rank")

    def _end_of_message(self, at: int, stream: str) -> int:
        """Return the last line of a message, with its indented lines; after a colon the next few count, too."""
        if self._lines[at].rstrip().endswith(":"):
            at = min(at + signs.MESSAGE_LINES, len(self._lines) - 1)
        while at + 1 < len(self._lines) and self._is_indented(at + 1, stream):
            at += 1
        return at

    def _is_indented(self, at: int, stream: str = "") -> bool:
        return self._lines[at].removeprefix(stream).removeprefix("│")[:1] in {" ", "\t"}
