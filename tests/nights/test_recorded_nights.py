"""Each recorded night is played anew, and must print and leave what it did."""

from __future__ import annotations

import difflib

import pytest
from nights import NIGHTS, RECORDED, read

MOST_LINES = 60
"""Of a difference that is shown."""


def difference(name: str, recorded: dict[str, str], played: dict[str, str]) -> list[str]:
    """Return the unified difference of two recordings of a night."""
    return [
        line
        for text in sorted(recorded.keys() | played.keys())
        for line in difflib.unified_diff(
            recorded.get(text, "").splitlines(),
            played.get(text, "").splitlines(),
            f"recorded/{name}/{text}",
            f"played/{name}/{text}",
            lineterm="",
        )
    ]


@pytest.mark.all
@pytest.mark.parametrize("name", NIGHTS)
def test_a_night_prints_and_leaves_what_was_recorded(name: str) -> None:
    lines = difference(name, read(RECORDED / name), NIGHTS[name].record())
    more = [f"… and {len(lines) - MOST_LINES} lines more"] if len(lines) > MOST_LINES else []
    remedy = f"scripts/record_nights {name} records it anew"
    assert not lines, "\n".join(["", *lines[:MOST_LINES], *more, remedy])


def test_every_recording_is_of_a_night_that_is_played() -> None:
    assert sorted(path.name for path in RECORDED.iterdir()) == sorted(NIGHTS)
