"""When a batch should have ended: a time of day, a date with a time, or a duration from its start."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator

from splatbatch.text import moment, seconds_of

FORMS = "a time of day as 07:00, a date with a time as 2026-11-24 07:00, or a duration as 8h30m"
LONGEST_S = 366 * 86_400.0
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_UNITS = re.compile(r"[\d.]+[hms]")


@dataclass(frozen=True)
class TimeOfDay:
    """The next time that the clocks of this machine show it."""

    hour: int
    minute: int
    second: int = 0


@dataclass(frozen=True)
class ClockTime:
    """One time there is, in the zone of this machine unless it names its own."""

    at: datetime


@dataclass(frozen=True)
class TimeSpan:
    """So long from the start."""

    seconds: float


When = TimeOfDay | ClockTime | TimeSpan


def parse_deadline(words: str) -> When:
    """Return what the words of a deadline mean.

    Raises:
        ValueError: they mean none; its text says what is wrong.
    """
    words = words.strip()
    if parts := _TIME.fullmatch(words):
        hour, minute, second = (int(part or 0) for part in parts.groups())
        if hour > 23 or minute > 59 or second > 59:
            raise ValueError("no time of day: these end at 23:59")
        return TimeOfDay(hour, minute, second)
    if _UNITS.search(words) and (seconds := seconds_of(words)) is not None:
        if not 0 < seconds <= LONGEST_S:
            raise ValueError("should be above 0 and at most a year")
        return TimeSpan(seconds)
    try:
        at = datetime.fromisoformat(words)
        at.timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"should be {FORMS}") from error
    if ":" not in words:
        raise ValueError(f"a date without a time: write {words} 07:00")
    return ClockTime(at)


def ends_at(words: str, now: float) -> float:
    """Return when a deadline is that is set now, in seconds since 1970; of a date it may be past.

    A time of day that the clocks skip when they are put forward counts an hour later; one that they show twice counts
    at its first time, or its second once that is past.

    Raises:
        ValueError: it means none.
    """
    match parse_deadline(words):
        case TimeSpan(seconds=seconds):
            return now + seconds
        case ClockTime(at=at):
            return at.timestamp()
        case TimeOfDay(hour=hour, minute=minute, second=second):
            today = datetime.fromtimestamp(now)  # by the clocks of this machine
            days = (today + timedelta(days=number) for number in range(3))
            times = [one.replace(hour=hour, minute=minute, second=second, microsecond=0) for one in days]
            return min(at for time in times for at in _instants(time) if at > now)


def in_words(words: str, at: float) -> str:
    """Return a deadline with the time that it means, if its words do not say it themselves."""
    return f"{words} ({moment(at)})" if moment(at)[: len(words)] != words else moment(at)


def _instants(time: datetime) -> tuple[float, ...]:
    """Return when the clocks show a time: once, twice, or, where they skip it, what they show an hour later."""
    first, second = (time.replace(fold=fold).timestamp() for fold in (0, 1))
    return (first, second) if second > first else (first,)


def _checked(given: Any) -> Any:
    """Return the words of a deadline as they were written."""
    words = " ".join(given.split()) if isinstance(given, str) else ""
    parse_deadline(words)
    return words


Deadline = Annotated[str, BeforeValidator(_checked)]
"""The words; what they mean depends on when they are read."""
