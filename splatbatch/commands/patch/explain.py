"""`explain`: a patch's whole history, from its files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import typer

from splatbatch.commands.compare import attempt_table, rows_of
from splatbatch.commands.output import open_console, print_json
from splatbatch.failures.causes import spelled
from splatbatch.failures.settings import in_words
from splatbatch.monitor.history import tell_history
from splatbatch.plain_text import plain
from splatbatch.report.attempts import OfAttempt, attempts_of
from splatbatch.store.ledger import events
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.status import read_status
from splatbatch.tasks.task import Task, the_task

OF_ATTEMPTS: tuple[type[OfAttempt], ...] = get_args(OfAttempt)


def explain(config: Path | None, name: str, *, as_json: bool) -> None:
    """Print the whole history of a patch: attempts, evidence, changes, advice."""
    batch = open_batch(config, [name])
    task = the_task(batch.tasks, name)
    if as_json:
        print_json(_explained(batch, task))
        return
    if own := task.asked.differences:
        typer.echo(plain(f"{task.name}: set otherwise: {in_words(own)}").replace("\n", " "))
    for line in tell_history(batch.output, task.name, batch.standing()):
        typer.echo(plain(line).replace("\n", " "))
    if rows := rows_of(batch, task):
        console = open_console()
        console.print(attempt_table(rows, console.width))


def _explained(batch: Batch, task: Task) -> dict[str, Any]:
    """Return the history for programs."""
    statuses = read_status(batch.output, [task.name], standing=batch.standing())
    status = next(one for one in statuses if one.patch == task.name)
    history = [event for event in events(batch.output, *OF_ATTEMPTS) if event.patch == task.name]
    return {
        "patch": task.name,
        "status": asdict(status),
        "cause_in_words": spelled(status.cause),
        "set_otherwise": [{"key": one.key, "value": one.value, "usual": one.usual} for one in task.asked.differences],
        "attempts": attempts_of(batch.output.patch(task.name), history),
    }
