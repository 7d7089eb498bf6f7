"""The patches of a batch as a table for a terminal, with as many columns as its width allows."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from splatbatch.failures.causes import in_words
from splatbatch.groups import grouped
from splatbatch.output.claims import AtWork, in_short, lines_of
from splatbatch.scene.patches import list_names
from splatbatch.tasks.status import PatchStatus, done_in_words, most_interesting
from splatbatch.text import clock, one_line

LEFT = ("running", "waiting", "stale", "stopped")
"""States of patches that `train` is training or will train."""
WIDE = 120
"""Width of a terminal, in characters, from which all columns are shown."""
BAR_WIDTH = 10
"""Width of the progress bar, in characters."""
MOST_ROWS, ROWS_OF_MORE = 200, 50
"""Up to `MOST_ROWS` patches are all shown; of more only `ROWS_OF_MORE`. Drawing a row takes over a millisecond."""
LONGEST = {"patch": 16, "state": 12}
"""Widths of columns on a narrow terminal, in characters, so that long names leave room for others.

The column of the state may use the rest of the width.
"""
COLOURS = {
    "trained": "green", "done": "green", "running": "cyan", "failed": "red", "refused": "red",
    "stopped": "yellow", "stale": "yellow",
}  # fmt: skip
FOLDED, MOST_ALIKE = ("refused", "stale", "waiting"), 5
"""States in which more than `MOST_ALIKE` equal patches become a single line below the table."""
FIRST = ("failed", "refused", "running")
"""States at the top of the table, in this order."""
LEAST_ROWS = 4
"""Rows that are shown however low the terminal is."""
GAP = 2
"""Characters between two columns."""


@dataclass(frozen=True)
class Column:
    """A column of the table: its heading, and how its cells are made."""

    heading: str
    cell: Callable[[PatchStatus], RenderableType]
    narrow: bool = False
    """Whether the column is also shown on terminals narrower than `WIDE`."""
    is_text: bool = False
    """Whether the column is aligned to the left, and shown even if it is empty."""
    worth: int = 0
    """Importance: if the width is too small, columns with the lowest value are dropped first; 0 is the lowest."""


def status_view(statuses: Sequence[PatchStatus], width: int, room: int = 1 << 30) -> Group:
    """Return the patches as a table for a terminal, with lines below it.

    Patches beyond `room` rows, and many equal ones, are summed up in these lines.

    Args:
        statuses: statuses of all patches.
        width: width of the terminal, in characters.
        room: most rows; at least `LEAST_ROWS` are shown.
    """
    folded = grouped((_alike(one), one.patch) for one in statuses if one.state in FOLDED)
    lots = {key: names for key, names in folded.items() if len(names) > MOST_ALIKE}
    rest = [one for one in statuses if one.state not in FOLDED or _alike(one) not in lots]
    shown = most_interesting(rest, max(LEAST_ROWS, room - len(lots)))
    lines = [f"{len(names)} {': '.join(filter(None, key))} ({list_names(names, 4)})" for key, names in lots.items()]
    if hidden := Counter(one.state for one in rest) - Counter(one.state for one in shown):
        lines.append(f"… {hidden.total()} more: {', '.join(f'{num} {state}' for state, num in hidden.items())}")
    words = [Text(one_line(line), no_wrap=True, overflow="ellipsis") for line in lines]
    return Group(*([status_table(shown, width)] if shown or not lots else []), *words)


def _alike(status: PatchStatus) -> tuple[str, ...]:
    """Return the key by which patches count as equal and share a line."""
    return (status.state, status.phase, in_words(status.cause), status.advice)


def status_table(statuses: Sequence[PatchStatus], width: int = 200) -> Table:
    """Return a table with a row for each patch: first failed, then refused, running, and all others in their order.

    Args:
        statuses: statuses of all patches.
        width: width of the terminal, in characters; columns that do not fit are left out.
    """
    table = Table(box=None, pad_edge=False)
    is_narrow, has_nodes = width < WIDE, len({one.node for one in statuses if one.node}) > 1
    columns = [column for column in COLUMNS if column.narrow or not is_narrow]
    columns = [column for column in columns if column.is_text or any(map(column.cell, statuses))]
    columns += [NODE] if has_nodes and not is_narrow else []
    for column in columns:
        longest = LONGEST.get(column.heading) if is_narrow or column is STATE else None
        table.add_column(column.heading, justify="left" if column.is_text else "right", no_wrap=True, max_width=longest)
    for status in sorted(statuses, key=lambda one: FIRST.index(one.state) if one.state in FIRST else len(FIRST)):
        named = replace(status, patch=shorten(status.patch)) if is_narrow else status
        table.add_row(*(column.cell(named) for column in columns), style=COLOURS.get(status.state, ""))
    drop_columns(table, [column.worth for column in columns], width)
    for state in (one for one in table.columns if one.header == STATE.heading):  # it gets the width left over
        rest = sum(_width(one) + GAP for one in table.columns if one is not state)
        state.max_width = max(LONGEST["state"], width - rest)
    return table


def shorten(name: str) -> str:
    """Return a name shortened in its middle for a narrow terminal; short names are returned unchanged.

    Names of a sweep's variants differ at their ends.
    """
    return name if len(name) <= LONGEST["patch"] else f"{name[: LONGEST['patch'] - 7]}…{name[-6:]}"


def live_view(statuses: Sequence[PatchStatus], width: int, height: int, workers: Sequence[AtWork] = ()) -> Group:
    """Return the table, with lines about workers and the batch below it.

    Args:
        statuses: statuses of all patches.
        width: width of the terminal, in characters.
        height: height of the terminal, in lines.
        workers: workers that have not ended; empty: no line about workers is added.
    """
    lines = [one_line(line) for line in lines_of(workers)]
    summary = "; ".join(filter(None, (batch_line(statuses), in_short(workers))))
    below = (Text(line, no_wrap=True, overflow="ellipsis") for line in lines)
    view = status_view(statuses, width, height - 6 - len(lines))
    return Group(view, *below, Text(summary, style="bold", no_wrap=True, overflow="ellipsis"))


def num_shown(num: int) -> int:
    """Return how many of `num` patches are shown: all up to `MOST_ROWS`, otherwise `ROWS_OF_MORE`."""
    return num if num <= MOST_ROWS else ROWS_OF_MORE


def batch_line(statuses: Sequence[PatchStatus]) -> str:
    """Return the progress of the batch: "3 of 9 trained, 2 running, 1 failed; about 2:10:00 to go".

    The time to go is left out if it is unknown.
    """
    states = [status.state for status in statuses]
    told = ("running", "failed", "stopped", "refused", "stale")
    parts = [done_in_words(statuses, ""), *(f"{states.count(one)} {one}" for one in told if one in states)]
    eta = batch_eta_s(statuses)
    return ", ".join(parts) + (f"; about {clock(eta)} to go" if eta is not None else "")


def _state(status: PatchStatus) -> Text:
    detail = status.phase if status.state in ("running", "waiting") else in_words(status.cause)
    return _text(f"{status.state} ({detail})" if detail else status.state)


def _text(words: str) -> Text:
    """Return a cell with plain text; rich would take a str as markup, and the text may come from a file."""
    return Text(one_line(words))


def _bar(status: PatchStatus) -> RenderableType:
    if status.state != "running" or not status.max_steps:
        return ""
    return ProgressBar(total=status.max_steps, completed=status.step, width=BAR_WIDTH, finished_style="cyan")


def _step(status: PatchStatus) -> str:
    return f"{status.step}/{status.max_steps}" if status.max_steps else str(status.step or "")


def _share(status: PatchStatus) -> str:
    return f"{100 * status.step // status.max_steps}%" if status.max_steps and status.state == "running" else ""


def figure(value: float | None, form: str = ".2f") -> str:
    """Return a figure in the format `form`; empty if the figure is unknown (None)."""
    return "" if value is None else format(value, form)


STATE = Column("state", _state, narrow=True, is_text=True, worth=8)
"""Column of the state; it may use the width that other columns leave."""
COLUMNS = (
    Column("patch", lambda status: _text(status.patch), narrow=True, is_text=True, worth=9),
    STATE,
    Column("", _bar, narrow=True, is_text=True),
    Column("", _share, narrow=True, worth=2),
    Column("step", _step, narrow=True, worth=7),
    Column("it/s", lambda status: figure(status.steps_per_s, ".1f"), narrow=True, worth=5),
    Column("loss", lambda status: figure(status.loss, ".4f"), narrow=True),
    Column("covered dB", lambda status: figure(status.psnr_covered), narrow=True, worth=4),
    Column("PSNR dB", lambda status: figure(status.psnr), narrow=True, worth=4),
    Column("Gaussians", lambda status: figure(status.num_gaussians, ",d")),
    Column("GPU MiB", lambda status: figure(status.gpu_used_mib, ",d")),
    Column("°C", lambda status: figure(status.gpu_temperature_c, "d")),
    Column("time", lambda status: clock(status.seconds), narrow=True, worth=3),
    Column("to go", lambda status: clock(status.eta_s), narrow=True, worth=6),
    Column("attempt", lambda status: _text(status.attempt), is_text=True),
)
"""Columns from left to right."""


NODE = Column("node", lambda status: _text(status.node), is_text=True)
"""Column of the host's name; shown only if there are several hosts."""


def batch_eta_s(statuses: Sequence[PatchStatus]) -> float | None:
    """Return the estimated seconds until every patch is trained.

    None if nothing runs, or if the time of a running patch is unknown. The estimate assumes that as many patches keep
    running as now, and that a waiting patch takes the median time of trained patches. Without these it is that of the
    running ones.
    """
    running = [status for status in statuses if status.state == "running"]
    left = [status.eta_s for status in running if status.eta_s is not None]
    if not running or len(left) < len(running):
        return None
    trained = [status.seconds for status in statuses if status.is_made and status.seconds]
    typical = statistics.median(trained or [(one.seconds or 0) + (one.eta_s or 0) for one in running])
    waiting = num_left(statuses) - len(running)
    return max(*left, (sum(left) + waiting * typical) / len(running))


def num_left(statuses: Sequence[PatchStatus]) -> int:
    """Return how many patches are running or will still be trained."""
    return sum(status.state in LEFT for status in statuses)


def drop_columns(table: Table, worths: Sequence[int], width: int) -> Table:
    """Remove columns from a table until it fits a terminal of this width, in characters; return the table.

    The column of the lowest worth goes first, among equals the last; one column always stays.

    Args:
        table: table, which is changed.
        worths: importance of each column.
        width: width of the terminal, in characters.
    """
    columns = [
        (worth, -place, _width(column)) for place, (worth, column) in enumerate(zip(worths, table.columns, strict=True))
    ]
    while len(columns) > 1 and sum(taken + GAP for _, _, taken in columns) - GAP > width:
        columns.remove(min(columns))
    table.columns = [table.columns[-place] for _, place, _ in columns]
    for index, column in enumerate(table.columns):
        column._index = index
    return table


def _width(column: Any) -> int:
    longest = max(_cell_width(cell) for cell in (column.header, *column._cells))
    return min(longest, column.max_width or longest)


def _cell_width(cell: object) -> int:
    if isinstance(cell, ProgressBar):
        return BAR_WIDTH
    return cell_len(Text.from_markup(cell).plain if isinstance(cell, str) else str(cell))
