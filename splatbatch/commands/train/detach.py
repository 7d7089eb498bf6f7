"""`train --detach` starts a worker and leaves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from splatbatch import terminal
from splatbatch.commands.output import print_warnings
from splatbatch.errors import ConfigError
from splatbatch.files import read_tail
from splatbatch.monitor.telling import tell
from splatbatch.night import elsewhere
from splatbatch.night.detach import Begun, start_worker
from splatbatch.plain_text import plain
from splatbatch.tasks.batch import open_batch

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
        return
    match start_worker(batch, names, verify=verify):
        case Begun(log=log, name=""):
            typer.echo(plain(read_tail(log).strip()))
        case Begun(log=log, name=name):
            typer.echo(f"worker {name} is at work; log: {log}")
            typer.echo(HOW)
        case worker:
            typer.echo(f"worker {worker.worker} on {worker.host} is at work: nothing was started")
