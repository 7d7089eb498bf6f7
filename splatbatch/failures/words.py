"""Regular expressions that are looked for in a whole log at once, in small letters."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from functools import cached_property

_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_ESCAPE_OR_CAPITAL = re.compile(r"\\.|\(\?P|[A-Z]")
_SET_OR_SPACE = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\s|\\.")
"""Of a regular expression: what may match the end of a line, and escapes, which may be a bracket's."""


def lower(words: str) -> str:
    """Return words in small letters, as patterns expect them; every character keeps its place."""
    return words.translate(_SMALL)


def _small(part: re.Match[str]) -> str:
    return lower(part[0]) if len(part[0]) == 1 else part[0]


def _in_a_line(part: re.Match[str]) -> str:
    """Return a part of a regular expression that matches no end of a line unless it names it."""
    if part[0] == r"\s":
        return r"[^\S\n]"
    return rf"[^\n{part[0][2:]}" if part[0].startswith("[^") else part[0].replace(r"\s", r" \t")


class LinePatterns:
    """Patterns, any of which may stand in a line, in any case; they are searched in text that is `lower`.

    Small letters on both sides: a search that ignores case takes three times as long. Each is compiled when it is
    first looked for.
    """

    def __init__(self, *patterns: str) -> None:
        self.patterns = tuple(
            _SET_OR_SPACE.sub(_in_a_line, _ESCAPE_OR_CAPITAL.sub(_small, pattern)) for pattern in patterns
        )

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        return re.compile("|".join(self.patterns), re.MULTILINE)

    @cached_property
    def _each(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(pattern, re.MULTILINE) for pattern in self.patterns)

    def search(self, line: str) -> re.Match[str] | None:
        """Return the first place in a line where one of them stands."""
        return self._whole.search(line)

    def finditer(self, line: str) -> Iterator[re.Match[str]]:
        """Return each place in a line where one of them stands."""
        return self._whole.finditer(line)

    def places(self, text: str, begin: int = 0) -> Iterator[re.Match[str]]:
        """Return where each of them stands in a text from `begin` on."""
        for pattern in self._each:
            yield from pattern.finditer(text, begin)
