"""Harmless lines, and how trainings end: what diagnoses are tested among."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FAILURES = Path(__file__).parents[1] / "failures"


class Ending(NamedTuple):
    """How a training ends: its log before the end and at the end, and what that means."""

    before: str
    end: str
    exit_code: int
    cause: str
    action: str


def noise(name: str = "noise.txt") -> list[str]:
    """Read what runs that work print: blocks of lines, apart at blank ones."""
    return (FAILURES / name).read_text(encoding="utf-8").strip().split("\n\n")


def endings() -> dict[str, Ending]:
    """Read how trainings end: a sentence, exit code, cause and action, and indented the log with --- before the end."""
    found = {}
    for block in (FAILURES / "endings.txt").read_text(encoding="utf-8").strip().split("\n\n"):
        head, *lines = block.split("\n")
        sentence, code, cause, action = re.fullmatch(r"(.+): exit (\d+) -> (\w+) (\w+)", head).groups()
        before, end = "\n".join(line.removeprefix("    ") for line in lines).split("\n---\n")
        found[sentence] = Ending(before, end, int(code), cause, action)
    return found
