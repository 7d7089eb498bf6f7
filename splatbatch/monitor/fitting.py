"""Which columns of a table a terminal takes: whole ones, the dearest first; none is cut, the cheap ones are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

GAP = 2
"""Between two columns."""


def fitting(widths: Sequence[int], worths: Sequence[int], width: int) -> list[int]:
    """Return the places of the columns that fit: those of the least worth go first, of equals the last; one stays."""
    kept = list(range(len(widths)))
    while len(kept) > 1 and sum(widths[place] for place in kept) + GAP * (len(kept) - 1) > width:
        kept.remove(min(reversed(kept), key=lambda place: worths[place]))
    return kept


def narrowed(table: Table, worths: Sequence[int], width: int) -> Table:
    """Take the columns out of a table that a terminal of this width has no room for."""
    kept = fitting([_width(column) for column in table.columns], worths, width)
    table.columns = [table.columns[place] for place in kept]
    for index, column in enumerate(table.columns):
        column._index = index
    return table


def _width(column: Any) -> int:
    longest = max((_cell_width(cell) for cell in (column.header, *column._cells)), default=0)
    return min(longest, column.max_width) if column.max_width else longest


def _cell_width(cell: Any) -> int:
    given = getattr(cell, "width", None)  # of a progress bar
    if isinstance(given, int):
        return given
    return cell_len(Text.from_markup(cell).plain if isinstance(cell, str) else str(cell))
