"""`cancel`: the end of a batch that runs, or of some of its patches, from any shell that sees the output folder."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from splatbatch import config as configuration
from splatbatch.config import Config
from splatbatch.errors import SplatbatchError
from splatbatch.scheduler import cancel as cancelling
from splatbatch.store.events import BatchStarted
from splatbatch.store.layout import OutputFolder
from splatbatch.store.ledger import events
from splatbatch.store.lock import SILENCE_S, holder, sequence_of
from splatbatch.store.records.run import Holder
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.status import read_status, summary

LOOK_S = 0.1
PATIENCE_S = 90.0
"""Beside grace_s: a process that hangs in a driver is given up after a minute, and the report takes its time."""


def cancel(config: Path | None, wanted: Sequence[str]) -> None:
    """End what runs, and wait until it has ended.

    Raises:
        SplatbatchError: it does not end.
    """
    settings, patches = _opened(config, wanted)
    output = OutputFolder(settings.output.folder)
    run = holder(output.lock)
    if run is None:
        typer.echo(f"{output.path}: nobody trains into it, there is nothing to cancel")
        return
    request = cancelling.ask(output, run, patches)
    try:
        _wait(lambda: _has_ended(output, run, patches, request), output, run, settings.limits.grace_s + PATIENCE_S)
    finally:
        request.unlink(missing_ok=True)
    names = patches or _patches_of(output)
    chosen = [one for one in read_status(output, names) if one.patch in names]
    for one in chosen if patches else ():
        typer.echo(f"{one.patch}: {one.state}{f': {one.cause}' if one.cause else ''}")
    typer.echo(f"cancelled. {'Of the named' if patches else 'Of that run'}: {summary(chosen)}")


def _opened(config: Path | None, names: Sequence[str]) -> tuple[Config, list[str]]:
    """Return the config, and the patches that are named; a whole batch ends also if its scene is gone by now."""
    if not names:
        return configuration.load(configuration.find_config(config)), []
    batch = open_batch(config, names)
    return batch.config, batch.names


def _patches_of(output: OutputFolder) -> list[str]:
    """Return the patches of the latest run; none before it has begun."""
    latest = deque(events(output, BatchStarted), maxlen=1)
    return [name for event in latest for name in event.patches]


def _has_ended(output: OutputFolder, run: Holder, patches: Sequence[str], request: Path) -> bool:
    """Return whether the run has ended, or has obeyed and settled every patch it was asked to leave."""
    now = holder(output.lock)
    if now is None or now.identity() != run.identity():
        return True
    if not patches or request.exists():
        return False
    awaited = set(patches) & set(_patches_of(output))
    statuses = read_status(output, sorted(awaited), 0)
    return all(one.state not in ("running", "waiting") for one in statuses if one.patch in awaited)


def _wait(has_ended: Callable[[], bool], output: OutputFolder, run: Holder, limit_s: float) -> None:
    """Wait until it has ended; on another host one that does not beat any more is dead.

    Raises:
        SplatbatchError: it has not, after so long.
    """
    began = beat_at = time.monotonic()
    beat = run.sequence
    is_elsewhere = run.host != socket.gethostname()
    while not has_ended():
        now = time.monotonic()
        if (last := sequence_of(output.lock)) != beat:
            beat, beat_at = last, now
        if is_elsewhere and now - beat_at > SILENCE_S:
            typer.echo(f"process {run.pid} on {run.host} is silent: it has died, or is cut off", err=True)
            return
        if now - began > limit_s:
            raise SplatbatchError(
                f"process {run.pid} on {run.host} was asked to end and has not, after {limit_s:.0f} s",
                "It may wait for a disk or a GPU driver. `kill -9` it: the next `train` ends what it leaves.",
            )
        time.sleep(LOOK_S)
