"""`inspect --check`: whether certificates speak of the splats, settings and files that there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from splatbatch.commands.output import print_json
from splatbatch.plain_text import one_line
from splatbatch.tasks.quality.certificate import Checked, problems_of_batch, problems_of_file

NOT_ALL = 1


def verify(config: Path | None, names: Sequence[str], file: Path | None, *, as_json: bool) -> None:
    """Check certificates of a batch, or a single file beside its splat; exit with 1 if one does not hold.

    Raises:
        OutputError: the named file is none.
    """
    found = {str(file): problems_of_file(file)} if file else problems_of_batch(config, names)
    if as_json:
        print_json({name: Checked(tuple(why)) for name, why in found.items()})
    else:
        for name, why in found.items():
            typer.echo(one_line(f"{name}: {'; '.join(why) or 'holds'}"))
    raise typer.Exit(NOT_ALL if any(found.values()) else 0)
