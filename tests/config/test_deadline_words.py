"""When a deadline is: the next time of day, a date, a span; across midnight, and when clocks are changed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from splatbatch.config.deadline import ends_at


@pytest.fixture(autouse=True)
def _in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(words: str) -> float:
    return datetime.fromisoformat(words).timestamp()


@pytest.mark.parametrize(
    ("words", "now", "end"),
    [
        ("07:00", "2026-11-22 22:00", "2026-11-23 07:00"),
        ("07:00", "2026-11-23 00:30", "2026-11-23 07:00"),
        ("7:00", "2026-11-23 06:59:59", "2026-11-23 07:00"),
        ("07:00", "2026-11-23 07:00", "2026-11-24 07:00"),
        ("00:00", "2026-12-31 23:00", "2027-01-01 00:00"),
        ("07:00", "2026-03-28 22:00", "2026-03-29 07:00"),
        ("2026-11-24 07:00", "2026-11-22 22:00", "2026-11-24 07:00"),
        ("2026-11-24T07:00+00:00", "2026-11-22 22:00", "2026-11-24 08:00"),
        ("8h30m", "2026-11-22 22:00", "2026-11-23 06:30"),
    ],
)
def test_a_deadline_is_the_next_time_that_its_words_mean(words: str, now: str, end: str) -> None:
    assert ends_at(words, at(now)) == at(end)


def test_the_night_that_loses_an_hour_is_shorter(_in_berlin: None) -> None:
    now = at("2026-03-28 22:00")
    assert ends_at("07:00", now) - now == 8 * 3600


def test_a_time_that_clocks_skip_counts_an_hour_later() -> None:
    assert ends_at("02:30", at("2026-03-29 01:00")) == at("2026-03-29 03:30")


def test_a_time_that_clocks_show_twice_counts_at_its_first_then_its_second() -> None:
    first = datetime.fromisoformat("2026-10-25 02:30+02:00").timestamp()
    assert ends_at("02:30", at("2026-10-25 01:00")) == first
    assert ends_at("02:30", first + 60) == first + 3600
