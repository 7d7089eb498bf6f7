"""Text for people: text of others made safe for a terminal, and counts, times and settings in words."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[]PX^_]|[\x9d\x90])[^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]"
)
"""Escape sequences of ECMA-48: control sequences (colours, cursor), control strings (titles, links, the clipboard)
and other escapes."""
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def plain_text(words: str) -> str:
    """Return text without escape sequences and unprintable characters; tabs stay, and line ends as line feeds."""
    if words.isascii() and words.isprintable():  # nearly always
        return words
    words = _SEQUENCE.sub("", words).replace("\r\n", "\n").replace("\r", "\n")
    return "".join(letter for letter in words if letter.isprintable() or letter in "\n\t")


def one_line(words: str) -> str:
    """Return text as `plain_text` does, with one blank for each run of blanks, tabs and line ends, none at its ends."""
    return " ".join(plain_text(words).split())


def plural(number: int, noun: str, plural: str = "s") -> str:
    """Return a count in words: "1 patch", "1,200 patches"; `plural` is the ending of the plural."""
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def percent(share: float) -> str:
    """Return a share from 0 to 1 as "12 %", rounded to two digits; only below 0.0001 % with an exponent."""
    return f"{float(f'{100 * share:.2g}'):g} %"


def clock(seconds: float | None) -> str:
    """Return a time span in seconds as hours, minutes and seconds: 2:10:05; "" for None."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def seconds_of(words: str) -> float | None:
    """Return the seconds of "3h30m", "90m", "45s" or "5400"; None for a text that is no duration."""
    if not (parts := _DURATION.fullmatch(words.strip())) or not any(parts.groups()):
        return None
    return sum(float(number) * unit for number, unit in zip(parts.groups(), (3600, 60, 1), strict=True) if number)


def list_some(things: Iterable[str], most: int = 3, between: str = ", ") -> str:
    """Return the first `most` of some things as text: "images/a.jpg, images/b.jpg and 12 more"; "" if there are none.

    Args:
        things: the things, in the order in which they are named.
        most: largest number of things that are named.
        between: text between two of them; "; " for clauses.
    """
    every = list(things)
    more = f"{' ' if between == ', ' else between}and {len(every) - most:,} more" if len(every) > most else ""
    return between.join(every[:most]) + more


def spell_place(place: Iterable[float]) -> str:
    """Return coordinates as text: "(500000, 4500000, 100)"."""
    return f"({', '.join(f'{value:.15g}' for value in place)})"


def moment(at: float | None) -> str:
    """Return a Unix time, in seconds since 1970, as local date and time: 2026-01-31 22:15:00.

    "" for None and for a time that the clock of this machine cannot show.
    """
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at is not None else ""
    except (OverflowError, OSError, ValueError):
        return ""


def assignments(changes: Mapping[str, Any]) -> str:
    """Return settings as the option --set takes them: "training.init_scale=0.3, training.seed=7".

    "" if there are none.
    """
    return ", ".join(f"{key}={value}" for key, value in changes.items())
