"""`clean`: what superseded attempts keep on disk, and nobody needs any more."""

from __future__ import annotations

from pathlib import Path

import typer

from splatbatch.commands.output import print_json
from splatbatch.files import MIB
from splatbatch.night.clean import clean as clean_batch
from splatbatch.plain_text import counted, plain
from splatbatch.tasks.batch import open_batch


def clean(config: Path | None, *, dry_run: bool, as_json: bool) -> None:
    """Remove what the retention rule does not keep; with `dry_run`, only say what that would be.

    Raises:
        OutputError: a run, or a worker, holds the output folder.
    """
    found = clean_batch(open_batch(config), dry_run=dry_run)
    num_bytes = sum(one.num_bytes for one in found)
    if as_json:
        files = [{"path": str(one.path), "what": one.what, "bytes": one.num_bytes} for one in found]
        print_json({"removed": not dry_run, "bytes": num_bytes, "files": files})
        return
    for one in found:
        typer.echo(plain(f"{one.path}: {one.what}, {one.num_bytes / MIB:.1f} MiB"))
    said = "would be removed" if dry_run else "removed"
    typer.echo(f"{counted(len(found), 'item')} {said}, {num_bytes / MIB:.1f} MiB" if found else "nothing to remove")
