"""`evaluate`: how good the merged scene is, on photographs that nobody was trained on and where patches meet."""

from __future__ import annotations

from pathlib import Path

import typer

from splatbatch import terminal
from splatbatch.commands.output import open_console, print_json, print_warnings, tell
from splatbatch.commands.scene.table import tables
from splatbatch.errors import SplatbatchError
from splatbatch.night.interruption import Interruption
from splatbatch.plain_text import one_line
from splatbatch.report import write_report
from splatbatch.scheduler.scene.attempt import Hooks
from splatbatch.scheduler.scene.evaluating import evaluate as measure
from splatbatch.scheduler.work.holding import held_alone
from splatbatch.store.records.evaluation import EvaluationSettings, SceneEvaluation
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.scene.evaluation import order

NOT_WHOLE = 1


def evaluate(config: Path | None, splat: Path | None, *, as_json: bool) -> None:
    """Measure a splat of the whole scene; exit with 1 if some patch is missing beside it."""
    terminal.never_block()
    batch = open_batch(config)
    print_warnings(batch.config.warnings)
    found = evaluated(batch, order(batch, splat or batch.output.scene.splat), Interruption())
    renew_report(batch)
    if as_json:
        print_json(found.to_record())
    else:
        show(found)
    raise typer.Exit(NOT_WHOLE if found.lacking else 0)


def evaluated(batch: Batch, settings: EvaluationSettings, interruption: Interruption) -> SceneEvaluation:
    """Measure a splat of the scene, and write down how good it is; who is interrupted exits as a shell would.

    Raises:
        SplatbatchError: it cannot be measured.
    """
    batch.output.create()
    try:
        with held_alone(batch.output, batch.terms, tell) as beat:
            return measure(batch.config, settings, batch.output.scene, Hooks(interruption.reason, beat))
    except SplatbatchError as error:
        if not interruption.signal:
            raise
        typer.echo(one_line(error.message), err=True)
        raise typer.Exit(interruption.exit_code) from error


def renew_report(batch: Batch) -> None:
    """Write the report again: it shows what is known of the scene."""
    settings, standing = batch.config, batch.standing()
    variants, previews_mib = settings.variants.values(), settings.output.previews_mib
    write_report(batch.output, batch.names, variants, previews_mib, standing=standing)


def show(found: SceneEvaluation) -> None:
    """Print what was found as tables."""
    console = open_console()
    for part in tables(found):
        console.print(part)
    for name, why in found.lacking.items():
        typer.echo(one_line(f"{name}: {why}: its seams were not measured"), err=True)
    for note in found.notes:
        typer.echo(one_line(note), err=True)
