"""`explain`: a patch's whole history from its files, the log of an attempt, or what went wrong in any log."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path

import typer

from splatbatch.cli.commands.compare import attempt_table
from splatbatch.cli.commands.output import open_console, print_json
from splatbatch.failures.causes import title
from splatbatch.failures.settings import in_words
from splatbatch.monitor.history import tell_history
from splatbatch.outcome import Action
from splatbatch.run.explain import attempt_of, diagnosed, explained, follow, log_of
from splatbatch.run.status import standing_now
from splatbatch.tasks.attempt_table import attempts_at
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.task import the_task
from splatbatch.text import plain

ACTIONS: Mapping[Action, str] = {
    "ok": "nothing to do",
    "retry": "retry with the same settings",
    "degrade": "retry with other settings",
    "fail": "a retry will not help",
}


def print_patch(config: Path | None, name: str, *, as_json: bool) -> None:
    """Print the whole history of a patch: attempts, evidence, changes, advice.

    Raises:
        ConfigError: there is no such patch.
    """
    batch = open_batch(config, [name])
    task = the_task(batch.tasks, name)
    if as_json:
        return print_json(explained(batch, task))
    if own := task.requested_settings.differences:
        typer.echo(plain(f"{task.name}: settings that differ from the batch: {in_words(own)}").replace("\n", " "))
    for line in tell_history(batch.output, standing_now(batch)[0]):
        typer.echo(plain(line).replace("\n", " "))
    if (attempts := attempts_at(batch, task)).attempts:
        console = open_console()
        console.print(attempt_table(attempts, console.width))
    return None


def print_diagnosis(config: Path | None, log: Path, exit_code: int | None, *, as_json: bool) -> None:
    """Print what went wrong in any log.

    Raises:
        ConfigError: it cannot be read.
    """
    found = diagnosed(log, exit_code, config)
    if as_json:
        return print_json(found)
    for line in (
        f"{title(found.cause)}, {ACTIONS[found.action]}: {found.advice}",
        *(f"  | {one}" for one in found.evidence),
    ):
        typer.echo(plain(line))
    return None


def print_log(config: Path | None, name: str, number: int, *, is_followed: bool) -> None:
    """Print the log of an attempt, the latest for 0; with `is_followed` also what it says until it ends.

    Raises:
        ConfigError: there is no such attempt.
        OutputError: its log cannot be read.
    """
    folder = attempt_of(open_batch(config, [name]), name, number)
    if is_followed:
        with contextlib.suppress(KeyboardInterrupt):
            for said in follow(folder):
                sys.stdout.write(said)
                sys.stdout.flush()
        return
    text = log_of(folder)
    sys.stdout.write(text)
    if not text:
        typer.echo(plain(f"{name}: the log of {folder.path.name} is empty; see `splatbatch explain {name}`"), err=True)
