"""Deadline of a batch: a time of day, a date with a time, or a duration from its start."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import BeforeValidator

from splatbatch.text import moment, seconds_of

FORMS = "a time of day as 07:00, a date with a time as 2026-11-24 07:00, or a duration as 8h30m"
LONGEST_S = 366 * 86_400.0
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_UNITS = re.compile(r"[\d.]+[hms]")


def ends_at(words: str, now: float) -> float:
    """Return the time of a deadline in seconds since 1970; a date may lie in the past.

    A time of day is the next one by the clocks of this machine. If the clocks skip it when they are put forward, the
    deadline is an hour later. If they show it twice, the deadline is the first of both that is not past.

    Args:
        words: the deadline as the user wrote it, as 07:00, 2026-11-24 07:00 or 8h30m.
        now: the time from which durations and times of day count, in seconds since 1970.

    Raises:
        ValueError: the words are no deadline; the message says why.
    """
    words = words.strip()
    if parts := _TIME.fullmatch(words):
        hour, minute, second = (int(part or 0) for part in parts.groups())
        if hour > 23 or minute > 59 or second > 59:
            raise ValueError("not a time of day: the latest is 23:59")
        today = datetime.fromtimestamp(now)  # by the clocks of this machine
        days = (today + timedelta(days=number) for number in range(3))
        moments = (one.replace(hour=hour, minute=minute, second=second, microsecond=0) for one in days)
        return min(at for one in moments for at in _instants(one) if at > now)
    if _UNITS.search(words) and (seconds := seconds_of(words)) is not None:
        if not 0 < seconds <= LONGEST_S:
            raise ValueError("should be a duration above 0 and at most a year")
        return now + seconds
    try:
        at = datetime.fromisoformat(words).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"should be {FORMS}") from error
    if ":" not in words:
        raise ValueError(f"a date without a time of day: write for example {words} 07:00")
    return at


def in_words(words: str, at: float) -> str:
    """Return a deadline as text: `words`, with date and time in brackets if the words do not give them.

    `at` is the time of the deadline, in seconds since 1970.
    """
    return f"{words} ({moment(at)})" if moment(at)[: len(words)] != words else moment(at)


def _instants(shown: datetime) -> tuple[float, ...]:
    """Return the moments at which the clocks show a time: one, or two; of a skipped time, that an hour later."""
    first, second = (shown.replace(fold=fold).timestamp() for fold in (0, 1))
    return (first, second) if second > first else (first,)


def _checked(given: object) -> object:
    """Check the words of a deadline, and return them with single spaces."""
    words = " ".join(given.split()) if isinstance(given, str) else ""
    ends_at(words, time.time())  # for its errors
    return words


Deadline = Annotated[str, BeforeValidator(_checked)]
"""Type of a deadline in the YAML: the text as the user wrote it, checked when it is read; `ends_at` gives its time."""
