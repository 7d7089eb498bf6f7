"""How commands print: JSON for programs, tables for people, no escape codes into a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Container, Iterable, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from splatbatch.output.records.record import in_json
from splatbatch.text import one_line

PIPE_WIDTH = 200


def open_console() -> Console:
    """Return a console on stdout; a pipe gets no escape codes, whatever FORCE_COLOR claims, and no cut columns."""
    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, force_terminal=is_terminal, width=None if is_terminal else PIPE_WIDTH)


def open_table(headings: Sequence[str], texts: Container[str]) -> Table:
    """Return a table without lines; columns under a heading of `texts` stand left, figures right."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in texts else "right", overflow="fold")
    return table


def print_line(words: str, *, err: bool = False) -> None:
    """Print a line as text alone: a name in it may hold what a terminal obeys."""
    typer.echo(one_line(words), err=err)


def print_warnings(warnings: Iterable[str]) -> None:
    """Say on stderr what stops nothing and should be changed."""
    for warning in warnings:
        print_line(f"warning: {warning}", err=True)


def print_json(facts: Any) -> None:
    """Print facts, a dataclass or an object of them, as JSON on stdout."""
    sys.stdout.write(json.dumps(in_json(facts), indent=1, default=str) + "\n")
