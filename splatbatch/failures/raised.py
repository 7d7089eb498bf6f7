"""Exceptions and panics in a log: where each begins and ends, and which line is its message."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from splatbatch.failures import signs
from splatbatch.failures.words import Words

_PREFIX = re.compile(r"^(?:\[rank\d+\]: |\d+: |│)")
MARKS: Mapping[str, Words] = {
    "tracebacks": signs.TRACEBACK,
    "panics": signs.PANIC,
    "messages": signs.RAISED,
    "chains": signs.CHAINED,
    "aside": signs.ASIDE,
    "threads": signs.IN_THREAD,
    "panic_ends": signs.PANIC_ENDS,
}


@dataclass(frozen=True)
class Marks:
    """The lines that bear each sign of an exception."""

    tracebacks: frozenset[int]
    panics: frozenset[int]
    messages: frozenset[int]
    chains: frozenset[int]
    aside: frozenset[int]
    threads: frozenset[int]
    panic_ends: frozenset[int]


@dataclass(frozen=True)
class Raised:
    """An exception or a panic with its frames, and those it was raised from: first and last line."""

    begin: int
    end: int
    has_frames: bool
    counts: bool = True
    """False: nothing ended with it (`Exception ignored in`)."""
    is_main: bool = True
    """False: it ended a thread alone."""
    says: int = 0
    """The line of its message."""


def find_raised(lines: Sequence[str], marks: Marks) -> tuple[Raised, ...]:
    """Return every exception and panic among lines in small letters, first to last."""
    found: list[Raised] = []
    for begin in sorted(marks.tracebacks | marks.panics | marks.messages):
        before = found[-1].end if found else -1
        if begin <= before:
            continue
        says, end = _extent(lines, begin, marks)
        is_head = begin in marks.tracebacks or begin in marks.panics
        counts, is_main = not marks.aside & {begin - 1, begin}, begin - 1 not in marks.threads
        one = Raised(begin, end, is_head, counts, is_main, says)
        is_chained = bool(found and marks.chains & set(range(before + 1, begin)))
        found.append(replace(one, begin=found.pop().begin) if is_chained else one)
    return tuple(found)


def _extent(lines: Sequence[str], begin: int, marks: Marks) -> tuple[int, int]:
    """Return the line of a message, and the last one that belongs to it."""
    if begin in marks.tracebacks:
        return _end_of_traceback(lines, begin, marks.tracebacks)
    if begin in marks.panics:
        return _end_of_panic(lines, begin, marks.panics, marks.panic_ends)
    return begin, _end_of_message(lines, begin)


def _end_of_traceback(lines: Sequence[str], begin: int, heads: frozenset[int]) -> tuple[int, int]:
    """Return the line of the exception, the first that is not indented, and the last of the indented ones below it."""
    for at in range(begin + 1, len(lines)):
        if at in heads:
            return at - 1, at - 1
        if not _is_indented(lines[at]):
            return at, _end_of_message(lines, at)
    return len(lines) - 1, len(lines) - 1


def _end_of_message(lines: Sequence[str], at: int) -> int:
    """Return the last line of a message: indented ones belong to it, and the next few if it begins with none."""
    if lines[at].rstrip().endswith("error:"):
        at = min(at + signs.MESSAGE_LINES, len(lines) - 1)
    while at + 1 < len(lines) and _is_indented(lines[at + 1]):
        at += 1
    return at


def _end_of_panic(lines: Sequence[str], begin: int, panics: frozenset[int], ends: frozenset[int]) -> tuple[int, int]:
    """Return the line of a panic's message, and its last one: where it says so, else that of its message."""
    says = min(begin + ("panicked at" in lines[begin]), len(lines) - 1)
    for at in range(begin + 1, min(begin + signs.PANIC_LINES + 1, len(lines))):
        if at in ends:
            return says, at
    end = says
    while end + 1 < len(lines) and (end + 1 in panics or _is_indented(lines[end + 1])):
        end += 1
    return says if says > begin else end, end


def _is_indented(line: str) -> bool:
    return _PREFIX.sub("", line)[:1] in {" ", "\t"}
