"""`film`: a flight through a patch, or the scene."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import typer

from splatbatch import terminal
from splatbatch.commands.output import print_warnings
from splatbatch.errors import ConfigError
from splatbatch.machine.bounded import Bounds
from splatbatch.monitor.telling import tell
from splatbatch.plain_text import one_line
from splatbatch.publish.film import Film, make_film
from splatbatch.publish.source import published
from splatbatch.tasks.batch import open_batch

SIZE = re.compile(r"(\d{2,5})x(\d{2,5})")
LARGEST_PX = 8192


def film(config: Path | None, name: str, wanted: Film) -> None:
    """Make a film of a patch, or of the scene, and say where it is.

    Raises:
        SplatbatchError: it cannot be made; nothing is left of it.
    """
    terminal.never_block()
    batch = open_batch(config)
    print_warnings(batch.config.warnings)
    settings = batch.config.publish
    made = replace(wanted, bounds=Bounds(settings.wall_s, settings.memory_mib))
    batch.see_apart("--out", made.out, made.out.parent)
    made.check(batch.output.path)
    for splat in published(batch, [name]):
        place = make_film(splat, made, tell)
        typer.echo(one_line(f"{splat.name}: {place}: {place.stat().st_size / 1e6:.1f} MB"))


def parse_size(text: str) -> tuple[int, int]:
    """Return width and height of "1280x720".

    Raises:
        ConfigError: it is no size.
    """
    found = SIZE.fullmatch(text.strip().lower())
    width, height = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 16 <= min(width, height) <= max(width, height) <= LARGEST_PX:
        raise ConfigError(f"--size {text}: no size of a film, from 16x16 to {LARGEST_PX}x{LARGEST_PX}", "As 1280x720.")
    return width, height
