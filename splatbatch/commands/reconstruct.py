"""`reconstruct`: photographs to a COLMAP model; started again it goes on, started twice it is done by two."""

from __future__ import annotations

import shlex
from typing import Any

import typer

from splatbatch import terminal
from splatbatch.commands.output import open_console, print_json
from splatbatch.monitor.telling import say
from splatbatch.night.night import Ended
from splatbatch.night.reconstruct import (
    Reconstruction,
    ReconstructOptions,
    open_reconstruction,
    reconstruct,
    result_of,
)
from splatbatch.plain_text import one_line
from splatbatch.reconstruction.plan import Plan
from splatbatch.scene.audit.table import render
from splatbatch.tasks.forecast import forecast


def run(options: ReconstructOptions, *, dry_run: bool, as_json: bool) -> None:
    """Make a model; exit with 0 if it is there, with 3 if its audit finds errors, with 1 if a stage has failed."""
    terminal.never_block()
    if dry_run:
        batch, plan = open_reconstruction(options)
        for line in (*plan.in_words(), forecast(batch, batch.names, {}).in_words()):
            typer.echo(one_line(line))
        return

    def told(plan: Plan) -> None:
        for line in plan.in_words():
            say(line)

    code = reconstruct(options, lambda made: _show(made, options, as_json=as_json), told)
    result = result_of(options) if code == 0 else None
    if result:
        _tell(options, result, as_json=as_json)
    raise typer.Exit(code or (result.audited.exit_code() if result else 0))


def _show(made: Any, options: ReconstructOptions, *, as_json: bool) -> None:
    if isinstance(made, Ended) and made.code:
        for one in made.statuses:
            if one.state in ("failed", "stopped"):
                typer.echo(one_line(f"{one.patch}: {one.in_words()}"), err=True)
        typer.echo(one_line(f"report: {made.batch.output.report('html')}"), err=True)


def _tell(options: ReconstructOptions, result: Reconstruction, *, as_json: bool) -> None:
    if as_json:
        print_json(result.told)
        return
    for line in result.told.in_words():
        typer.echo(one_line(line))
    console = open_console()
    for part in render(result.audited):
        console.print(part)
    out = shlex.quote(str(options.out))
    typer.echo(one_line(f"report: {result.report}"))
    typer.echo(one_line(f"Next: splatbatch scene --source {out}/sparse/0 --images {out}/images"))
