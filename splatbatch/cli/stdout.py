"""Output of commands on stdout: JSON for programs, tables for people, no escape codes into a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from splatbatch.text import one_line, plain_text

if TYPE_CHECKING:
    from rich.console import Console

Facts = TypeVar("Facts")
PIPE_WIDTH = 200


def open_console() -> Console:
    """Return a console on stdout; a pipe gets no escape codes, even with FORCE_COLOR, and lines of 200 characters."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, force_terminal=is_terminal, width=None if is_terminal else PIPE_WIDTH)


def print_line(words: str, *, err: bool = False) -> None:
    """Print a text as one line, without control characters: names in it may contain escape codes. `err`: on stderr."""
    typer.echo(one_line(words), err=err)


def print_text(words: str) -> None:
    """Print lines of text without control characters; indentation stays."""
    typer.echo(plain_text(words))


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings on stderr, one line each."""
    for warning in warnings:
        print_line(f"warning: {warning}", err=True)


def print_table(
    headings: Sequence[str], texts: Collection[str], rows: Iterable[Iterable[str]], worths: Sequence[int] = ()
) -> None:
    """Print a table without rules; columns with text are aligned left, all others right.

    Args:
        headings: headings of the columns.
        texts: headings of the columns with text.
        rows: cells of each row, printed without control characters.
        worths: worth of each column; on a narrow terminal columns of least worth are left out. Empty: all are printed.
    """
    from rich.table import Table
    from rich.text import Text

    from splatbatch.monitor.table import drop_columns

    table, console = Table(box=None, pad_edge=False), open_console()
    for heading in headings:
        table.add_column(heading, justify="left" if heading in texts else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    console.print(drop_columns(table, worths, console.width) if worths else table)


def print_json(facts: Any) -> None:
    """Print a dataclass, or a mapping of dataclasses, as JSON on stdout."""
    from splatbatch.output.records.record import in_json

    sys.stdout.write(json.dumps(in_json(facts), indent=1, default=str) + "\n")


def print_facts(facts: Facts, show: Callable[[Facts], None], *, as_json: bool) -> None:
    """Print facts as JSON, or have `show` print them for people."""
    if as_json:
        print_json(facts)
    else:
        show(facts)
