"""`reconstruct`: photographs to a COLMAP model; started again it goes on, started twice it is done by two."""

from __future__ import annotations

import shlex
from typing import Any

import typer

from splatbatch import terminal
from splatbatch.cli.commands.output import open_console, print_json, print_line
from splatbatch.outcome import NOT_MADE
from splatbatch.run.context import RunSummary
from splatbatch.run.reconstruct import (
    ReconstructedModel,
    ReconstructOptions,
    open_reconstruction,
    reconstruct,
    result_of,
)
from splatbatch.scene.audit.table import render
from splatbatch.tasks.estimates import forecast


def run(options: ReconstructOptions, *, dry_run: bool, as_json: bool) -> None:
    """Make a model; exit with 0 if it is there, with 3 if its audit finds errors, with 1 if a stage has failed."""
    terminal.never_block()
    if dry_run:
        batch, plan = open_reconstruction(options)
        for line in (*plan.in_words(), forecast(batch, batch.names, {}).in_words()):
            print_line(line)
        return

    code = reconstruct(options, tell_failed)
    result = result_of(options) if code == 0 else None
    if result and as_json:
        print_json(result.told)
    elif result:
        tell(result)
        out = shlex.quote(str(options.out))
        print_line(f"Next: splatbatch scene --source {out}/sparse/0 --images {out}/images")
    raise typer.Exit(code or (result.audited.exit_code() if result else 0))


def tell_failed(ended: Any) -> None:
    """Print which stages have failed, and why."""
    if isinstance(ended, RunSummary) and ended.code:
        for one in ended.statuses:
            if one.state in ("failed", "stopped") and one.cause != NOT_MADE:
                print_line(f"{one.patch}: {one.in_words()}", err=True)
        print_line(f"report: {ended.batch.output.report('html')}", err=True)


def tell(result: ReconstructedModel) -> None:
    """Print what came of photographs, and what the audit says of it."""
    for line in result.told.in_words():
        print_line(line)
    console = open_console()
    for part in render(result.audited):
        console.print(part)
    print_line(f"report: {result.report}")
