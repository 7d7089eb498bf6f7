"""What `retry` says last, and `--save`: settings that were tried become those of the YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import typer

from splatbatch.commands.compare import attempt_table, rows_of
from splatbatch.commands.output import open_console
from splatbatch.commands.train.summary import Run
from splatbatch.config.yaml.edit import save_overrides
from splatbatch.errors import ConfigError
from splatbatch.outcome import Trained
from splatbatch.plain_text import plain
from splatbatch.store.records.result import Result
from splatbatch.tasks.batch import Batch

MOST_TABLES = 5


def check_savable(batch: Batch) -> None:
    """See that settings can be saved, before anything is trained for them.

    Raises:
        ConfigError: there are none, they are of a variant, or no setting of a patch.
    """
    if not batch.changes:
        raise ConfigError("retry --save: no --set, so there is nothing to save", "Add --set KEY=VALUE.")
    if variants := [task.name for task in batch.tasks if task.id.variant]:
        raise ConfigError(
            f"retry --save: {variants[0]} is a variant of a sweep", "Write its settings into `sweep` yourself."
        )


def print_retried(batch: Batch, run: Run, *, save: bool) -> None:
    """Print the attempts at each patch that was retried; write the settings of kept splats into the YAML, or say how.

    Raises:
        ConfigError: the YAML cannot be written.
    """
    tried = [task for task in batch.tasks if task.name in run.outcomes]
    for task in tried[:MOST_TABLES]:
        typer.echo(plain(f"{task.name}:"))
        open_console().print(attempt_table(rows_of(batch, task)))
    kept = _kept_with_changes(batch, run)
    if save:
        for name in kept:
            save_overrides(batch.path, name, batch.changes)
        whose = f"saved in {batch.path} for {', '.join(kept)}"
        typer.echo(plain(whose if kept else f"not saved in {batch.path}: no splat under these settings is kept"))
        return
    if not kept:
        return
    lines = json.dumps(_tree(batch.changes), default=str).replace('"', "")
    for name in kept[:MOST_TABLES]:
        typer.echo(plain(f"not in the YAML; to keep these settings, write there: patches: {{{name}: {lines}}}"))
    typer.echo("or retry with --save, which writes it; otherwise `train` leaves them out when it next trains the patch")


def _kept_with_changes(batch: Batch, run: Run) -> list[str]:
    """Return the patches that were trained under the settings of --set, and whose product is that splat."""
    trained = [name for name in batch.names if isinstance(run.outcomes.get(name), Trained)]
    changes = {name: (batch.output.patch(name).read_result() or Result()).changes for name in trained}
    return [name for name in trained if batch.changes and batch.changes.items() <= changes[name].items()]


def _tree(changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    tree: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        section, _, setting = key.partition(".")
        tree.setdefault(section, {})[setting] = value
    return tree
