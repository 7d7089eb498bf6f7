"""`explain`: a patch's whole history from its files, the log of an attempt, or what went wrong in any log."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import typer

from splatbatch.cli.commands.compare import attempt_table
from splatbatch.cli.commands.output import open_console, print_json
from splatbatch.failures.causes import title
from splatbatch.failures.settings import in_words
from splatbatch.monitor.history import tell_history
from splatbatch.outcome import Action, Diagnosis
from splatbatch.run.compare import attempts_at
from splatbatch.run.explain import attempt_of, diagnosed, explained, follow, log_of
from splatbatch.run.status import standing_now
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.task import the_task
from splatbatch.text import plain

ACTIONS: Mapping[Action, str] = {
    "ok": "nothing to do",
    "retry": "retry with the same settings",
    "degrade": "retry with other settings",
    "fail": "a retry will not help",
}


@dataclass(frozen=True)
class ExplainRequest:
    """What is to be explained."""

    name: str
    """A patch, or the file of a log."""
    exit_code: int | None = None
    """With which the program ended that wrote the log."""
    as_json: bool = False

    @property
    def is_log(self) -> bool:
        """Return whether it is a log: a path, or any file that lies here."""
        path = Path(self.name)
        return self.exit_code is not None or ((os.sep in self.name or path.exists()) and not path.is_dir())


def explain(config: Path | None, asked: ExplainRequest) -> None:
    """Print the whole history of a patch: attempts, evidence, changes, advice; or explain a log.

    Raises:
        ConfigError: there is no such patch; or the log cannot be read.
    """
    if asked.is_log:
        found = diagnosed(Path(asked.name), asked.exit_code, config)
        return print_json(found) if asked.as_json else _print_diagnosis(found)
    batch = open_batch(config, [asked.name])
    task = the_task(batch.tasks, asked.name)
    if asked.as_json:
        return print_json(explained(batch, task))
    if own := task.requested_settings.differences:
        typer.echo(plain(f"{task.name}: settings that differ from the batch: {in_words(own)}").replace("\n", " "))
    for line in tell_history(batch.output, standing_now(batch)[0]):
        typer.echo(plain(line).replace("\n", " "))
    if (attempts := attempts_at(batch, task)).attempts:
        console = open_console()
        console.print(attempt_table(attempts, console.width))
    return None


def _print_diagnosis(found: Diagnosis) -> None:
    typer.echo(plain(f"{title(found.cause)}, {ACTIONS[found.action]}: {found.advice}"))
    for line in found.evidence:
        typer.echo(plain(f"  | {line}"))


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
