"""Text for people: what others wrote (names, logs, messages) is shown, never obeyed; things are counted in words."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[]PX^_]|[\x9d\x90])[^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]"
)
"""Of ECMA-48: control sequences (colours, cursor), control strings (titles, links, the clipboard), other escapes."""
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def plain_text(words: str) -> str:
    """Return words as text alone: nothing that a terminal would obey or cannot encode, but tabs and line ends."""
    if words.isascii() and words.isprintable():  # nearly always
        return words
    words = _SEQUENCE.sub("", words).replace("\r\n", "\n").replace("\r", "\n")
    return "".join(letter for letter in words if letter.isprintable() or letter in "\n\t")


def one_line(words: str) -> str:
    """Return words as text alone, on one line."""
    return " ".join(plain_text(words).split())


def plural(number: int, noun: str, plural: str = "s") -> str:
    """Return a count of things in words: "1 patch", "1,200 patches" (`plural`: what makes many of one)."""
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def clock(seconds: float | None) -> str:
    """Return a time span as 2:10:05; empty for None."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def seconds_of(words: str) -> float | None:
    """Return the seconds of "3h30m", "90m", "45s" or "5400"; None of what is no duration."""
    if not (parts := _DURATION.fullmatch(words.strip())) or not any(parts.groups()):
        return None
    return sum(float(number) * unit for number, unit in zip(parts.groups(), (3600, 60, 1), strict=True) if number)


def list_some(things: Iterable[str], most: int = 3, between: str = ", ") -> str:
    """Return some things in words: "images/a.jpg, images/b.jpg and 12 more"; between clauses stands "; "."""
    every = list(things)
    more = f"{' ' if between == ', ' else between}and {len(every) - most:,} more" if len(every) > most else ""
    return between.join(every[:most]) + more


def spell_place(place: Iterable[float]) -> str:
    """Return coordinates in words: "(500000, 4500000, 100)"."""
    return f"({', '.join(f'{value:.15g}' for value in place)})"


def moment(at: float | None) -> str:
    """Return a time of day with its date, in the zone of this machine; empty for None and for no time there is."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at is not None else ""
    except (OverflowError, OSError, ValueError):
        return ""


def assignments(changes: Mapping[str, Any]) -> str:
    """Return settings as --set takes them: "training.init_scale=0.3, training.seed=7"."""
    return ", ".join(f"{key}={value}" for key, value in changes.items())
