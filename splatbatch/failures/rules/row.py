"""The form of one known failure."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from splatbatch.outcome import Action

_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_ESCAPE_OR_CAPITAL = re.compile(r"\\.|[A-Z]")


class Words:
    """A pattern that finds any of the given ones line by line, in any case: in words that are `lower`.

    Small letters on both sides: a search that ignores case takes three times as long. Compiled when it is first
    looked for: all rows together take 0.15 s, and most nights need none of them.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        small = _ESCAPE_OR_CAPITAL.sub(
            lambda match: match[0] if match[0].startswith("\\") else lower(match[0]), "|".join(self._patterns)
        )
        return re.compile(small, re.MULTILINE)

    def search(self, words: str) -> re.Match[str] | None:
        """Return the first place where it stands."""
        return self._compiled.search(words)

    def finditer(self, words: str) -> Iterator[re.Match[str]]:
        """Return each place where it stands."""
        return self._compiled.finditer(words)


@dataclass(frozen=True)
class Row:
    """One known failure: what it is called, what may help, what to tell the user, and the text it leaves."""

    cause: str
    action: Action
    advice: str
    pattern: Words
    also: Words | None = None
    """This must stand somewhere in the log too."""
    unless: Words | None = None
    """This must stand nowhere in the log: it is a look-alike."""
    holds: Callable[[str], bool] | None = None
    """This must be true of the matched line: numbers that a pattern cannot weigh."""
    midrun: Action | None = None
    """The action once steps were made, where the same message is another story."""
    watched: Action | None = None
    """The action for an attempt of ours, whose settings and start can be changed; a log alone cannot promise that."""
    silent: bool = False
    """The program may well go on, say that it is done and exit 0."""
    optional: bool = False
    """It may concern a thing one can do without: a program that exits 0 did without."""


def lower(words: str) -> str:
    """Return words in small letters, as `text` expects them; every character keeps its place."""
    return words.translate(_SMALL)


def text(*patterns: str) -> Words:
    """Return what finds any of the given patterns."""
    return Words(patterns)
