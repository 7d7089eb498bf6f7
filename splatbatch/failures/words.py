"""Regular expressions that are looked for in a whole log at once: a word of their own is found first."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_ESCAPE_OR_CAPITAL = re.compile(r"\\.|\(\?P|[A-Z]")
_SET = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_ITEM = re.compile(rf"\\.|{_SET.pattern}|\{{[^}}]*\}}")
"""An escape, a set of characters, or a count."""
SHORTEST_WORD = 3
"""Shorter ones stand in most lines and spare nothing."""
MOST_LINES, LAST_CHARS = 200, 8 << 10
"""If a word stands in so many lines, what follows is searched at the end of the text alone."""


def lower(words: str) -> str:
    """Return words in small letters, as patterns expect them; every character keeps its place."""
    return words.translate(_SMALL)


class LinePatterns:
    """Patterns, any of which may stand in a line, in any case; they are searched in text that is `lower`.

    Small letters on both sides: a search that ignores case takes three times as long. Each is compiled when a word of
    its own is first found: all together take 0.15 s, and a log needs a handful.
    """

    def __init__(self, *patterns: str) -> None:
        self.patterns = tuple(_in_small_letters(pattern) for pattern in patterns)

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        return re.compile("|".join(self.patterns), re.MULTILINE)

    @cached_property
    def _branches(self) -> tuple[tuple[tuple[str, ...], _Branch], ...]:
        """The patterns' branches, each with the words of which it needs one."""
        branches = (_Branch(source) for pattern in self.patterns for source in _split(pattern))
        return tuple((branch.words or ("",), branch) for branch in branches)

    def search(self, line: str) -> re.Match[str] | None:
        """Return the first place in a line where one of them stands."""
        return self._whole.search(line)

    def finditer(self, line: str) -> Iterator[re.Match[str]]:
        """Return each place in a line where one of them stands."""
        return self._whole.finditer(line)

    def places(self, text: str, begin: int = 0) -> Iterator[re.Match[str]]:
        """Return where they stand in a text from `begin` on, once a line for each that does; not sorted."""
        for words, branch in self._branches:
            for word in words:  # most branches end here: written for speed
                if text.find(word, begin) >= 0:
                    yield from branch.places(text, begin)
                    break


@dataclass(frozen=True)
class _Branch:
    """One of several patterns."""

    source: str

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.source, re.MULTILINE)

    @cached_property
    def _runs(self) -> list[tuple[str, ...]]:
        """Words of which each match has one, for each of its parts; the longest first."""
        return sorted(_runs_of(self.source), key=_shortest, reverse=True)

    @property
    def words(self) -> tuple[str, ...]:
        """Words of which each match has one; none if all are short."""
        return self._runs[0] if self._runs else ()

    @cached_property
    def _spans_lines(self) -> bool:
        return r"\n" in _SET.sub("", self.source)

    def places(self, text: str, begin: int) -> Iterator[re.Match[str]]:
        words, *more = self._runs or [()]
        if not words or self._spans_lines:
            yield from self._pattern.finditer(text, begin)
            return
        for word in words:
            at, lines = text.find(word, begin), 0
            while at >= 0:
                end = text.find("\n", at)
                end = len(text) if end < 0 else end
                start = max(begin, text.rfind("\n", 0, at) + 1)
                is_likely = all(any(text.find(each, start, end) >= 0 for each in run) for run in more)
                if is_likely and (match := self._pattern.search(text, start, end)):
                    yield match
                lines += 1
                at = text.find(word, end if lines < MOST_LINES else max(end, len(text) - LAST_CHARS))


def _in_small_letters(pattern: str) -> str:
    return _ESCAPE_OR_CAPITAL.sub(lambda match: lower(match[0]) if len(match[0]) == 1 else match[0], pattern)


def _split(pattern: str) -> list[str]:
    """Return the branches of a pattern: what stands between bars that are in no bracket."""
    branches, begin, at = [], 0, 0
    while at < len(pattern):
        if pattern[at] == "|":
            branches.append(pattern[begin:at])
            begin = at + 1
        at = _end_of_item(pattern, at)
    return [*branches, pattern[begin:]]


def _end_of_item(pattern: str, at: int) -> int:
    """Return where the character, escape, set or group ends that begins at a place of a pattern."""
    if found := _ITEM.match(pattern, at):
        return found.end()
    if pattern[at] != "(":
        return at + 1
    at += 1
    while pattern[at] != ")":
        at = _end_of_item(pattern, at)
    return at + 1


def _words_of(branch: str) -> tuple[str, ...]:
    """Return words of which each match of a pattern has one: its longest, or a group's; none if all are short."""
    return max(_runs_of(branch), key=_shortest, default=())


def _runs_of(branch: str) -> list[tuple[str, ...]]:
    """Return for each part of a pattern that is plain, or a group of such, the words of which a match has one."""
    runs: list[tuple[str, ...]] = [("",)]
    at = 0
    while at < len(branch):
        end = _end_of_item(branch, at)
        runs += _grown(runs.pop(), branch[at:end], branch[end : end + 2])
        at = end
    return [words for words in runs if _shortest(words) >= SHORTEST_WORD]


def _shortest(words: tuple[str, ...]) -> int:
    return min(map(len, words))


def _grown(run: tuple[str, ...], item: str, after: str) -> list[tuple[str, ...]]:
    """Return a run of plain characters with the next item of its pattern; a new run begins where that is none."""
    is_optional = after[:1] in {"?", "*"} or after == "{0"
    if item[0] == "(" and not is_optional:
        return [run, _words_of_group(item), ("",)]
    is_escaped = item[0] == "\\" and not item[-1].isalnum()
    if is_optional or not (is_escaped or (len(item) == 1 and item not in ".^$+?*")):
        return [run, ("",)]
    return [(run[0] + item[-1],)]


def _words_of_group(group: str) -> tuple[str, ...]:
    body = group[3:-1] if group.startswith("(?:") else group[1:-1]
    if body.startswith("?"):
        return ("",)
    words = [_words_of(branch) for branch in _split(body)]
    return tuple(word for each in words for word in each) if all(words) else ("",)
