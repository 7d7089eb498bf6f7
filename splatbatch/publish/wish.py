"""What is to be published, as what and where; and who hears how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from splatbatch.config import nearest
from splatbatch.errors import ConfigError
from splatbatch.machine.bounded import USUAL, Bounds
from splatbatch.publish.formats import KINDS
from splatbatch.publish.target import Target
from splatbatch.tasks.batch import Batch


class Telling(Protocol):
    """Tells people how far it is."""

    def say(self, words: str) -> None:
        """Say something."""

    def advance(self, what: str, done: int, total: int) -> None:
        """Say how far something is."""


@dataclass(frozen=True)
class Wish:
    """What is to be published."""

    kinds: tuple[str, ...]
    target: Target
    bounds: Bounds = USUAL
    is_measured: bool = True
    crs: str = ""

    @classmethod
    def of(cls, batch: Batch, to: Path | None = None, formats: str = "", *, forced: bool = False) -> Wish:
        """Return as what and where something is wanted: in formats separated by commas, else as the YAML says.

        Raises:
            SplatbatchError: nothing could be published so.
        """
        settings = batch.config.publish
        kinds = parse_kinds(formats) if formats else tuple(dict.fromkeys(settings.formats))
        if not kinds:
            message = "--as: nothing to publish as"
            raise ConfigError(message, f"Name some of {', '.join(KINDS)}; or set publish.formats.")
        target, bounds = Target(to or settings.folder, forced), Bounds(settings.wall_s, settings.memory_mib)
        target.check(batch.output.path)
        batch.see_apart("--to" if to else "publish.folder", target.folder, target.folder)
        return cls(kinds, target, bounds, settings.measure, batch.config.scene.crs or "")


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
