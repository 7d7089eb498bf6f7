"""`train --detach` starts a worker and leaves; `attach` shows what goes on until nobody works any more."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from splatbatch import terminal
from splatbatch.commands.output import print_warnings
from splatbatch.commands.status import watching
from splatbatch.engines.crew import Crew
from splatbatch.errors import ConfigError, ExecutorError, OutputError
from splatbatch.files import read_tail
from splatbatch.machine import detached
from splatbatch.machine.detached import Detached
from splatbatch.monitor.telling import tell
from splatbatch.night import elsewhere
from splatbatch.plain_text import plain
from splatbatch.store.claims import at_work, lines_of
from splatbatch.store.events import BatchStarted
from splatbatch.store.layout import OutputFolder
from splatbatch.store.ledger import events_in
from splatbatch.store.lock import holder
from splatbatch.store.workers import LOCAL, Watcher
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.status import PatchStatus, read_status, summary

LOOK_S = 0.1
SETTLE_S = 10.0
"""What keeps a worker from training at all it mostly finds within that time."""
PATIENCE_S = 60.0
"""So long a worker may take until it shows that it lives."""


def detach(config: Path | None, names: Sequence[str], only: Sequence[str], *, verify: bool) -> None:
    """Start a worker that goes on without us; where one is at work already, leave it at that.

    Raises:
        ConfigError: it is to train under conditions only.
        OutputError: a `train` holds the folder.
        ExecutorError: the worker ended at once; its words say why.
    """
    if only:
        raise ConfigError(f"train --detach --only {only[0]}: a worker takes patches by name", "Name them: p0@base …")
    batch = open_batch(config, names)
    if elsewhere.is_elsewhere(batch.config.executor):
        terminal.never_block()
        print_warnings(batch.config.warnings)
        said = elsewhere.start_elsewhere(batch, verify=verify)
        how = "`splatbatch attach` shows it, `splatbatch status` says how far it is, `splatbatch cancel` ends it"
        for words in (said, how) if said else ("nothing is left to be trained",):
            tell(words)
        return None
    file, output = batch.file, batch.output
    output.create()
    if run := holder(output.lock):
        raise OutputError(
            f"{output.path}: process {run.pid} on {run.host} is training into this folder",
            "Wait for it, or end it with `splatbatch cancel`.",
        )
    if living := Watcher(output).living(but=LOCAL):
        typer.echo(f"worker {living[0].worker} on {living[0].host} is at work: nothing was started")
        return None
    output.worker(LOCAL).parent.mkdir(exist_ok=True)
    log = output.worker(f"work-{uuid.uuid4().hex[:8]}").with_suffix(".log")
    no_verify = () if verify else ("--no-verify",)
    command = detached.command_of(("work", "--config", str(file), *no_verify, *names))
    worker = detached.start(command, log)
    if not (name := _await(worker, output, log)):
        typer.echo(plain(read_tail(log).strip()))
        return None
    typer.echo(f"worker {name} is at work; log: {log}")
    typer.echo("`splatbatch attach` shows it, `splatbatch status` says how far it is, `splatbatch cancel` ends it")
    return None


def _await(worker: Detached, output: OutputFolder, log: Path) -> str:
    """Return the name of a worker that has begun, or has long been looking at the batch; empty if it found no work."""
    watcher, began = Watcher(output), time.monotonic()
    while (passed_s := time.monotonic() - began) < PATIENCE_S:
        if (code := worker.exit_code()) == 0:
            return ""
        if code is not None:
            words = read_tail(log).strip() or f"it says nothing, and ended with {code}"
            raise ExecutorError(f"the worker ended at once: {plain(words)}")
        mine = [one.worker for one in watcher.living(but=LOCAL) if one.pid == worker.pid]
        if mine and (passed_s > SETTLE_S or any(events_in(output.ledger_of(mine[0]), (BatchStarted,)))):
            return mine[0]
        time.sleep(LOOK_S)
    raise ExecutorError(f"worker process {worker.pid} has not begun after {PATIENCE_S:.0f} s", f"See {log}.")


def attach(config: Path | None) -> None:
    """Show how far the batch is until nobody works on it; exit with 0 if every patch is trained then, with 1 if not."""
    batch = open_batch(config)
    watched = _Watched(batch, Watcher(batch.output), Crew(batch.config.executor, batch.output))
    watching.watch(lambda: _statuses(batch), watched.is_over, watched.lines)
    if not watched.is_over():  # Ctrl-C: they go on without us
        typer.echo("they go on; `splatbatch cancel` ends them")
        return
    statuses = _statuses(batch)
    typer.echo(plain(summary(statuses)))
    raise typer.Exit(0 if all(one.state == "trained" for one in statuses) else 1)


@dataclass
class _Watched:
    """Who works on a batch, or waits to, as `attach` asks."""

    batch: Batch
    watcher: Watcher
    crew: Crew
    _next_look: float = 0.0

    def is_over(self) -> bool:
        """Return whether nobody works on it any more, and no engine has workers that wait."""
        if time.monotonic() >= self._next_look:
            self.crew.look()
            self._next_look = time.monotonic() + elsewhere.LOOK_S
        living = [one for one in self.watcher.living() if not self.crew.is_gone(one.job)]
        return holder(self.batch.output.lock) is None and not living and not self.crew.lives()

    def lines(self) -> list[str]:
        """Return who works on what, and what engines say."""
        return [*lines_of(at_work(self.watcher)), *self.crew.in_words()]


def _statuses(batch: Batch) -> tuple[PatchStatus, ...]:
    return read_status(batch.output, batch.names, None, batch.standing())
