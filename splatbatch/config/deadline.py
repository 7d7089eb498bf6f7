"""When a batch should have ended: a time of day, a date with a time, or a duration from its start."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator

from splatbatch.text import moment, seconds_of

FORMS = "a time of day as 07:00, a date with a time as 2026-11-24 07:00, or a duration as 8h30m"
LONGEST_S = 366 * 86_400.0
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_UNITS = re.compile(r"[\d.]+[hms]")


def ends_at(words: str, now: float) -> float:
    """Return when a deadline is that is set now, in seconds since 1970; of a date it may be past.

    A time of day that the clocks skip when they are put forward counts an hour later; one that they show twice counts
    at its first time, or its second once that is past.

    Raises:
        ValueError: it means none; its text says what is wrong.
    """
    words = words.strip()
    if parts := _TIME.fullmatch(words):
        hour, minute, second = (int(part or 0) for part in parts.groups())
        if hour > 23 or minute > 59 or second > 59:
            raise ValueError("no time of day: these end at 23:59")
        today = datetime.fromtimestamp(now)  # by the clocks of this machine
        days = (today + timedelta(days=number) for number in range(3))
        moments = (one.replace(hour=hour, minute=minute, second=second, microsecond=0) for one in days)
        return min(at for one in moments for at in _instants(one) if at > now)
    if _UNITS.search(words) and (seconds := seconds_of(words)) is not None:
        if not 0 < seconds <= LONGEST_S:
            raise ValueError("should be above 0 and at most a year")
        return now + seconds
    try:
        at = datetime.fromisoformat(words).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"should be {FORMS}") from error
    if ":" not in words:
        raise ValueError(f"a date without a time: write {words} 07:00")
    return at


def in_words(words: str, at: float) -> str:
    """Return a deadline with the time that it means, if its words do not say it themselves."""
    return f"{words} ({moment(at)})" if moment(at)[: len(words)] != words else moment(at)


def _instants(shown: datetime) -> tuple[float, ...]:
    """Return when the clocks show a time: once, twice, or, where they skip it, what they show an hour later."""
    first, second = (shown.replace(fold=fold).timestamp() for fold in (0, 1))
    return (first, second) if second > first else (first,)


def _checked(given: Any) -> Any:
    """Return the words of a deadline as they were written."""
    words = " ".join(given.split()) if isinstance(given, str) else ""
    ends_at(words, time.time())  # for its errors
    return words


Deadline = Annotated[str, BeforeValidator(_checked)]
"""The words; what they mean depends on when they are read."""
