"""The parsed log of an attempt: its lines with numbers, training steps, exceptions, and where its end begins.

Harmless lines are blanked, and of a long log only the lines that tell of its course or a failure are kept.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from splatbatch.failures import signs
from splatbatch.failures.tracebacks import ExceptionReader, ExceptionTrace
from splatbatch.failures.words import Patterns, lower, places

LINE_CHARS = 1000
"""Longest piece of a line that is searched, in characters: the time of a pattern may grow with the square of its
length."""
FULL_CHARS = 1 << 16
"""Longest log that is read in full, in characters. Of lines in a longer log that differ only in figures, the first and
the last stay."""
HEAD_CHARS, MIDDLE_CHARS, TAIL_CHARS = 16 << 10, 16 << 10, 40 << 10
"""Characters kept of a log that is still too long, to within a line or two: of its beginning, of lines in its middle
that sound bad, and of its end."""
QUOTE_CHARS = 240
"""Longest quote of a line, in characters."""
MOST_BETWEEN = 0.1
"""Largest distance between two reports of progress, as a share of all steps; some programs omit the last report."""

DECORATION = re.compile(
    r"""(?mx)
    ^(?:\x1b\[[0-9;?]*[A-Za-z])*
    (?:\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d\S*[ ]                # a time
    |\[\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d[^]\s]*\][ ]
    |[\w.-]+-\d+[ ]+\|(?:\x1b\[\d*m)?[ ]                        # docker compose: trainer-1  |
    |\[pod/[^]\s]+\][ ]                                        # kubectl logs --prefix
    |\((?:\w+[ ])?pid=\d+(?:,[ ]ip=[\d.]+)?\)(?:\x1b\[\d*m)?[ ]  # Ray
    |\[default\d+\]:[ ]?                                       # torchrun --tee
    |std(?:err|out):[ ]                                         # a program that passes on the lines of another
    |[A-Z][a-z]{2}[ ][ \d]\d[ ]\d\d:\d\d:\d\d[ ][\w.-]+[ ]       # journalctl
        (?!kernel|systemd|slurm|\S*oom)[\w./@-]+\[\d+\]:[ ]
    )+|\x1b\[[0-9;?]*[A-Za-z]
    """
)
"""Pattern of what a program did not say itself: colours, and the times and names that others write before its lines.

Lines of the kernel, Slurm and guards of memory keep them, since they tell whose line it is.
"""
_FIGURES = dict.fromkeys(map(ord, "0123456789.,:|#%█▏▎▍▌▋▊▉ "))


class LogLine(NamedTuple):
    """A line, or a piece of a long line, with its number in the log file, from 1.

    Number 0: a line that does not stand in the log: of the kernel or the engine, on a full disk, or why no process ran.
    """

    number: int
    words: str


def lines_of(text: str, after: int = 0, left_out: int = 0) -> tuple[LogLine, ...]:
    """Return the lines of a log that are not blank, long ones in pieces.

    A long log is shortened: of lines that differ only in figures, the first and last stay, and its middle is thinned
    out.

    Args:
        text: the text of the log.
        after: the number of the line after which lines are left out of `text`, from 1; 0: none are.
        left_out: the number of lines left out there.
    """
    clean = DECORATION.sub("", text).replace("\0", "")  # PowerShell's >> appends UTF-16 to whatever is there
    lines = [(number, part) for number, line in enumerate(clean.split("\n"), 1) for part in line.split("\r")]
    if len(text) > FULL_CHARS:
        lines = [lines[at] for at in _first_and_last(re.split("[\n\r]", clean.translate(_FIGURES)))]
    return tuple(
        _within_limits(
            [
                LogLine(number + left_out if number > after else number, piece)
                for number, line in lines
                for piece in _pieces(line)
                if not piece.isspace()
            ]
        )
    )


def _pieces(line: str) -> Sequence[str]:
    """Return a line in pieces; a line over four pieces loses its middle, and an empty line has no piece."""
    if len(line) > 4 * LINE_CHARS:
        line = f"{line[: 2 * LINE_CHARS - 2]}… {line[-2 * LINE_CHARS :]}"
    return [line[at : at + LINE_CHARS] for at in range(0, len(line), LINE_CHARS)]


def _first_and_last(forms: Sequence[str]) -> list[int]:
    """Return the indices at which each form stands first and last, sorted."""
    last = dict(zip(forms, range(len(forms)), strict=True))
    first = dict(zip(reversed(forms), range(len(forms) - 1, -1, -1), strict=True))
    return sorted({*first.values(), *last.values()})


def _within_limits(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """Return the beginning and the end of a long log, and between them the lines that sound bad, within limits."""
    ends = list(accumulate(len(line.words) + 1 for line in lines))
    if not ends or ends[-1] <= HEAD_CHARS + MIDDLE_CHARS + TAIL_CHARS:
        return lines
    head, tail = bisect_right(ends, HEAD_CHARS), bisect_right(ends, ends[-1] - TAIL_CHARS)
    near = bisect_right(ends, ends[tail] - MIDDLE_CHARS // 2)
    middle, room = list[LogLine](), MIDDLE_CHARS // 2
    for index, line in enumerate(lines[head:tail], head):
        if (room > 0 or index >= near) and signs.BAD_WORDS.search(line.words.lower()):
            middle.append(line)
            room -= len(line.words)
    return [*lines[:head], *middle, *lines[tail:]]


@dataclass(frozen=True)
class Log:
    """The lines of a log, followed by lines of the kernel and the engine; all other values are computed on first use.

    Lines are named by their index in `lines`, from 0.
    """

    lines: tuple[LogLine, ...]

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(len(line.words) + 1 for line in self.lines)]

    @cached_property
    def searched(self) -> str:
        """All lines in small letters, joined by line ends; harmless lines are blanked."""
        text = lower("\n".join(line.words for line in self.lines))
        lines = text.split("\n")
        for match in places(signs.HARMLESS, text):
            lines[self.line_of(match)] = " " * len(lines[self.line_of(match)])
        return "\n".join(lines)

    def line_of(self, match: re.Match[str]) -> int:
        """Return the index of the line in which a match of `searched` begins."""
        return bisect_right(self._starts, match.start()) - 1

    def start_of(self, line: int) -> int:
        """Return the position in `searched` at which the line with this index begins."""
        return self._starts[line]

    def words_of(self, line: int) -> str:
        """Return the line with this index as it stands in `searched`, with its line end; the last line has none."""
        return self.searched[self._starts[line] : self._starts[line + 1]]

    def _marked(self, patterns: Patterns) -> set[int]:
        return {self.line_of(match) for match in places(patterns, self.searched)}

    def _last(self, patterns: Patterns) -> int:
        return max(self._marked(patterns), default=-1)

    @cached_property
    def aside(self) -> set[int]:
        """Indices of the lines of exceptions that did not end the program."""
        return self._marked(signs.ASIDE).union(*(one.lines for one in self.raised if not one.counts))

    @cached_property
    def warnings(self) -> set[int]:
        """Indices of the lines that only warn, and of those of exceptions that did not end the program."""
        return self._marked(signs.WARNINGS) | self.aside

    @cached_property
    def steps(self) -> dict[int, int]:
        """The training step that each line of progress reports, by the index of the line; step 0 does not count."""
        found: dict[int, int] = {}
        for match in places(signs.TRAINING_STEP, self.searched):
            if step := _number(next(filter(None, match.groups()), "0")):  # a bar at 0: nothing has been done yet
                found.setdefault(self.line_of(match), step)
        return found

    @cached_property
    def last_step(self) -> int:
        """The highest training step that the log reports; 0 if it reports none."""
        return max(self.steps.values(), default=0)

    @cached_property
    def finished(self) -> int:
        """Index of the last line that says that training is finished; -1 without such a line."""
        return self._last(signs.FINISHED)

    @cached_property
    def is_writing(self) -> bool:
        """Whether the log ends, after the training, with a file announced as being written but not as written."""
        return self._last(signs.STILL_WRITES) > max(self.finished, self._last(signs.HAS_WRITTEN))

    @cached_property
    def made_all_steps(self) -> bool:
        """Whether the log says that the last step was made, or that training is finished."""
        return self.finished >= 0 or bool(self._marked(signs.ALL_STEPS_MADE))

    @cached_property
    def broke_off(self) -> str:
        """The last reported step as "step 900 of 30000" if the log breaks off there; empty if it does not.

        Empty, too, if the log reports no step, or not how many there are.
        """
        if not self.steps or self.made_all_steps:
            return ""
        last = max(self.steps)
        counts = (one for one in signs.OF_STEPS.finditer(self.words_of(last)) if _number(one[1]) == self.steps[last])
        if (told := next(counts, None)) is None:
            return ""
        step, total = _number(told[1]), _number(told[2])
        between = step - max((one for one in self.steps.values() if one < step), default=0)
        is_near = step + 2 * min(between, MOST_BETWEEN * total) >= total
        return "" if is_near or self._last(signs.WRAPS_UP) > last else f"step {told[1]} of {told[2]}"

    @cached_property
    def diverged(self) -> re.Match[str] | None:
        """The match of the last reported loss if it is NaN or infinite; None otherwise."""
        told = max(places(signs.LOSS, self.searched), key=re.Match.start, default=None)
        return told if told and told[1].lstrip("-")[:1] in {"n", "i"} else None

    @cached_property
    def last_progress(self) -> int:
        """Index of the last line of progress, where the end of the log begins; 0 without any.

        A progress bar that is printed again inside a traceback, or when an exception closes it, does not count.
        """
        counting = [one for one in self.raised if one.counts]
        has_others = [one for one in counting if len(one.lines) <= one.end - one.begin]
        within = {line for one in has_others for line in range(one.begin, one.end)}
        lines, ends = sorted(set(self.steps) - within), {self._next_that_says_something(one.end) for one in counting}
        while lines and (lines[-1] in ends or (lines[-2:-1] and self.steps[lines[-1]] == self.steps[lines[-2]])):
            lines.pop()
        return lines[-1] if lines else 0

    def _next_that_says_something(self, line: int) -> int | None:
        return next((at for at in range(line + 1, len(self.lines)) if not self.words_of(at).isspace()), None)

    @cached_property
    def in_exceptions(self) -> set[int]:
        """Indices of the lines of exceptions and panics."""
        return {line for one in self.raised for line in one.lines}

    @cached_property
    def wrappers(self) -> set[int]:
        """Indices of the lines that only pass on an exception of another process."""
        return self._marked(signs.WRAPS)

    @cached_property
    def errors(self) -> set[int]:
        """Indices of the lines that the program itself marks as errors."""
        return self._marked(signs.ERROR_LEVEL)

    @cached_property
    def sounds_bad(self) -> bool:
        """Whether the last line after the last progress, warnings aside, is an error or of a main exception."""
        told = (line for line in range(len(self.lines) - 1, self.last_progress - 1, -1) if line not in self.warnings)
        last = next((line for line in told if not self.words_of(line).isspace()), None)
        return last in self.errors.union(*(one.lines for one in self.raised if one.is_main))

    @cached_property
    def raised(self) -> tuple[ExceptionTrace, ...]:
        """Every exception and panic, in the order in which they end; () without any.

        Exceptions chained to each other are one.
        """
        return ExceptionReader(self.searched.split("\n"), self._marked).find()

    def quote(self, match: re.Match[str]) -> str:
        """Return the line of a match with its number; a long line is cut around the match.

        For the first line of a panic, which names only a place in its source, the message is quoted instead.
        """
        index = self.line_of(match)
        panics = (one for one in self.raised if one.begin == index and "panicked at" in self.words_of(index))
        if (panic := next(panics, None)) and panic.says != index:
            return self.quote_line(panic.says)
        return self.quote_line(index, match.start() - self._starts[index] - QUOTE_CHARS // 4)

    def quote_line(self, index: int, begin: int = sys.maxsize) -> str:
        """Return the line with this index as "line 12: …"; a long one is cut to `QUOTE_CHARS`.

        The cut piece begins at the character `begin`, or earlier, so that the end of the line is used up. A line of the
        machine begins with "outside the log: ".
        """
        number, words = self.lines[index]
        words = words.rstrip()
        begin = max(0, min(begin, len(words) - QUOTE_CHARS))
        return f"{f'line {number}' if number else 'outside the log'}: {words[begin : begin + QUOTE_CHARS].strip()}"

    def last_words(self, most: int = 1) -> list[str]:
        """Return the last lines of the log, quoted, at most `most`; of lines that differ only in figures, the last one.

        [] if the log is empty.
        """
        told = {line.words.translate(_FIGURES): index for index, line in enumerate(self.lines) if line.number}
        return [self.quote_line(index) for index in sorted(told.values())[-most:]]

    def worst_words(self) -> list[str]:
        """Return, quoted, the line that tells most of a failure; [] if the log is empty.

        This is the message of the last exception after the last progress, else the last error line, else the last line.
        """
        counting = [one.says for one in self.raised if one.counts and one.end >= self.last_progress]
        bad = [line for line in self._marked(signs.SOUNDS_BAD) - self.warnings if line >= self.last_progress]
        return [self.quote_line(max(counting or bad))] if counting or bad else self.last_words()


def _number(figures: str) -> int:
    return int(figures.replace(",", ""))
