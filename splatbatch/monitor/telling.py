"""What is told on stderr beside the live table: words, and how far something is, in a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

import typer

from splatbatch.plain_text import moment, one_line

EVERY_S = 10.0
"""A line about the same thing is said so often at most."""


def tell(words: str) -> None:
    """Say what somebody waits for."""
    typer.echo(one_line(words), err=True)


def say(words: str) -> None:
    """Say what happens in a night, with its time, as the lines of a console that is no terminal do."""
    tell(f"{moment(time.time())} {words}")


class Lines:
    """Tells a pipe, line by line."""

    def __init__(self, say: Callable[[str], None] = say) -> None:
        self._last = (0.0, "")
        self.say = say

    def advance(self, what: str, done: int, total: int) -> None:
        """Say how far something is, unless that was said just now."""
        at, of = self._last
        if done >= total or what != of or time.monotonic() - at > EVERY_S:
            self._last = (time.monotonic(), what)
            self.say(f"{what}: {done:,} of {total:,} Gaussians")
