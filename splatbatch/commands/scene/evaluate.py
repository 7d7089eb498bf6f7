"""`evaluate`: how good the merged scene is, on photographs that nobody was trained on and where patches meet."""

from __future__ import annotations

from pathlib import Path

import typer

from splatbatch import terminal
from splatbatch.commands.output import open_console, print_json, print_warnings
from splatbatch.commands.scene.table import tables
from splatbatch.night import api
from splatbatch.plain_text import one_line
from splatbatch.store.records.evaluation import SceneEvaluation
from splatbatch.tasks.batch import open_batch

NOT_WHOLE = 1


def evaluate(config: Path | None, splat: Path | None, *, as_json: bool) -> None:
    """Measure a splat of the whole scene; exit with 1 if some patch is missing beside it."""
    terminal.never_block()
    batch = open_batch(config)
    print_warnings(batch.config.warnings)
    found = api.evaluate(batch, splat)
    if as_json:
        print_json(found.to_record())
    else:
        show(found)
    raise typer.Exit(NOT_WHOLE if found.lacking else 0)


def show(found: SceneEvaluation) -> None:
    """Print what was found as tables."""
    console = open_console()
    for part in tables(found):
        console.print(part)
    for name, why in found.lacking.items():
        typer.echo(one_line(f"{name}: {why}: its seams were not measured"), err=True)
    for note in found.notes:
        typer.echo(one_line(note), err=True)
