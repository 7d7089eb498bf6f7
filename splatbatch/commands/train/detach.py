"""`train --detach` starts a worker and leaves."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import typer

from splatbatch import terminal
from splatbatch.commands.output import print_warnings
from splatbatch.errors import ConfigError, ExecutorError, OutputError
from splatbatch.files import read_tail
from splatbatch.machine import detached
from splatbatch.machine.detached import Detached
from splatbatch.monitor.telling import tell
from splatbatch.night import elsewhere
from splatbatch.plain_text import plain
from splatbatch.store.events import BatchStarted
from splatbatch.store.layout import OutputFolder
from splatbatch.store.ledger import events_in
from splatbatch.store.lock import holder
from splatbatch.store.workers import LOCAL, Watcher
from splatbatch.tasks.batch import open_batch

LOOK_S = 0.1
SETTLE_S = 10.0
"""What keeps a worker from training at all it mostly finds within that time."""
PATIENCE_S = 60.0
"""So long a worker may take until it shows that it lives."""
HOW = "`splatbatch status --watch` shows it, `splatbatch cancel` ends it"


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
        for words in (said, HOW) if said else ("nothing is left to be trained",):
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
    typer.echo(HOW)
    return None


def _await(worker: Detached, output: OutputFolder, log: Path) -> str:
    """Return the name of a worker that has begun, or has long been looking at the batch; empty if it found no work."""
    watcher, began = Watcher(output), time.monotonic()
    while (passed_s := time.monotonic() - began) < PATIENCE_S:
        if (code := worker.poll()) == 0:
            return ""
        if code is not None:
            words = read_tail(log).strip() or f"it says nothing, and ended with {code}"
            raise ExecutorError(f"the worker ended at once: {plain(words)}")
        mine = [one.worker for one in watcher.living(but=LOCAL) if one.pid == worker.pid]
        if mine and (passed_s > SETTLE_S or any(events_in(output.ledger_of(mine[0]), (BatchStarted,)))):
            return mine[0]
        time.sleep(LOOK_S)
    raise ExecutorError(f"worker process {worker.pid} has not begun after {PATIENCE_S:.0f} s", f"See {log}.")
