"""`publish`: accepted splats as files that others open: formats, 3D Tiles, a page, one PLY, a film."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from splatbatch import terminal
from splatbatch.cli.commands.output import open_console, open_table, print_json, print_line
from splatbatch.errors import ConfigError
from splatbatch.output.records.publication import FILE, Publication
from splatbatch.publish.film import SUFFIXES, Film
from splatbatch.publish.source import SCENE
from splatbatch.run import api, products
from splatbatch.run.follow_ups import deliver, is_follow_up
from splatbatch.splats.export import WHOLE, ExportOptions
from splatbatch.tasks.batch import open_batch
from splatbatch.text import one_line

HEADINGS = ("file", "MB", "% of PLY", "Gaussians", "PSNR dB", "loss dB", "s", "note")
PLY = ".ply"
OTHER_FORMAT = re.compile(r"\.compressed\.ply|\.[a-z][a-z0-9]{1,7}", re.IGNORECASE)
"""How the name of a file ends; a folder's may end with a date or a version."""
SIZE = re.compile(r"(\d{2,5})x(\d{2,5})")
LARGEST_PX = 8192
USUAL_FILM = Film(Path())


@dataclass(frozen=True)
class PublishOptions:
    """What is wanted of a publication."""

    to: Path | None = None
    """None: as the YAML says."""
    formats: str = ""
    """Separated by commas; empty: as the YAML says."""
    is_forced: bool = False
    is_measured: bool = True
    cut: ExportOptions = WHOLE
    """What a PLY leaves out."""
    film: Film = USUAL_FILM
    """How a film is made; where to says `to`."""

    @property
    def is_film(self) -> bool:
        """Return whether a film is wanted, and nothing else."""
        return f".{self.formats.strip().lower()}" in SUFFIXES


def publish(config: Path | None, names: Sequence[str], options: PublishOptions, *, as_json: bool) -> None:
    """Publish named patches, or the scene, and say what came of it.

    Raises:
        SplatbatchError: some of it could not be written; the rest is there.
    """
    terminal.never_block()
    batch = open_batch(config, [name for name in names if name != SCENE]).whole()
    how = {"forced": options.is_forced, "measured": options.is_measured}
    if is_follow_up("publish"):
        return deliver(
            partial(products.publish_here, batch, names, options.to, options.formats, **how, cut=options.cut)
        )
    if options.cut != WHOLE and "ply" not in options.formats.lower().split(","):
        raise ConfigError("--sh-degree, --min-opacity and --frame need --as ply", "Add --as ply.")
    if options.is_film:
        wanted = replace(options.film, is_forced=options.is_forced)
        name, place = products.film(batch, names, wanted, options.formats.strip().lower(), options.to)
        return print_line(f"{name}: {place}: {place.stat().st_size / 1e6:.1f} MB")
    if (to := options.to) and options.formats.strip().lower() == "ply" and _is_file(to):
        name, num = products.ply(batch, names, to, options.cut, is_forced=options.is_forced)
        return print_line(f"{name}: {to}: {num:,} Gaussians, {to.stat().st_size / 1e6:.1f} MB")
    done = api.publish_splats(batch, names, options.to, options.formats, **how, cut=options.cut)
    return print_json(done) if as_json else show(done)


def _is_file(to: Path) -> bool:
    """Return whether a PLY is to go into a file of that name.

    Raises:
        ConfigError: it is the name of a file of another format.
    """
    other = OTHER_FORMAT.fullmatch("".join(to.suffixes[-2:])) or OTHER_FORMAT.fullmatch(to.suffix)
    if other and not to.is_dir() and other[0].lower() != PLY:
        hint = "To write into a folder of that name, create the folder first."
        raise ConfigError(f"--to {to}: a {other[0]} file cannot be written, only {PLY}", hint)
    return to.suffix.lower() == PLY and not to.is_dir()


def parse_size(text: str) -> tuple[int, int]:
    """Return width and height of "1280x720".

    Raises:
        ConfigError: it is no size.
    """
    found = SIZE.fullmatch(text.strip().lower())
    width, height = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 16 <= min(width, height) <= max(width, height) <= LARGEST_PX:
        raise ConfigError(
            f"--size {text}: not a film size from 16x16 to {LARGEST_PX}x{LARGEST_PX}", "Example: 1280x720."
        )
    return width, height


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
    print_line(f"{FILE} lists the same files and their source splats: {SCENE} or patches")
