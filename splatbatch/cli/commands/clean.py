"""`clean`: what superseded attempts keep on disk, and nobody needs any more."""

from __future__ import annotations

from pathlib import Path

import typer

from splatbatch.cli.commands.output import print_json, print_line
from splatbatch.files import MIB
from splatbatch.run.clean import clean as clean_batch
from splatbatch.tasks.batch import open_batch
from splatbatch.text import plain, plural


def clean(config: Path | None, *, dry_run: bool, as_json: bool) -> None:
    """Remove what the retention rule does not keep; with `dry_run`, only say what that would be.

    Raises:
        OutputError: a run, or a worker, holds the output folder.
    """
    found = clean_batch(open_batch(config), dry_run=dry_run)
    if as_json:
        print_json(found)
        return
    for one in found.files:
        typer.echo(plain(f"{one.path}: {one.what}, {one.bytes / MIB:.1f} MiB"))
    said = f"{'would be ' if dry_run else ''}removed, {found.bytes / MIB:.1f} MiB"
    print_line(f"{plural(len(found.files), 'item')} {said}" if found.files else "nothing to remove")
