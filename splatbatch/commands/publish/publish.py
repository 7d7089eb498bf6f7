"""`publish`: accepted splats as files that others open: formats, 3D Tiles, a page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from splatbatch import terminal
from splatbatch.commands.output import open_console, open_table, print_json, print_warnings
from splatbatch.commands.publish.telling import open_telling
from splatbatch.config import nearest
from splatbatch.errors import ConfigError
from splatbatch.machine.bounded import Bounds
from splatbatch.plain_text import one_line
from splatbatch.publish.formats import KINDS
from splatbatch.publish.publish import publish as publish_splats
from splatbatch.publish.source import SCENE, Published, published
from splatbatch.publish.target import Target
from splatbatch.publish.wish import Wish
from splatbatch.store.folders.published import FILE, Publication
from splatbatch.store.records.afterwards import DONE, Afterwards
from splatbatch.tasks.batch import Batch, open_batch

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
    done = run(batch, names, options)
    if not names and options == PublishOptions(is_measured=options.is_measured):  # as a night does
        found = Afterwards("publish", DONE, f"published: {batch.config.publish.folder}", "", time.time())
        batch.output.note_afterwards("publish", found)
    if as_json:
        print_json({"folder": str(options.to or batch.config.publish.folder), **done.to_record()})
        return
    show(done)


def run(batch: Batch, names: Sequence[str], options: PublishOptions = PublishOptions()) -> Publication:
    """Publish what the options, else the YAML, say.

    Raises:
        SplatbatchError: some of it could not be written; the rest is there.
    """
    wish = wish_of(batch, options)
    return run_as(batch, published(batch, names), wish)


def wish_of(batch: Batch, options: PublishOptions = PublishOptions()) -> Wish:
    """Return as what and where the options, else the YAML, want something published.

    Raises:
        SplatbatchError: nothing could be published so.
    """
    settings = batch.config.publish
    kinds = parse_kinds(options.formats) if options.formats else tuple(dict.fromkeys(settings.formats))
    if not kinds:
        raise ConfigError("--as: nothing to publish as", f"Name some of {', '.join(KINDS)}; or set publish.formats.")
    wish = Wish(
        kinds,
        Target(options.to or settings.folder, options.is_forced),
        Bounds(settings.wall_s, settings.memory_mib),
        options.is_measured and settings.measure,
        batch.config.scene.crs or "",
    )
    wish.target.check(batch.output.path)
    batch.see_apart("--to" if options.to else "publish.folder", wish.target.folder, wish.target.folder)
    return wish


def run_as(batch: Batch, splats: Sequence[Published], wish: Wish) -> Publication:
    """Publish splats.

    Raises:
        SplatbatchError: some of it could not be written; the rest is there.
    """
    print_warnings(warning for splat in splats for warning in splat.warnings)
    with open_telling() as telling:
        return publish_splats(splats, wish, batch.output.path, telling)


def parse_kinds(text: str) -> tuple[str, ...]:
    """Return the formats that are named, separated by commas.

    Raises:
        ConfigError: one of them is none.
    """
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in KINDS:
            raise ConfigError(f"--as {name}: no such format; there are {', '.join(KINDS)}", nearest(name, [*KINDS]))
    return tuple(dict.fromkeys(names))


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
