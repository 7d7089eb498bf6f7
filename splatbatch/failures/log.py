"""How a log is read: without harmless lines, with its steps, its exceptions, its end, and its line numbers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from splatbatch.failures import signs
from splatbatch.failures.tracebacks import MARKS, ExceptionMarks, ExceptionTrace, find_raised
from splatbatch.failures.words import LinePatterns, lower

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


class LogLine(NamedTuple):
    """A line, or a piece of one, with its number in the file; 0: it stands outside of the log."""

    number: int
    words: str


def lines_of(text: str, gap: Gap) -> tuple[LogLine, ...]:
    """Return every line of a log that says something, long ones in pieces; in a long log those that tell most."""
    pieces = _pieces(text, gap, len(text) > FULL_CHARS)
    return tuple(_within_limits(_without_repetitions(pieces) if "\r" in text else pieces))


def _pieces(text: str, gap: Gap, is_long: bool) -> tuple[LogLine, ...]:
    clean = ANSI.sub("", text) if "\x1b" in text else text
    clean = clean.replace("\0", "") if "\0" in clean else clean  # PowerShell's >> appends UTF-16 to whatever is there
    lines = clean.split("\n")
    chosen = _first_and_last(clean.translate(_FIGURES).split("\n")) if is_long else range(len(lines))
    found = []
    for index in chosen:
        line, number = lines[index], index + 1 + (gap.lines if index >= gap.after else 0)
        if len(line) <= LINE_CHARS and "\r" not in line:  # nearly all; there may be half a million
            found.append(LogLine(number, line))
        else:
            found += [LogLine(number, piece) for part in line.split("\r") for piece in _cut(part)]
    return tuple(line for line in found if line.words and not line.words.isspace())


def _cut(line: str) -> Sequence[str]:
    """Return a line in pieces; an endless one has lost its middle."""
    if len(line) <= LINE_CHARS:
        return (line,)
    whole = line if len(line) <= 4 * LINE_CHARS else f"{line[: 2 * LINE_CHARS - 2]}… {line[-2 * LINE_CHARS :]}"
    return [whole[at : at + LINE_CHARS] for at in range(0, len(whole), LINE_CHARS)]


def _without_repetitions(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    if sum(len(line.words) for line in lines) <= FULL_CHARS:
        return lines
    return [lines[index] for index in _first_and_last([line.words.translate(_FIGURES) for line in lines])]


def _first_and_last(forms: Sequence[str]) -> list[int]:
    """Return where each of some forms stands first and last."""
    last = dict(zip(forms, range(len(forms)), strict=True))
    first = dict(zip(reversed(forms), range(len(forms) - 1, -1, -1), strict=True))
    return sorted({*first.values(), *last.values()})


def _bad(lines: Sequence[LogLine], begin: int, limit: int) -> list[int]:
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


def _within_limits(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    ends = list(accumulate(len(line.words) + 1 for line in lines))
    if not ends or ends[-1] <= HEAD_CHARS + MIDDLE_CHARS + TAIL_CHARS:
        return lines
    head, tail = bisect_right(ends, HEAD_CHARS), bisect_right(ends, ends[-1] - TAIL_CHARS)
    middle = lines[head:tail]
    early = _bad(middle, 0, MIDDLE_CHARS // 2)
    near = bisect_right(ends, ends[tail] - MIDDLE_CHARS // 2) - head
    late = _bad(middle, max(near, early[-1] + 1 if early else 0), MIDDLE_CHARS)
    return [*lines[:head], *(middle[index] for index in (*early, *late)), *lines[tail:]]


def _number(figures: str) -> int:
    return int(figures.replace(",", ""))


QUOTE_CHARS = 240


MOST_BETWEEN = 0.1
"""Programs tell at least so often, as a share of all steps, which one they are at; some leave out the last."""
MOST_QUOTED = 6
"""Lines of the end of a log that are quoted where nobody knows what they mean."""
PLACE = "panicked at"


@dataclass(frozen=True)
class Log:
    """What was printed, and lines from beside it (the kernel's, the engine's)."""

    tail: str
    beside: tuple[str, ...] = ()
    gap: Gap = NO_GAP

    @cached_property
    def lines(self) -> tuple[LogLine, ...]:
        """Every line that says something, long ones in pieces; in a long log only some of those that are alike."""
        return (*lines_of(self.tail, self.gap), *(LogLine(0, words) for words in self.beside))

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line.words) + 1)
        return starts

    @cached_property
    def _read(self) -> str:
        return lower("\n".join(line.words for line in self.lines))

    @cached_property
    def searched(self) -> str:
        """All lines in small letters, harmless ones blanked."""
        lines = self._read.split("\n")
        for match in signs.HARMLESS.places(self._read):
            lines[self.line_of(match)] = " " * len(lines[self.line_of(match)])
        return "\n".join(lines)

    def line_of(self, match: re.Match[str]) -> int:
        """Return which line a match stands in."""
        return self.line_of_place(match.start())

    def line_of_place(self, at: int) -> int:
        """Return which line a place of what is searched stands in."""
        return bisect_right(self._starts, at) - 1

    def start_of(self, line: int) -> int:
        """Return where a line begins in what is searched."""
        return self._starts[line]

    def _marked(self, words: LinePatterns) -> set[int]:
        return {self.line_of(match) for match in words.places(self.searched)}

    @cached_property
    def aside(self) -> set[int]:
        """The lines of exceptions that ended nothing."""
        lines = {line for one in self.raised if not one.counts for line in one.lines}
        return lines | self._marked(signs.ASIDE)

    @cached_property
    def warnings(self) -> set[int]:
        """The lines that only warn, and those of exceptions that ended nothing."""
        return self._marked(signs.WARNINGS) | self.aside

    @cached_property
    def steps(self) -> dict[int, int]:
        """The training step that each line of progress tells, by line."""
        found: dict[int, int] = {}
        for match in signs.TRAINING_STEP.places(self.searched):
            number = next(filter(None, match.groups()), "0")
            if step := int(number.replace(",", "")):  # a bar at 0 shows that nothing has been done yet
                found.setdefault(self.line_of(match), step)
        return dict(sorted(found.items()))

    @cached_property
    def last_step(self) -> int:
        """The highest training step that is mentioned; 0 if none is."""
        return max(self.steps.values(), default=0)

    @cached_property
    def finished(self) -> int:
        """The line that says for the last time that all is done; -1 if none does."""
        return max(self._marked(signs.FINISHED), default=-1)

    @cached_property
    def is_writing(self) -> bool:
        """Whether after it was done it began to write something, and has not said that this is there."""
        begun, written = (max(self._marked(one), default=-1) for one in (signs.STILL_WRITES, signs.HAS_WRITTEN))
        return begun > self.finished and begun > written

    @cached_property
    def made_all_steps(self) -> bool:
        """Whether it says that the last step was made."""
        return self.finished >= 0 or bool(self._marked(signs.ALL_STEPS_MADE))

    @cached_property
    def broke_off(self) -> str:
        """Which step of how many was the last told, if more were to come and nothing was said after it."""
        if not self.steps or self.made_all_steps:
            return ""
        last = max(self.steps)
        counts = (one for one in signs.OF_STEPS.finditer(self._words(last)) if _number(one[1]) == self.steps[last])
        if (told := next(counts, None)) is None:
            return ""
        step, total = _number(told[1]), _number(told[2])
        between = step - max((one for one in self.steps.values() if one < step), default=0)
        after = self.searched[self._starts[last + 1] :]
        is_near = step + 2 * min(between, MOST_BETWEEN * total) >= total
        return "" if is_near or any(True for _ in signs.WRAPS_UP.places(after)) else f"step {told[1]} of {told[2]}"

    @cached_property
    def diverged(self) -> re.Match[str] | None:
        """Where the last loss that is told is no number."""
        told = max(signs.LOSS.places(self.searched), key=lambda match: match.start(), default=None)
        return told if told and told[1].lstrip("-")[:1] in {"n", "i"} else None

    @cached_property
    def last_progress(self) -> int:
        """The last line of progress, from which on the end is told; 0 without any.

        A bar that prints itself once more when an exception closes it, or into its traceback, is no progress.
        """
        counting = [one for one in self.raised if one.counts]
        within = {
            line for one in counting if len(one.lines) <= one.end - one.begin for line in range(one.begin, one.end)
        }
        lines, ends = [*(set(self.steps) - within)], {self._next_that_says_something(one.end) for one in counting}
        lines.sort()
        while lines and (lines[-1] in ends or (lines[-2:-1] and self.steps[lines[-1]] == self.steps[lines[-2]])):
            lines.pop()
        return lines[-1] if lines else 0

    def _next_that_says_something(self, line: int) -> int:
        text, at = self.searched, self._starts[line + 1]
        while at < len(text) and text[at].isspace():
            at += 1
        return self.line_of_place(at)

    @cached_property
    def in_exceptions(self) -> set[int]:
        """The lines of exceptions and panics."""
        return {line for one in self.raised for line in one.lines}

    @cached_property
    def wrappers(self) -> set[int]:
        """The lines that only pass on an exception of another process."""
        return self._marked(signs.WRAPS)

    @cached_property
    def errors(self) -> set[int]:
        """The lines that their program calls errors."""
        return self._marked(signs.ERROR_LEVEL)

    @cached_property
    def sounds_bad(self) -> bool:
        """Whether the last thing that was said after the last progress is an error, known or not."""
        told = (line for line in range(len(self.lines) - 1, self.last_progress - 1, -1) if line not in self.warnings)
        last = next((line for line in told if not self._words(line).isspace()), None)
        raised = {line for one in self.raised if one.is_main for line in one.lines}
        return last is not None and last in raised | self.errors

    def _words(self, line: int) -> str:
        return self.searched[self._starts[line] : self._starts[line + 1]]

    @cached_property
    def raised(self) -> tuple[ExceptionTrace, ...]:
        """Every exception and panic, first to last; one that was raised from another is told with it."""
        marks = {name: frozenset(self._marked(sign)) for name, sign in MARKS.items()}
        return find_raised(self.searched.split("\n"), ExceptionMarks(**marks))

    def quote(self, match: re.Match[str]) -> str:
        """Return the line of a match with its number; a long line is cut around the match.

        Of a panic's first line, which tells a place in its source, the message is quoted instead.
        """
        index = self.line_of(match)
        panics = (one for one in self.raised if one.begin == index and PLACE in self._words(index))
        if (panic := next(panics, None)) and panic.says != index:
            return self.quote_line(panic.says)
        number, line = self.lines[index]
        column = match.start() - self._starts[index]
        begin = max(0, min(column - QUOTE_CHARS // 4, len(line) - QUOTE_CHARS))
        words = line[begin : begin + QUOTE_CHARS].strip()
        return f"line {number}: {words}" if number else f"outside the log: {words}"

    def quote_line(self, index: int) -> str:
        """Return a line with its number; of a long one the end."""
        number, words = self.lines[index]
        return f"line {number}: {words.strip()[-QUOTE_CHARS:]}" if number else f"outside the log: {words}"

    def last_words(self, most: int = 1) -> list[str]:
        """Return the last lines of the log with their numbers, of those that differ in figures alone the last."""
        told = {line.words.translate(_FIGURES): index for index, line in enumerate(self.lines) if line.number}
        return [self.quote_line(index) for index in sorted(told.values())[-most:]]

    def worst_words(self) -> list[str]:
        """Return the last exception or panic, else the last line that speaks of an error, else the last of all."""
        counting = [one.says for one in self.raised if one.counts and one.end >= self.last_progress]
        bad = [line for line in self._marked(signs.SOUNDS_BAD) - self.warnings if line >= self.last_progress]
        worst = max(counting, default=-1)
        worst = max(bad, default=-1) if worst < 0 else worst
        return [self.quote_line(worst)] if worst >= 0 else self.last_words()

    def end_in_full(self, worst: int | None) -> list[str]:
        """Return the last lines, and below them the worst, or what sounds like it: for what nobody knows."""
        words = self.worst_words() if worst is None else [self.quote_line(worst)]
        return [*(line for line in self.last_words(MOST_QUOTED) if line not in words), *words]
