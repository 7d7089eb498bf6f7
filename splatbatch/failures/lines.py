"""The lines of a log that are read: without colours, endless ones cut, of long logs without repetitions."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from splatbatch.failures.rules import signs
from splatbatch.failures.words import lower

LINE_CHARS = 1000
"""Longer lines are searched in pieces: the search time of a pattern may grow with the square of a line."""
FULL_CHARS = 1 << 16
"""Of longer logs, lines that differ in numbers and bars alone are read where they first and where they last stand."""
HEAD_CHARS, MIDDLE_CHARS, TAIL_CHARS = 16 << 10, 16 << 10, 40 << 10
"""If that is still much, as much of it is read: of the middle only lines that sound bad, first ones and last ones."""

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_FIGURES = dict.fromkeys(map(ord, "0123456789.,:|#%█▏▎▍▌▋▊▉ "))


class Gap(NamedTuple):
    """Lines of a file that were not read: how many, and after which."""

    after: int
    lines: int


NO_GAP = Gap(0, 0)


class Line(NamedTuple):
    """A line, or a piece of one, with its number in the file; 0: it stands outside of the log."""

    number: int
    words: str


def lines_of(text: str, gap: Gap) -> tuple[Line, ...]:
    """Return every line of a log that says something, long ones in pieces; in a long log those that tell most."""
    pieces = _pieces(text, gap, len(text) > FULL_CHARS)
    return tuple(_within_limits(_without_repetitions(pieces) if "\r" in text else pieces))


def _pieces(text: str, gap: Gap, is_long: bool) -> tuple[Line, ...]:
    clean = ANSI.sub("", text) if "\x1b" in text else text
    lines = clean.split("\n")
    chosen = _first_and_last(clean.translate(_FIGURES).split("\n")) if is_long else range(len(lines))
    found = []
    for index in chosen:
        line, number = lines[index], index + 1 + (gap.lines if index >= gap.after else 0)
        if len(line) <= LINE_CHARS and "\r" not in line:  # nearly all; there may be half a million
            found.append(Line(number, line))
        else:
            found += [Line(number, piece) for part in line.split("\r") for piece in _cut(part)]
    return tuple(line for line in found if line.words and not line.words.isspace())


def _cut(line: str) -> Sequence[str]:
    """Return a line in pieces; an endless one has lost its middle."""
    if len(line) <= LINE_CHARS:
        return (line,)
    whole = line if len(line) <= 4 * LINE_CHARS else f"{line[: 2 * LINE_CHARS - 2]}… {line[-2 * LINE_CHARS :]}"
    return [whole[at : at + LINE_CHARS] for at in range(0, len(whole), LINE_CHARS)]


def _without_repetitions(lines: Sequence[Line]) -> Sequence[Line]:
    if sum(len(line.words) for line in lines) <= FULL_CHARS:
        return lines
    return [lines[index] for index in _first_and_last([line.words.translate(_FIGURES) for line in lines])]


def _first_and_last(forms: Sequence[str]) -> list[int]:
    """Return where each of some forms stands first and last."""
    last = dict(zip(forms, range(len(forms)), strict=True))
    first = dict(zip(reversed(forms), range(len(forms) - 1, -1, -1), strict=True))
    return sorted({*first.values(), *last.values()})


def _bad(lines: Sequence[Line], begin: int, limit: int) -> list[int]:
    """Return which lines from `begin` on sound bad, until those are as long as the limit."""
    found, at = [], 0
    told = lines[begin:]
    text, starts = lower("\n".join(line.words for line in told)), list(accumulate(len(one.words) + 1 for one in told))
    while limit > 0 and (match := signs.BAD_WORDS.search(text, at)):
        index = bisect_right(starts, match.start())
        found.append(begin + index)
        at = starts[index]
        limit -= len(told[index].words)
    return found


def _within_limits(lines: Sequence[Line]) -> Sequence[Line]:
    ends = list(accumulate(len(line.words) + 1 for line in lines))
    if not ends or ends[-1] <= HEAD_CHARS + MIDDLE_CHARS + TAIL_CHARS:
        return lines
    head, tail = bisect_right(ends, HEAD_CHARS), bisect_right(ends, ends[-1] - TAIL_CHARS)
    middle = lines[head:tail]
    early = _bad(middle, 0, MIDDLE_CHARS // 2)
    near = bisect_right(ends, ends[tail] - MIDDLE_CHARS // 2) - head
    late = _bad(middle, max(near, early[-1] + 1 if early else 0), MIDDLE_CHARS)
    return [*lines[:head], *(middle[index] for index in (*early, *late)), *lines[tail:]]
