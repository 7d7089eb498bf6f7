"""`merge`: the splats of all patches as one, and what of it is missing."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.table import Table

from splatbatch.commands.output import open_console, open_table, print_json, print_warnings, tell
from splatbatch.files import MIB
from splatbatch.plain_text import counted, one_line
from splatbatch.scheduler.work.holding import held_alone
from splatbatch.splats.merge.place import check_place
from splatbatch.store.folders.scene import MergedFiles
from splatbatch.store.records.merge import Hole, Merge
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.scene.cleaning import Cleaning
from splatbatch.tasks.scene.merging import Done, Parts, gather
from splatbatch.tasks.scene.merging import merge as merge_parts

HEADINGS = ("patch", "Gaussians", "in the core", "cleaned away", "attempt")


@dataclass(frozen=True)
class MergeOptions:
    """What is wanted of a merged scene."""

    out: Path | None = None
    """The splat; None: the output folder's own place for it."""
    allow_missing: bool = False
    clean: bool = False
    keep_uncleaned: bool = False
    """Write it without cleaning, too."""


def merge(config: Path | None, options: MergeOptions, *, as_json: bool) -> None:
    """Merge the patches of a batch, and say what came of it.

    Raises:
        SplatbatchError: they cannot be merged, or somebody trains them; nothing was written.
    """
    batch = open_batch(config)
    print_warnings(batch.config.warnings)
    files = batch.output.scene.merged
    if options.out is not None:
        check_place(options.out, batch.output.path)
        batch.see_apart("--out", options.out, options.out.parent)
        files = MergedFiles.at(options.out)
    # where nothing was ever trained there is nothing to lock, and nothing to merge
    with held_alone(batch.output, batch.terms, tell) if batch.output.path.is_dir() else nullcontext():
        parts = gather(batch, allow_missing=options.allow_missing)
        done = merged_to(batch, parts, files, options)
    merged, num_new = done.merged, done.num_new
    print_warnings([*([f"{done.damage}: merged anew"] if done.damage else []), *_warnings(merged)])
    if as_json:
        print_json({"splat": str(files.splat), "parts_written": num_new, **merged.to_record()})
        return
    open_console().print(_table(merged))
    typer.echo(one_line(_last_line(merged, files, num_new)))
    if options.clean and options.keep_uncleaned:
        typer.echo(
            one_line(f"what cleaning has changed: splatbatch evaluate, and with --splat {_uncleaned(files).splat}")
        )


def merged_to(batch: Batch, parts: Parts, files: MergedFiles, options: MergeOptions) -> Done:
    """Merge parts to some files.

    Raises:
        SplatbatchError: they cannot be merged; what stands there is as it was.
    """
    if not options.clean:
        return merge_parts(parts, files)
    if options.keep_uncleaned:
        merge_parts(parts, _uncleaned(files))
    return merge_parts(parts, files, Cleaning(parts.partition, parts.with_cameras(), parts.offset))


def _uncleaned(files: MergedFiles) -> MergedFiles:
    """Return where a scene goes as it was before it was cleaned: beside the cleaned one."""
    return MergedFiles.at(files.splat.with_name(f"{files.splat.stem}-uncleaned.ply"))


def _warnings(merged: Merge) -> list[str]:
    of_parts = [f"{part.patch}: {warning}" for part in merged.parts for warning in part.warnings]
    return [*merged.warnings, *of_parts, *map(_hole, merged.holes)]


def _hole(hole: Hole) -> str:
    if not hole.lower:
        return f"{hole.patch}: {hole.reason}: nothing is drawn behind the patches"
    sides = (
        f"{axis} {_span(*ends)}" for axis, ends in zip("xyz", zip(hole.lower, hole.upper, strict=True), strict=True)
    )
    return f"{hole.patch}: {hole.reason}: a hole in the scene, in the axes of partition.json {', '.join(sides)}"


def _span(low: float | None, high: float | None) -> str:
    return f"{'-inf' if low is None else f'{low:.6g}'} to {'inf' if high is None else f'{high:.6g}'}"


def _table(merged: Merge) -> Table:
    table = open_table(HEADINGS, ("patch", "attempt"))
    for part in merged.parts:
        removed = f"{sum(part.removed.values()):,}" if merged.cleaned else ""
        table.add_row(part.patch, f"{part.num_gaussians:,}", f"{part.survivors:.0%}", removed, part.attempt)
    return table


def _last_line(merged: Merge, files: MergedFiles, num_new: int) -> str:
    size = f"{counted(merged.num_gaussians, 'Gaussian')}, {(merged.bytes or 0) / MIB:,.1f} MiB"
    what = (
        f"{num_new} of {counted(len(merged.parts), 'part')} written anew"
        if num_new
        else "nothing has changed: left as it was"
    )
    cleaned = f"; cleaned away: {_removed(merged.cleaned.removed)}" if merged.cleaned else ""
    holes = f"; {counted(len(merged.holes), 'hole')}" if merged.holes else ""
    return f"{files.splat}: {size}; {what}{cleaned}{holes}"


def _removed(counts: dict[str, int]) -> str:
    return ", ".join(f"{num:,} {rule}" for rule, num in counts.items() if num) or "nothing"
