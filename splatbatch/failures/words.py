"""Search of a whole log by regular expressions, which ignore case and match within one line.

Log and patterns are put into small letters: a search by re.IGNORECASE takes three times as long.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from functools import cache

Patterns = tuple[str, ...]
"""Alternative regular expressions, in any case; a line matches if one of them matches."""
_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_ESCAPE_OR_CAPITAL = re.compile(r"\\.|\(\?P|[A-Z]")
_SET_OR_SPACE = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\s|\\.")
"""The parts of a regular expression that may match a line end, and escapes, so that an escaped bracket is no set."""


def lower(words: str) -> str:
    """Return text with the letters A to Z made small, as `compile_words` expects it; positions stay the same."""
    return words.translate(_SMALL)


@cache
def compile_words(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression for text that `lower` returned.

    A line end matches where the pattern names it, as by "\\n", and for "\\W" and "\\D" outside a set.

    Raises:
        re.error, OverflowError, RecursionError: `pattern` is no regular expression.
    """
    return re.compile(_SET_OR_SPACE.sub(_in_a_line, _ESCAPE_OR_CAPITAL.sub(_small, pattern)), re.MULTILINE)


def places(patterns: Patterns, text: str, begin: int = 0) -> Iterator[re.Match[str]]:
    """Yield all matches of each pattern in a text that `lower` returned, from `begin` on, pattern by pattern."""
    for pattern in patterns:
        yield from compile_words(pattern).finditer(text, begin)


def search(patterns: Patterns, line: str) -> re.Match[str] | None:
    """Return the first match in a line that `lower` returned, of the first pattern that matches; None without one."""
    return next(places(patterns, line), None)


def _small(part: re.Match[str]) -> str:
    return lower(part[0]) if len(part[0]) == 1 else part[0]


def _in_a_line(part: re.Match[str]) -> str:
    """Return a part of a regular expression changed so that it matches no line end unless it names it."""
    if part[0] == r"\s":
        return r"[^\S\n]"
    return rf"[^\n{part[0][2:]}" if part[0].startswith("[^") else part[0].replace(r"\s", r" \t")
