"""The command that says how far every patch is: it loads no more than it needs, for it is asked often."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from splatbatch.cli.commands.output import open_console, print_json, print_line
from splatbatch.cluster.workers import RequestedWorkers
from splatbatch.monitor.table import batch_eta_s, live_view, num_shown, status_view
from splatbatch.output.claims import at_work, lines_of
from splatbatch.output.exclusive import holder
from splatbatch.output.index import Index
from splatbatch.output.workers import Watcher
from splatbatch.run.status import BatchStatus, index_of, spelled_crew, standings, statuses_of
from splatbatch.scene.patches import list_names
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.status import PatchStatus, summary
from splatbatch.text import clock, one_line

REDRAW_S = 2.0
LINES_EVERY_S = 60.0
LOOK_S = 0.5
TO_MEND = ("failed", "refused")
"""States of which it is told why, and what to do."""
MOST_NAMED = 8
ENGINE_S = 8.0
"""Between two questions to an engine."""


def status(config: Path | None, names: Sequence[str], *, as_json: bool, watch: bool, verify: bool) -> None:
    """Print how far every patch is, once, or until nobody trains any more.

    `verify` reads every splat and photograph anew.
    """
    if not watch:
        gc.disable()  # one look, then the process ends: to go through its records again and again took a quarter of it
    batch = open_batch(config, names)
    if watch and not as_json:
        crew = RequestedWorkers(batch.output)
        return _watch(StatusWatcher(batch, Watcher(batch.output), crew, None if verify else index_of(batch)))
    room = num_shown(len(batch.tasks))
    found = standings(batch, verify=verify, in_full=None if as_json else room)
    if as_json:
        return print_json(found.facts())
    console, statuses = open_console(), found.statuses
    console.print(status_view(statuses, console.width, room))
    lines = alike((one.patch, one.in_words()) for one in statuses if one.state in TO_MEND)
    lines += alike((one.patch, warning) for one in statuses for warning in one.warnings)
    named = [one for one in found.present if one in found.workers or one.is_quiet]
    for line in (*lines, *(one.in_words() for one in named), *found.crew.in_words()):
        console.print(one_line(line), markup=False)
    console.print(one_line(_last_line(found)), markup=False)
    return None


def alike(told: Iterable[tuple[str, str]]) -> list[str]:
    """Return what is told of patches as a line each; those that the same is told of share one."""
    lots: dict[str, list[str]] = {}
    for patch, words in told:
        lots.setdefault(words.replace(f" {patch}", " PATCH"), []).append(patch)
    first = {words: words.replace(" PATCH", f" {names[0]}") for words, names in lots.items()}
    return [f"{list_names(names, MOST_NAMED)}: {first[words]}" for words, names in lots.items()]


@dataclass
class StatusWatcher:
    """A batch that is watched: how far its patches are, and who works on it, or waits to."""

    batch: Batch
    watcher: Watcher
    crew: RequestedWorkers
    index: Index | None
    _next_look: float = 0.0

    def statuses(self) -> tuple[PatchStatus, ...]:
        """Return how far every patch is now."""
        return statuses_of(self.batch, self.batch.standing(index=self.index), num_shown(len(self.batch.tasks)))

    def is_at_work(self) -> bool:
        """Return whether somebody works on it, or an engine has workers that wait."""
        if time.monotonic() >= self._next_look:
            self.crew.look()
            self._next_look = time.monotonic() + ENGINE_S
        living = any(not self.crew.is_dead(one.job) for one in self.watcher.living())
        return living or self.crew.lives() or holder(self.batch.output) is not None

    def is_over(self) -> bool:
        """Return whether it was begun, and nobody works on it any more."""
        return not self.is_at_work() and any(ledger.exists() for ledger in self.batch.output.ledgers())

    def lines(self) -> list[str]:
        """Return who works on what, and what engines say."""
        return [one_line(line) for line in (*lines_of(at_work(self.watcher)), *self.crew.in_words())]


def _watch(watched: StatusWatcher) -> None:
    """Show a batch until it is over; exit then with 0 if every patch is trained, with 1 if not; Ctrl-C leaves it."""
    with suppress(KeyboardInterrupt):
        _show(watched)
        statuses = watched.statuses()
        print_line(summary(statuses))
        raise typer.Exit(0 if all(one.is_made for one in statuses) else 1)
    if watched.is_at_work():
        print_line("Training continues; `splatbatch cancel` stops it.")


def _show(watched: StatusWatcher) -> None:
    """Show on a terminal a table that moves, else the table once a minute, until it is over."""
    console = open_console()
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, screen=False) as live:

            def draw() -> float:
                below = [Text(line) for line in watched.lines()]
                view = live_view(watched.statuses(), console.size.width, console.size.height - len(below))
                live.update(Group(view, *below), refresh=True)
                return REDRAW_S

            return _repeat(draw, watched)

    def write() -> float:
        table = status_view(watched.statuses(), console.width)
        console.print(f"{time.strftime('%Y-%m-%d %H:%M:%S')}", table, sep="\n")
        for line in watched.lines():
            console.print(line, markup=False)
        sys.stdout.flush()
        return LINES_EVERY_S

    return _repeat(write, watched)


def _repeat(show: Callable[[], float], watched: StatusWatcher) -> None:
    """Show, and again after the seconds that it returns, or once it is over, for the last time."""
    is_over = False
    while not is_over:
        is_over = watched.is_over()
        due = time.monotonic() + show()
        while not is_over:
            time.sleep(LOOK_S)
            if time.monotonic() >= due or watched.is_over():
                break


def _last_line(found: BatchStatus) -> str:
    """Return how it went so far, who goes on with it, and for how long."""
    running, workers = found.running, [one for one in found.workers if not one.is_frozen]
    known = spelled_crew(running, workers)
    who = " and ".join(known) or "none"
    eta = batch_eta_s(found.statuses) if known else None
    to_go = f" About {clock(eta)} to go." if eta is not None else ""
    return f"{summary(found.statuses)}. Running: {who}.{to_go}"
