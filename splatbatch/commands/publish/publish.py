"""`publish`: accepted splats as files that others open: formats, 3D Tiles, a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from splatbatch import terminal
from splatbatch.commands.output import open_console, open_table, print_json, print_warnings
from splatbatch.night import api
from splatbatch.plain_text import one_line
from splatbatch.publish.source import SCENE
from splatbatch.store.records.publication import FILE, Publication
from splatbatch.tasks.batch import open_batch

HEADINGS = ("file", "MB", "of the PLY", "Gaussians", "PSNR dB", "lost dB", "s", "note")


@dataclass(frozen=True)
class PublishOptions:
    """What is wanted of a publication."""

    to: Path | None = None
    """None: as the YAML says."""
    formats: str = ""
    """Separated by commas; empty: as the YAML says."""
    is_forced: bool = False
    is_measured: bool = True


def publish(config: Path | None, names: Sequence[str], options: PublishOptions, *, as_json: bool) -> None:
    """Publish named patches, or the scene, and say what came of it.

    Raises:
        SplatbatchError: some of it could not be written; the rest is there.
    """
    terminal.never_block()
    batch = open_batch(config)
    print_warnings(batch.config.warnings)
    if not options.is_measured:
        measuring = batch.config.publish.model_copy(update={"measure": False})
        batch = replace(batch, config=batch.config.model_copy(update={"publish": measuring}))
    done = api.publish(batch, names, options.to, options.formats, forced=options.is_forced)
    if as_json:
        print_json({"folder": str(options.to or batch.config.publish.folder), **done.to_record()})
        return
    show(done)


def show(done: Publication) -> None:
    """Print what lies in the folder as a table."""
    table = open_table(HEADINGS, ("file", "note"))
    for name, one in done.outputs.items():
        share = f"{one.bytes / one.bytes_before:.0%}" if one.bytes_before else ""
        psnr, lost = (f"{value:.2f}" if value is not None else "-" for value in (one.psnr, one.loss_db))
        size, seconds = f"{one.bytes / 1e6:,.1f}", f"{one.seconds or 0:.0f}"
        notes = one_line("; ".join(one.notes))
        table.add_row(one_line(name), size, share, f"{one.num_gaussians:,}", psnr, lost, seconds, notes)
    open_console().print(table)
    typer.echo(one_line(f"{FILE} says the same, and of which splats: {SCENE} or patches"))
