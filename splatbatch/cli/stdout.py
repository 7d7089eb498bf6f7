"""How commands print: JSON for programs, tables for people, no escape codes into a pipe."""

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
    """Return a console on stdout; a pipe gets no escape codes, whatever FORCE_COLOR claims, and no cut columns."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, force_terminal=is_terminal, width=None if is_terminal else PIPE_WIDTH)


def print_line(words: str, *, err: bool = False) -> None:
    """Print words as text alone, on one line: a name in them may hold what a terminal obeys."""
    typer.echo(one_line(words), err=err)


def print_text(words: str) -> None:
    """Print lines as text alone; what is indented stays so."""
    typer.echo(plain_text(words))


def print_warnings(warnings: Iterable[str]) -> None:
    """Print on stderr what stops nothing and should be changed."""
    for warning in warnings:
        print_line(f"warning: {warning}", err=True)


def print_table(
    headings: Sequence[str], texts: Collection[str], rows: Iterable[Iterable[str]], worths: Sequence[int] = ()
) -> None:
    """Print a table without lines; columns under a heading of `texts` stand left, figures right.

    Args:
        headings: of the columns.
        texts: the headings of columns with text.
        rows: cells, each printed as text alone.
        worths: of the columns; the terminal has no room for those of the least worth. Empty: all are printed.
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
    """Print facts, a dataclass or an object of them, as JSON on stdout."""
    from splatbatch.output.records.record import in_json

    sys.stdout.write(json.dumps(in_json(facts), indent=1, default=str) + "\n")


def print_facts(facts: Facts, show: Callable[[Facts], None], *, as_json: bool) -> None:
    """Print facts as JSON, or as `show` tells people of them."""
    if as_json:
        print_json(facts)
    else:
        show(facts)
