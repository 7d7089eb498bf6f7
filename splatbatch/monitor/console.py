"""What people see while a batch runs: a live table on a terminal, timestamped lines anywhere else. Always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from splatbatch import terminal
from splatbatch.failures.causes import title
from splatbatch.monitor.history import with_changes
from splatbatch.monitor.table import batch_line, live_view, num_left, num_shown
from splatbatch.output import events
from splatbatch.output.claims import at_work
from splatbatch.output.events import AttemptEnded, Event
from splatbatch.output.layout import OutputFolder
from splatbatch.output.workers import Watcher
from splatbatch.tasks.counts import WORDS, how_many
from splatbatch.tasks.freshness import FreshnessChecker
from splatbatch.tasks.status import PatchStatus, noun_of, read_status
from splatbatch.text import clock, one_line, plural

HEARTBEAT_S = 60.0
REDRAW_S = 1.0
LONGEST_LINE = 600
MOST_TOLD = 64
"""Of so many running patches it is told where they run."""
_REMARKABLE = (
    events.RunForecast,
    events.Notice,
    events.RetryScheduled,
    events.GaveUp,
    events.Restored,
    events.PatchRejected,
    events.Resumed,
    events.PreflightWarning,
)


def open_listener(
    output: OutputFolder, names: Sequence[str], standing: FreshnessChecker | None = None
) -> ConsoleListener:
    """Return what fits stderr; a pipe gets lines even if FORCE_COLOR claims that it is a terminal."""
    kind = LiveListener if sys.stderr.isatty() else LineListener
    return kind(output, names, standing)


class ConsoleListener:
    """Tells people what happens to a batch while its `with` block runs."""

    def __init__(self, output: OutputFolder, names: Sequence[str], standing: FreshnessChecker | None = None) -> None:
        self._output, self._names, self._standing = output, names, standing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End it, whatever has happened."""

    def tell(self, event: Event) -> None:
        """Show an event of the ledger."""
        raise NotImplementedError

    def tick(self) -> None:
        """Show that time passes, and how much nobody took; called many times a second."""
        if lost := terminal.take_lost():
            self.say(f"{plural(lost, 'line')} not shown: nobody took them")

    def say(self, line: str) -> None:
        """Show a line, with its time."""
        raise NotImplementedError


class LineListener(ConsoleListener):
    """One line per event, and a heartbeat a minute: for cron, nohup and CI."""

    def __init__(self, output: OutputFolder, names: Sequence[str], standing: FreshnessChecker | None = None) -> None:
        super().__init__(output, names, standing)
        self._next_beat = time.monotonic() + HEARTBEAT_S

    def tell(self, event: Event) -> None:
        """Print an event."""
        if line := in_words(event):
            self.say(line)

    def say(self, line: str) -> None:
        """Print a line."""
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", file=sys.stderr, flush=True)  # noqa: T201

    def tick(self) -> None:
        """Print what runs, once a minute."""
        super().tick()
        if time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + HEARTBEAT_S
        statuses = read_status(self._output, self._names, MOST_TOLD, self._standing)
        running = [status for status in statuses if status.state == "running"]
        has_nodes = len({status.node for status in running}) > 1
        for status in running:
            self.say(_short(heartbeat(status, has_nodes=has_nodes)))
        if running:
            words = WORDS[noun_of(statuses)]
            left = plural(num_left(statuses), words.one, words.plural)
            self.say(_short(f"{left} left: {batch_line(statuses)}"))


def heartbeat(status: PatchStatus, *, has_nodes: bool = False) -> str:
    """Return how far a training is: "p3: train 1200/30000 (4%), 31.2 steps/s, loss 0.0831, 0:12:30 to go, GPU …"."""
    share = f" ({100 * status.step // status.max_steps}%)" if status.max_steps else ""
    parts = [f"{status.patch}: {status.phase} {status.step}/{status.max_steps}{share}"]
    parts += [f"ends early of {status.planned_steps} steps"] if status.planned_steps else []
    parts += [f"{status.steps_per_s:.1f} steps/s"] if status.steps_per_s else []
    parts += [f"loss {status.loss:.4f}"] if status.loss is not None else []
    parts += [f"{clock(status.eta_s)} to go"] if status.eta_s is not None else []
    gpu = [f"{status.gpu_used_mib:,} MiB"] if status.gpu_used_mib is not None else []
    gpu += [f"{status.gpu_temperature_c} °C"] if status.gpu_temperature_c is not None else []
    parts += [f"GPU {' '.join(gpu)}"] if gpu else []
    parts += [f"on {status.node}"] if has_nodes else []
    return ", ".join(parts)


class LiveListener(ConsoleListener):
    """A table of all patches that follows their files; what is worth remembering scrolls by above it."""

    def __init__(self, output: OutputFolder, names: Sequence[str], standing: FreshnessChecker | None = None) -> None:
        super().__init__(output, names, standing)
        console = Console(stderr=True)
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._next_redraw = 0.0
        self._watcher = Watcher(output)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._redraw()
        self._live.stop()

    def tell(self, event: Event) -> None:
        """Print failures and decisions above the table."""
        if isinstance(event, _REMARKABLE) or (isinstance(event, AttemptEnded) and event.outcome == "failed"):
            self.say(in_words(event))

    def say(self, line: str) -> None:
        """Print a line above the table."""
        self._live.console.print(Text(f"{time.strftime('%H:%M:%S')} {line}"))

    def tick(self) -> None:
        """Draw the table anew, once a second; a terminal that takes nothing is spared."""
        super().tick()
        if not terminal.is_stuck() and time.monotonic() >= self._next_redraw:
            self._next_redraw = time.monotonic() + REDRAW_S
            self._redraw()

    def _redraw(self) -> None:
        statuses = read_status(self._output, self._names, num_shown(len(self._names)), self._standing)
        size = self._live.console.size
        self._live.update(live_view(statuses, size.width, size.height, at_work(self._watcher)), refresh=True)


def in_words(event: Event) -> str:
    """Return an event as one line, whatever it quotes; empty for events that nobody needs to see."""
    words = _WORDS.get(type(event))
    return _short(words(event)) if words else ""


def _short(words: str) -> str:
    line = one_line(words)
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def _attempt_ended(event: AttemptEnded) -> str:
    who = f"{event.patch}: attempt {event.attempt}"
    if event.outcome == "trained":
        said = "; ".join(filter(None, (event.ended_early, event.choice)))
        figures = f"{event.num_gaussians or 0:,} Gaussians in {event.seconds or 0:.0f} s"
        return f"{who} trained {figures}{f': {said}' if said else ''}"
    if event.is_well:
        return f"{who} done in {event.seconds or 0:.0f} s"
    if event.diagnosis:
        named = next((f" ({line})" for line in event.diagnosis.evidence if line.startswith("line ")), "")
        return f"{who} failed: {title(event.diagnosis.cause)}{named}: {event.diagnosis.advice}"
    return f"{who} stopped: {event.reason or ''}"


_WORDS: Mapping[type[Event], Callable[[Any], str]] = {
    events.BatchStarted: lambda event: (
        f"{how_many(event.patches, event.noun)} to {WORDS[event.noun].verb} on {', '.join(event.slots)}"
    ),
    events.RunForecast: lambda event: event.text,
    events.Notice: events.Notice.in_words,
    events.PreflightWarning: lambda event: f"{event.check}: {event.message}",
    events.AttemptStarted: lambda event: (
        f"{event.patch}: attempt {event.attempt} started on {event.slot}{with_changes(event)}"
    ),
    events.AttemptEnded: _attempt_ended,
    events.RetryScheduled: lambda event: f"{event.patch}: again in {event.wait_s or 0:.0f} s{with_changes(event)}",
    events.GaveUp: lambda event: f"{event.patch}: {event.in_words()}",
    events.PatchRejected: lambda event: f"{event.patch}: refused: {event.reason}",
    events.Packing: lambda event: f"{plural(event.patches_per_gpu, 'patch', 'es')} per GPU from now on",
    events.MpsOff: lambda event: f"going on without CUDA MPS: {event.reason}",
    events.OrphansStopped: lambda event: f"stopping {plural(len(event.keys), 'attempt')} of an earlier run",
    events.Resumed: lambda event: f"there is room again after {event.waited_s or 0:.0f} s: going on",
    events.Restored: lambda event: f"{event.patch}: {event.in_words()}",
    events.FileNotAnswering: lambda event: (
        f"{event.patch}: waits for {event.path or 'its files'} for {event.seconds or 0:.0f} s"
    ),
    events.CancelRequested: lambda event: f"cancelled by {event.by}: {', '.join(event.patches) or 'the whole batch'}",
}
