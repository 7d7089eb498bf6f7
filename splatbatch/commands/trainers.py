"""`trainers`: which programs can train, and what those that cannot lack on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.text import Text

from splatbatch import config as configuration
from splatbatch.commands.output import open_console, open_table, print_json
from splatbatch.config.load import has_config
from splatbatch.config.shipped import shipped
from splatbatch.config.trainers.programs import OUR_TRAINER
from splatbatch.plain_text import one_line
from splatbatch.trainers.usable import missing


@dataclass(frozen=True)
class Listed:
    """A trainer, where it is written down, and what it lacks here."""

    name: str
    origin: Literal["ours", "configured", "preset"]
    file: str
    missing: tuple[str, ...]


def show(config: Path | None, *, as_json: bool) -> None:
    """Print our own trainer, those of the config, if there is one, and the presets."""
    configured = _listed(configuration.find_config(config), "configured") if has_config(config) else ()
    listed = [Listed(OUR_TRAINER, "ours", "", missing(None)), *configured, *_presets()]
    if as_json:
        print_json({"trainers": [{**asdict(one), "found": not one.missing} for one in listed]})
        return
    headings = ("trainer", "from", "here")
    table = open_table(headings, headings)
    for one in listed:
        cells = (one.name, one.file or one.origin, "; ".join(one.missing) or "found")
        table.add_row(*(Text(one_line(cell)) for cell in cells))  # Text: a name is no markup
    open_console().print(table)


def _presets() -> Iterator[Listed]:
    folder = shipped("trainers")
    for path in sorted(folder.glob("*.yml")) if folder else ():
        yield from _listed(path, "preset")


def _listed(path: Path, origin: Literal["configured", "preset"]) -> Iterator[Listed]:
    for name, program in configuration.load(path).trainers.items():
        yield Listed(name, origin, str(path), missing(program))
