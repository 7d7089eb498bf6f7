"""What is told on stderr beside the live table: words, and how far something is, as a bar or a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

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


class Bars:
    """Tells a terminal, with a bar for each thing that takes long."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bars: dict[str, TaskID] = {}

    def say(self, words: str) -> None:
        """Say something, above the bars."""
        self._progress.console.print(one_line(words), markup=False, highlight=False)

    def advance(self, what: str, done: int, total: int) -> None:
        """Move a bar."""
        if what not in self._bars:
            self._bars[what] = self._progress.add_task(one_line(what), total=total)
        self._progress.update(self._bars[what], completed=done)


@contextmanager
def open_telling() -> Iterator[Lines | Bars]:
    """Give what fits stderr."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield Bars(progress)
