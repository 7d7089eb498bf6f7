"""The commands: one thin function per verb. What they mean is decided below."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import typer

from splatbatch import terminal
from splatbatch.cli import batch, quality, results, scene, shell
from splatbatch.cli.app import app
from splatbatch.errors import OutputError, SplatbatchError
from splatbatch.plain_text import plain

__all__ = ["app", "batch", "main", "quality", "results", "scene", "shell"]


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; whatever stops a command ends in a message, a hint and its exit code."""
    terminal.open_closed_descriptors()
    try:
        return app(arguments)
    except SplatbatchError as error:
        _end(error)
    except OSError as error:
        if isinstance(error, BrokenPipeError) or terminal.is_of_dead_terminal(error):
            terminal.hush()  # whoever read our output has gone (`| head`): not an error of ours
            sys.exit(0)
        from splatbatch.files import is_out_of_space

        where = error.filename if isinstance(error.filename, str) else "a file of the output folder, or of the scene"
        remedy = "Free space" if is_out_of_space(error) else "See to its permissions, its disk and its share"
        message = f"{where}: {error.strerror or error}"
        _end(OutputError(message, f"{remedy}, then run again: it goes on where it ended."))


def _end(error: SplatbatchError) -> NoReturn:
    terminal.never_block()
    hint = f"\n  hint: {error.hint}" if error.hint else ""
    typer.echo(plain(f"splatbatch: {error.message}{hint}"), err=True)
    sys.exit(error.exit_code)
