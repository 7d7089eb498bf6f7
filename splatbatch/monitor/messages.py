"""Messages on stderr without the live table: plain lines, timestamped lines, and occasional lines of progress."""

from __future__ import annotations

import time
from collections.abc import Callable

import typer

from splatbatch.text import clock, moment, one_line

EVERY_S = 10.0
"""Least seconds between two lines of progress about the same operation."""
PATIENCE_S = 5.0
"""Seconds that an operation must take before its progress is printed."""


def print_err(words: str) -> None:
    """Print a text on stderr as one line; line breaks become blanks."""
    typer.echo(one_line(words), err=True)


def log_line(words: str) -> None:
    """Print a line on stderr with date and time in front, in the format of ConsoleListener without a terminal."""
    print_err(f"{moment(time.time())} {words}")


class PipeWriter:
    """Prints messages and progress as plain lines, for commands without a live table.

    `say` prints a line; by default on stderr.
    """

    def __init__(self, say: Callable[[str], None] = print_err) -> None:
        self._what, self._began, self._said = "", 0.0, 0.0
        self.say = say

    def advance(self, what: str, done: int, total: int, unit: str = "Gaussians") -> None:
        """Print progress and the time left; not in the first `PATIENCE_S` of an operation, and at most every `EVERY_S`.

        Args:
            what: words for the operation; another value starts anew.
            done: units done so far; 0: the time left is unknown.
            total: units in all.
            unit: plural name of a unit.
        """
        now = time.monotonic()
        if what != self._what:
            self._what, self._began, self._said = what, now, now - EVERY_S + PATIENCE_S
        if now - self._said < EVERY_S:
            return
        self._said = now
        left = f", about {clock((now - self._began) * (total - done) / done)} to go" if done else ""
        self.say(f"{what}: {done:,} of {total:,} {unit}{left}")
