"""Regular expressions that are looked for in a whole log at once, in small letters.

Small letters on both sides: a search that ignores case takes three times as long.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from functools import cache

Patterns = tuple[str, ...]
"""Regular expressions, any of which may stand in a line, in any case."""
_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_ESCAPE_OR_CAPITAL = re.compile(r"\\.|\(\?P|[A-Z]")
_SET_OR_SPACE = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\s|\\.")
"""Of a regular expression: what may match the end of a line, and escapes, which may be a bracket's."""


def lower(words: str) -> str:
    """Return words in small letters, as patterns expect them; every character keeps its place."""
    return words.translate(_SMALL)


@cache
def compile_words(pattern: str) -> re.Pattern[str]:
    """Return a regular expression for text that is `lower`; it matches the end of a line only where it names it.

    Raises:
        re.error, OverflowError, RecursionError: it is none.
    """
    return re.compile(_SET_OR_SPACE.sub(_in_a_line, _ESCAPE_OR_CAPITAL.sub(_small, pattern)), re.MULTILINE)


def places(patterns: Patterns, text: str, begin: int = 0) -> Iterator[re.Match[str]]:
    """Return where each of some patterns stands in a text that is `lower`, from `begin` on."""
    for pattern in patterns:
        yield from compile_words(pattern).finditer(text, begin)


def search(patterns: Patterns, line: str) -> re.Match[str] | None:
    """Return a place in a line where one of some patterns stands."""
    return next(places(patterns, line), None)


def _small(part: re.Match[str]) -> str:
    return lower(part[0]) if len(part[0]) == 1 else part[0]


def _in_a_line(part: re.Match[str]) -> str:
    """Return a part of a regular expression that matches no end of a line unless it names it."""
    if part[0] == r"\s":
        return r"[^\S\n]"
    return rf"[^\n{part[0][2:]}" if part[0].startswith("[^") else part[0].replace(r"\s", r" \t")
