"""`names`: which patches there are, for a shell that completes them: without a word where there is no batch."""

from __future__ import annotations

import contextlib
from pathlib import Path

import typer

from splatbatch.errors import SplatbatchError
from splatbatch.plain_text import one_line
from splatbatch.tasks.batch import open_batch


def print_names(config: Path | None) -> None:
    """Print a name per line."""
    with contextlib.suppress(SplatbatchError, OSError):
        for name in open_batch(config).names:
            typer.echo(one_line(name))
