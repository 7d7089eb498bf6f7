"""The command line: one module for each group of commands, with their options, calls and output.

What a command does is implemented in `splatbatch.run`.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, NoReturn

import typer

from splatbatch import terminal
from splatbatch.cli import checks, products, quality, start, status, train
from splatbatch.cli.app import app, command_first
from splatbatch.errors import Interrupted, OutputError, SceneError, SplatbatchError
from splatbatch.processes import redirect_to_null
from splatbatch.text import plain_text

__all__ = ["app", "checks", "main", "products", "quality", "start", "status", "train"]


ONLY_READ = frozenset({"status", "verify-dims", "plan", "report", "explain"})
"""Commands that `main` runs in a watched child process, since input files may lie on a mount that hangs.

They write no file that a second process could damage."""


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; an error ends the process with a message, a hint and its exit code.

    Args:
        arguments: the words after the program's name; None: those of this process. With None, on Linux, a command of
            `ONLY_READ` runs in a watched child: if a file does not answer, the command ends with an error.

    Raises:
        SystemExit: the command has ended; its code is the exit code.
        OSError: the child cannot be started, or /dev/null cannot be opened.
    """
    terminal.open_closed_descriptors()
    command = next((word for word in command_first(sys.argv[1:]) if not word.startswith("-")), "")
    if arguments is not None or command not in ONLY_READ or sys.platform != "linux":
        return _run(arguments)
    from splatbatch.isolated import Hung, run_watched

    found = run_watched(_exit_code, lambda words: typer.echo(plain_text(f"splatbatch: {words}"), err=True))
    if isinstance(found, Hung):
        message = f"{found.path or 'a file of the scene'}: has not answered for {found.seconds:.0f} s"
        _end(SceneError(message, "Check that the disk or network mount of this file is still available."))
    sys.exit(found)


def _exit_code() -> int:
    """Run the command line in a child process; return the exit code."""
    try:
        _run(None)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    else:
        code = 0
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    return code


def _run(arguments: list[str] | None) -> Any:
    try:
        return app(arguments)
    except Interrupted as told:
        _end(told)
    except SystemExit as end:
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):  # typer's way to end with 130
            _end(Interrupted(130))
        raise
    except SplatbatchError as error:
        _end(error)
    except OSError as error:
        if isinstance(error, BrokenPipeError) or terminal.is_of_dead_terminal(error):
            with contextlib.suppress(OSError):
                redirect_to_null(1, 2)  # the reader of our output has gone (`| head`): not an error
            sys.exit(0)
        from splatbatch.files import is_out_of_space

        unnamed = "a file of the output folder or scene, or the output of this command"
        named = error.filename2 or error.filename  # of a file that is renamed, the place that it goes to
        where = named if isinstance(named, str) else unnamed
        remedy = "Free disk space" if is_out_of_space(error) else "Check its permissions, disk and network share"
        message = f"{where}: {error.strerror or error}"
        _end(OutputError(message, f"{remedy}, then run the command again; finished work is kept."))


def _end(error: SplatbatchError | Interrupted) -> NoReturn:
    terminal.never_block()
    hint = f"\n  hint: {error.hint}" if isinstance(error, SplatbatchError) and error.hint else ""
    typer.echo(plain_text(f"splatbatch: {error.message}{hint}"), err=True)
    sys.exit(error.exit_code)
