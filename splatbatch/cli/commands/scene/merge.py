"""`merge`: the splats of all patches as one, and what of it is missing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from rich.table import Table

from splatbatch.cli.commands.output import open_console, open_table, print_json, print_line, print_warnings
from splatbatch.files import MIB
from splatbatch.output.records.merge import Hole, Merge, MergeOutput
from splatbatch.run import api
from splatbatch.run.follow_ups import deliver, is_follow_up
from splatbatch.run.products import merge_here, uncleaned
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.counts import behind_in_words
from splatbatch.text import plural

HEADINGS = ("patch", "Gaussians", "in the core", "cleaned away", "attempt")


def merge(config: Path | None, out: Path | None, how: Mapping[str, bool], *, as_json: bool) -> None:
    """Merge the patches of a batch, and say what came of it.

    Raises:
        SplatbatchError: they cannot be merged, or somebody trains them; nothing was written.
    """
    batch = open_batch(config)
    if is_follow_up("merge"):
        return deliver(partial(merge_here, batch, out, **how))
    made = api.merge(batch, out, **how)
    if as_json:
        print_warnings(_warnings(made))
        return print_json(made)
    show(made)
    if how["clean"] and how["keep_uncleaned"]:
        splat = uncleaned(Path(made.splat))
        print_line(f"effect of cleaning: run `splatbatch evaluate` with and without --splat {splat}")
    return None


def show(made: MergeOutput) -> None:
    """Print what was merged, of what, and what is missing."""
    print_warnings(_warnings(made))
    open_console().print(_table(made))
    if behind := behind_in_words(made):
        print_line(behind)
    print_line(_last_line(made))


def _warnings(merged: Merge) -> list[str]:
    of_parts = [f"{part.patch}: {warning}" for part in merged.parts for warning in part.warnings]
    return [*merged.warnings, *of_parts, *map(_hole, merged.holes)]


def _hole(hole: Hole) -> str:
    if not hole.lower:
        return f"{hole.patch}: {hole.reason}: the scene has no backdrop behind the patches"
    sides = (
        f"{axis} {_span(*ends)}" for axis, ends in zip("xyz", zip(hole.lower, hole.upper, strict=True), strict=True)
    )
    return f"{hole.patch}: {hole.reason}: a hole in the scene, in coordinates of partition.json: {', '.join(sides)}"


def _span(low: float | None, high: float | None) -> str:
    return f"{'-inf' if low is None else f'{low:.6g}'} to {'inf' if high is None else f'{high:.6g}'}"


def _table(merged: Merge) -> Table:
    table = open_table(HEADINGS, ("patch", "attempt"))
    for part in merged.parts:
        removed = f"{sum(part.removed.values()):,}" if merged.cleaned else ""
        table.add_row(part.patch, f"{part.num_gaussians:,}", f"{part.survivors:.0%}", removed, part.attempt)
    return table


def _last_line(merged: MergeOutput) -> str:
    size = f"{plural(merged.num_gaussians, 'Gaussian')}, {(merged.bytes or 0) / MIB:,.1f} MiB"
    num_new = merged.parts_written
    what = f"{plural(num_new, 'part')} written" if num_new else "nothing has changed: not written again"
    cleaned = f"; cleaned away: {_removed(merged.cleaned.removed)}" if merged.cleaned else ""
    holes = f"; {plural(len(merged.holes), 'hole')}" if merged.holes else ""
    return f"{merged.splat}: {size}; {what}{cleaned}{holes}"


def _removed(counts: dict[str, int]) -> str:
    return ", ".join(f"{num:,} {rule}" for rule, num in counts.items() if num) or "nothing"
