"""Exceptions and panics in a log: where each begins and ends, and which line is its message."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from splatbatch.failures import signs
from splatbatch.failures.words import LinePatterns

_STREAM = re.compile(r"\[rank\d+\]: |\d+: ")
"""What torchrun and `srun --label` write before each line of a process."""
_FRAME = re.compile(r'\s+file "')
_NAMED = re.compile(r"(\w+\.)*\w+(: |:?$)")
_LEAD = re.compile(rf"({_STREAM.pattern})?[ \t]*(?=traceback)")
MOST_STRAY = 8
"""So many lines of others may stand between two lines of a traceback."""
MOST_NESTED = 3
"""Tracebacks of others, one inside the other, that are read as such."""
MARKS: Mapping[str, LinePatterns] = {
    "tracebacks": signs.TRACEBACK,
    "panics": signs.PANIC,
    "messages": signs.RAISED,
    "chains": signs.CHAINED,
    "aside": signs.ASIDE,
    "threads": signs.IN_THREAD,
    "panic_ends": signs.PANIC_ENDS,
    "warnings": signs.WARNINGS,
}


@dataclass(frozen=True)
class ExceptionMarks:
    """The lines that bear each sign of an exception."""

    tracebacks: frozenset[int]
    panics: frozenset[int]
    messages: frozenset[int]
    chains: frozenset[int]
    aside: frozenset[int]
    threads: frozenset[int]
    panic_ends: frozenset[int]
    warnings: frozenset[int]


@dataclass(frozen=True)
class ExceptionTrace:
    """An exception or a panic with its frames, and those it was raised from: first and last line."""

    begin: int
    end: int
    has_frames: bool
    lines: frozenset[int]
    """Its own; between them lines of other threads, of bars and of other ranks may stand."""
    counts: bool = True
    """False: nothing ended with it (`Exception ignored in`)."""
    is_main: bool = True
    """False: it ended a thread alone."""
    says: int = 0
    """The line of its message."""


class ExceptionLines(NamedTuple):
    """The lines of an exception, and which of them is its message."""

    says: int
    lines: tuple[int, ...]


def find_raised(lines: Sequence[str], marks: ExceptionMarks) -> tuple[ExceptionTrace, ...]:
    """Return every exception and panic among lines in small letters, in the order in which they end."""
    found: list[ExceptionTrace] = []
    taken: set[int] = set()
    end, tracebacks = -1, _Tracebacks(lines, marks)
    for begin in sorted(marks.tracebacks | marks.panics | marks.messages):
        is_head = begin in marks.tracebacks or begin in marks.panics
        is_within = begin <= end
        if begin in taken or (is_within and not is_head):
            continue
        extent = _extent(lines, begin, marks, tracebacks, is_within)
        taken.update(extent.lines)
        end = max(end, extent.lines[-1])
        counts, is_main = not marks.aside & {begin - 1, begin}, begin - 1 not in marks.threads
        own = frozenset(extent.lines)
        one = ExceptionTrace(begin, extent.lines[-1], is_head, own, counts, is_main, extent.says)
        before = _raised_before(found, lines, begin)
        if before and marks.chains & set(range(before.end + 1, begin)):
            found.remove(before)
            one = replace(one, begin=before.begin, lines=before.lines | own)
        found.append(one)
    return tuple(sorted(found, key=lambda one: one.end))


def _raised_before(found: Sequence[ExceptionTrace], lines: Sequence[str], begin: int) -> ExceptionTrace | None:
    """Return the last exception of the same process that ended before a line."""
    stream = stream_of(lines[begin])
    return next((one for one in reversed(found) if one.end < begin and stream_of(lines[one.begin]) == stream), None)


def stream_of(line: str) -> str:
    """Return what a line begins with that tells the rank that wrote it; empty: nothing does."""
    found = _STREAM.match(line)
    return found[0] if found else ""


def _extent(
    lines: Sequence[str], begin: int, marks: ExceptionMarks, tracebacks: _Tracebacks, is_within: bool
) -> ExceptionLines:
    """Return the lines that belong to what begins somewhere."""
    if begin in marks.tracebacks:
        return tracebacks.extent(begin, int(is_within))
    if begin in marks.panics:
        says, end = _end_of_panic(lines, begin, marks.panics, marks.panic_ends)
        return ExceptionLines(says, tuple(range(begin, end + 1)))
    return ExceptionLines(begin, tuple(range(begin, _end_of_message(lines, begin, stream_of(lines[begin])) + 1)))


class _Tracebacks:
    """Where tracebacks end; what others write in between is no part of them."""

    def __init__(self, lines: Sequence[str], marks: ExceptionMarks) -> None:
        self._lines, self._marks = lines, marks
        self._known: dict[tuple[int, int], ExceptionLines] = {}

    def extent(self, begin: int, depth: int) -> ExceptionLines:
        """Return a traceback's own lines, from its head to the end of its message; one that was cut has none."""
        if (begin, depth) not in self._known:
            self._known[begin, depth] = self._read(begin, depth)
        return self._known[begin, depth]

    def _read(self, begin: int, depth: int) -> ExceptionLines:
        own, stream, has_frames = [begin], self._lead(begin), False
        while True:
            at = self._after_frames(own, stream)
            has_frames = has_frames or any(self._is_frame(one, stream) for one in own)
            expects_code = self._is_frame(own[-1], stream) or not has_frames  # some logs leave frames out
            follows = self._continuation(at, stream, expects_code, depth)
            if follows is None:
                return ExceptionLines(own[-1], tuple(own))
            if not _is_indented(self._lines[follows], stream):
                return ExceptionLines(
                    follows, (*own, *range(follows, _end_of_message(self._lines, follows, stream) + 1))
                )
            own.append(follows)

    def _lead(self, begin: int) -> str:
        """Return what each line of a traceback begins with: the name of a rank, and how far all of it is indented."""
        found = _LEAD.match(self._lines[begin])
        lead, following = found[0] if found else "", self._lines[begin + 1 : begin + 2]
        return lead if all(line.startswith(lead) for line in following) else stream_of(self._lines[begin])

    def _after_frames(self, own: list[int], stream: str) -> int:
        """Take in the indented lines of a traceback that follow; return the next line that is none, of its process."""
        at = own[-1] + 1
        while at < len(self._lines):
            if self._is_of(stream, at):
                if at in self._marks.tracebacks or not _is_indented(self._lines[at], stream):
                    break
                own.append(at)
            at += 1
        return at

    def _continuation(self, at: int, stream: str, expects_code: bool, depth: int) -> int | None:
        """Return where a traceback goes on: its next frame or code, or its message; None: it was cut."""
        found: dict[str, int] = {}
        num_stray = 0
        while at < len(self._lines) and num_stray < MOST_STRAY:
            num_stray += self._is_of(stream, at)
            if at in self._marks.tracebacks and self._is_of(stream, at):
                if depth >= MOST_NESTED:
                    break
                at = self.extent(at, depth + 1).lines[-1]
            elif self._goes_on(at, stream, expects_code):
                return at
            elif self._is_message(at, stream, depth):
                if at not in self._marks.warnings:
                    return at
                found.setdefault("said", at)
            elif self._is_named(at, stream):
                found.setdefault("named", at)
            at += 1
        return found.get("said", found.get("named"))

    def _goes_on(self, at: int, stream: str, expects_code: bool) -> bool:
        return self._is_frame(at, stream) or (expects_code and self._lines[at].startswith(f"{stream}    "))

    def _is_message(self, at: int, stream: str, depth: int) -> bool:
        """Return whether a line is an exception's; if frames follow, it was another's."""
        is_said = at in self._marks.messages and self._is_of(stream, at)
        return is_said and (depth > 0 or not self._is_frame(at + 1, stream))

    def _is_named(self, at: int, stream: str) -> bool:
        """Return whether a line may be an exception of which nobody knows the name."""
        is_of = self._is_of(stream, at) and at not in self._marks.warnings
        return is_of and _NAMED.match(self._lines[at], len(stream)) is not None

    def _is_frame(self, at: int, stream: str) -> bool:
        is_of = at < len(self._lines) and self._is_of(stream, at)
        return is_of and _FRAME.match(self._lines[at], len(stream)) is not None

    def _is_of(self, stream: str, at: int) -> bool:
        """Return whether a line may be of the process whose lines begin so."""
        return self._lines[at].startswith(stream) if stream else not self._lines[at].startswith("[rank")


def _end_of_message(lines: Sequence[str], at: int, stream: str) -> int:
    """Return the last line of a message: indented ones belong to it, and the next few if it begins with none."""
    if lines[at].rstrip().endswith("error:"):
        at = min(at + signs.MESSAGE_LINES, len(lines) - 1)
    while at + 1 < len(lines) and _is_indented(lines[at + 1], stream):
        at += 1
    return at


def _end_of_panic(lines: Sequence[str], begin: int, panics: frozenset[int], ends: frozenset[int]) -> tuple[int, int]:
    """Return the line of a panic's message, and its last one: where it says so, else that of its message."""
    is_place = "panicked at" in lines[begin] and lines[begin].rstrip().endswith(":")  # the message is in the next line
    says = min(begin + is_place, len(lines) - 1)
    for at in range(begin + 1, min(begin + signs.PANIC_LINES + 1, len(lines))):
        if at in ends:
            return says, at
    end = says
    while end + 1 < len(lines) and (end + 1 in panics or _is_indented(lines[end + 1])):
        end += 1
    return says if says > begin else end, end


def _is_indented(line: str, stream: str = "") -> bool:
    return line.removeprefix(stream).removeprefix("│")[:1] in {" ", "\t"}
