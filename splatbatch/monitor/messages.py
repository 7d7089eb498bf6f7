"""What is told on stderr beside the live table: words, and how far something is, in a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

import typer

from splatbatch.text import clock, moment, one_line

EVERY_S = 10.0
"""A line about the same thing is said so often at most."""
PATIENCE_S = 5.0
"""Of what takes less nothing is said."""


def print_err(words: str) -> None:
    """Print a line on stderr: what is waited for."""
    typer.echo(one_line(words), err=True)


def log_line(words: str) -> None:
    """Say what happens in a night, with its time, as the lines of a console that is no terminal do."""
    print_err(f"{moment(time.time())} {words}")


class PipeWriter:
    """Tells a pipe, line by line."""

    def __init__(self, say: Callable[[str], None] = print_err) -> None:
        self._what, self._began, self._said = "", 0.0, 0.0
        self.say = say

    def advance(self, what: str, done: int, total: int, unit: str = "Gaussians") -> None:
        """Say how far something is and how long it will take; not at first, nor where that was said just now."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._began, self._said = what, now, now - EVERY_S + PATIENCE_S
        if now - self._said < EVERY_S:
            return
        self._said = now
        left = f", about {clock((now - self._began) * (total - done) / done)} to go" if done else ""
        self.say(f"{what}: {done:,} of {total:,} {unit}{left}")
