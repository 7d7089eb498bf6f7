"""`split`: a scene cut into patches that share its photographs."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

from splatbatch.cli.commands.output import open_console, open_table, print_json, print_line, print_warnings
from splatbatch.monitor.messages import PipeWriter, print_err
from splatbatch.scene.partition.picture import check_picture, draw
from splatbatch.scene.partition.plan import SplitOptions, check_shares, parse_axis, parse_grid, read_boxes
from splatbatch.scene.partition.split import SplitFiles, SplitRequest, split
from splatbatch.text import plural

STATES = {"new": "", "stays": "unchanged", "changes": "changed"}


def options_for(
    max_images: int | None, overlap: float, grid: str, boxes: Path | None, axis: str, block: float, seed: int
) -> SplitOptions:
    """Return where cuts are wanted, of what was typed.

    Raises:
        ConfigError: an option is wrong.
    """
    check_shares(overlap, block)
    found = read_boxes(boxes) if boxes else None
    return SplitOptions(max_images, overlap, parse_grid(grid), found, parse_axis(axis), block, seed)


def run(asked: SplitRequest, picture: Path | None, *, dry_run: bool, as_json: bool) -> None:
    """Cut a scene into patches and say how, or only say it.

    Raises:
        ConfigError: what was asked cannot be met; the nearest that can is named.
        SceneError: the source cannot be read, or something else lies where the patches should go.
    """
    if picture:
        check_picture(picture)
    done = split(asked, dry_run=dry_run, advance=partial(PipeWriter(print_err).advance, "split", unit="patches"))
    if picture:
        draw(done.plan, picture)
    if as_json:
        print_json(done.facts())
        return
    show(done, asked.out, dry_run=dry_run)


def show(done: SplitFiles, out: Path, *, dry_run: bool) -> None:
    """Print how a scene is cut, or would be."""
    facts = done.facts()
    total_cost = sum(cut.cost for cut in facts.patches) or 1.0
    table = open_table(("patch", "photographs", "held out", "points", "in its core", "cost", ""), ("patch", ""))
    for cut in facts.patches:
        figures = (f"{num:,}" for num in (cut.num_images, cut.num_test, cut.num_points, cut.num_core_points))
        table.add_row(cut.name, *figures, f"{cut.cost / total_cost:.1%}", STATES[cut.state])
    open_console().print(table)
    for name in facts.gone:
        print_line(f"{name}: no longer part of the split")
    print_warnings(done.notes)
    held = f"{plural(facts.num_test, 'photograph')} held out in every patch"
    piece = f", {facts.num_contiguous:,} in one block" if facts.num_contiguous else ""
    total = f"{plural(len(facts.patches), 'patch', 'es')} of {plural(facts.num_photographs, 'photograph')}"
    for line in filter(None, (f"{total}, {held}{piece}", facts.hold_out)):
        print_line(line)
    dearest = f"the most expensive patch costs {facts.evenness:.2f} times the cheapest"
    print_line(f"training costs {total_cost:.1f} times as much as the scene as one patch; {dearest}")
    if len(facts.patches) == 1:
        print_line(
            f"one patch only; for more and smaller patches use --max-images {max(facts.num_photographs // 2, 1)}"
        )
    if dry_run:
        print_line("nothing was written")
        return
    print_line(f"{out}: partition.json, partition.svg. Next: splatbatch init {shlex.quote(str(out))}")
