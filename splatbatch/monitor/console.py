"""Progress of a batch on stderr: a live table on a terminal, timestamped lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from splatbatch.failures.causes import title
from splatbatch.monitor.history import with_changes
from splatbatch.monitor.table import batch_line, live_view, num_left, num_shown
from splatbatch.output import events
from splatbatch.output.claims import at_work
from splatbatch.output.events import AttemptEnded, Event
from splatbatch.output.layout import OutputFolder
from splatbatch.output.workers import Watcher
from splatbatch.tasks.counts import WORDS, how_many, words_for
from splatbatch.tasks.freshness import FreshnessChecker
from splatbatch.tasks.status import PatchStatus, noun_of, read_status
from splatbatch.terminal import stderr_writer
from splatbatch.text import clock, one_line, plural

HEARTBEAT_S = 60.0
"""Seconds between two reports of progress where stderr is no terminal."""
REDRAW_S = 1.0
"""Seconds between two updates of the live table."""
LONGEST_LINE = 600
"""Most characters of a line; a longer line is cut."""
_REMARKABLE = (
    events.Notice,
    events.RetryScheduled,
    events.GaveUp,
    events.Restored,
    events.PatchRejected,
    events.Resumed,
)


class ConsoleListener:
    """Shows people the progress of a batch on stderr while its `with` block runs.

    On a terminal a table follows the files of all patches, and important events scroll by above it. Elsewhere (cron,
    nohup, CI) events are lines, and progress is printed once a minute.
    """

    def __init__(self, output: OutputFolder, names: Sequence[str], standing: FreshnessChecker | None = None) -> None:
        """Prepare without showing anything.

        Args:
            output: the output folder.
            names: names of the patches of the batch.
            standing: freshness checker of the batch; None: any existing splat counts as up to date.
        """
        self._output, self._names, self._standing = output, names, standing
        self._watcher = Watcher(output)
        console = Console(stderr=True)
        live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        # a pipe gets lines even if FORCE_COLOR claims that it is a terminal
        self._live = live if sys.stderr.isatty() else None
        self._due = 0.0 if self._live else time.monotonic() + HEARTBEAT_S

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._show()
            self._live.stop()
            if writer := stderr_writer():
                writer.part()  # later output on stdout starts below the table

    def tell(self, event: Event) -> None:
        """Show an event of the ledger as a line; above a table only failures, notices and decisions."""
        is_failure = isinstance(event, AttemptEnded) and event.outcome == "failed"
        if (line := in_words(event)) and (self._live is None or is_failure or isinstance(event, _REMARKABLE)):
            self.say(line)

    def say(self, line: str) -> None:
        """Show a line with the local time in front of it; without a table also the date."""
        if self._live:
            self._live.console.print(Text(f"{time.strftime('%H:%M:%S')} {line}"))
        else:
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", file=sys.stderr, flush=True)  # noqa: T201

    def tick(self) -> None:
        """Show the progress if it is due, and how many lines were lost; called many times a second.

        A terminal that accepts no output is not written to.

        Raises:
            LaterFormatError: a later version of splatbatch wrote the output folder.
        """
        writer = stderr_writer()
        if writer and (lost := writer.take_lost()):
            self.say(f"{plural(lost, 'line')} not shown: the terminal did not accept them")
        if time.monotonic() >= self._due and not (self._live and writer and writer.is_stuck()):
            self._due = time.monotonic() + (REDRAW_S if self._live else HEARTBEAT_S)
            self._show()

    def _show(self) -> None:
        statuses = read_status(self._output, self._names, num_shown(len(self._names)), self._standing)
        if live := self._live:
            return live.update(live_view(statuses, *live.console.size, at_work(self._watcher)), refresh=True)
        for line in heartbeats(statuses):
            self.say(_short(line))


def heartbeats(statuses: Sequence[PatchStatus]) -> Iterator[str]:
    """Yield a line of progress for each running training, then a line for the batch; nothing if no training runs."""
    running = [status for status in statuses if status.state == "running"]
    has_nodes = len({status.node for status in running}) > 1
    yield from (heartbeat(status, has_nodes=has_nodes) for status in running)
    if running:
        words = words_for((status.patch for status in statuses), noun_of(statuses))
        yield f"{plural(num_left(statuses), words.one, words.plural)} left: {batch_line(statuses)}"


def heartbeat(status: PatchStatus, *, has_nodes: bool = False) -> str:
    """Return the progress of a training: "p3: train 1200/30000 (4%), 31.2 steps/s, loss 0.0831, 0:12:30 to go, GPU …".

    Unknown figures are left out, except the steps, which are then 0.

    Args:
        status: status of the patch.
        has_nodes: whether the name of its host is added.
    """
    share = f" ({100 * status.step // status.max_steps}%)" if status.max_steps else ""
    gpu = f"{status.gpu_used_mib:,} MiB" if status.gpu_used_mib is not None else ""
    gpu += f" {status.gpu_temperature_c} °C" if status.gpu_temperature_c is not None else ""
    parts = (
        f"{status.patch}: {status.phase} {status.step}/{status.max_steps}{share}",
        f"ends early ({status.planned_steps} steps were planned)" if status.planned_steps else "",
        f"{status.steps_per_s:.1f} steps/s" if status.steps_per_s else "",
        f"loss {status.loss:.4f}" if status.loss is not None else "",
        f"{clock(status.eta_s)} to go" if status.eta_s is not None else "",
        f"GPU {gpu.strip()}" if gpu else "",
        f"on {status.node}" if has_nodes else "",
    )
    return ", ".join(filter(None, parts))


def in_words(event: Event) -> str:
    """Return an event as one line of at most `LONGEST_LINE` characters; empty for events that are not shown."""
    words = _WORDS.get(type(event))
    return _short(words(event)) if words else ""


def _short(words: str) -> str:
    line = one_line(words)
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def _attempt_ended(event: AttemptEnded) -> str:
    who = f"{event.patch}: attempt {event.attempt}"
    if event.outcome == "trained":
        said = "; ".join(filter(None, (event.ended_early, event.choice)))
        took = f"{event.seconds or 0:.0f} s{f': {said}' if said else ''}"
        return f"{who} trained {event.num_gaussians or 0:,} Gaussians in {took}"
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
    events.Notice: events.Notice.in_words,
    events.AttemptStarted: lambda event: (
        f"{event.patch}: attempt {event.attempt} started on {event.slot}{with_changes(event)}"
    ),
    events.AttemptEnded: _attempt_ended,
    events.RetryScheduled: lambda event: f"{event.patch}: retry in {event.wait_s or 0:.0f} s{with_changes(event)}",
    events.GaveUp: lambda event: f"{event.patch}: {event.in_words()}",
    events.PatchRejected: lambda event: f"{event.patch}: refused by the audit: {event.reason}",
    events.Packing: lambda event: f"{plural(event.patches_per_gpu, 'patch', 'es')} per GPU from now on",
    events.OrphansStopped: lambda event: f"stopping {plural(len(event.keys), 'attempt')} of an earlier run",
    events.Resumed: lambda event: f"there is free space again after {event.waited_s or 0:.0f} s: the batch goes on",
    events.Restored: lambda event: f"{event.patch}: {event.in_words()}",
    events.FileNotAnswering: lambda event: (
        f"{event.patch}: {event.path or 'its files'} cannot be read, waiting for {event.seconds or 0:.0f} s"
    ),
    events.CancelRequested: lambda event: f"cancelled by {event.by}: {', '.join(event.patches) or 'the whole batch'}",
}
