"""The trainers that one may choose from: ours, those of a config, and the presets; and what each lacks here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from splatbatch import config as configuration
from splatbatch.config.shipped import shipped
from splatbatch.config.trainers.programs import OUR_TRAINER
from splatbatch.trainers.availability import missing


@dataclass(frozen=True)
class Listed:
    """A trainer, where it is written down, and what it lacks here."""

    name: str
    origin: Literal["ours", "configured", "preset"]
    file: str
    missing: tuple[str, ...]
    told: ClassVar = ("found",)

    @property
    def found(self) -> bool:
        """Return whether it can train here."""
        return not self.missing


@dataclass(frozen=True)
class Trainers:
    """`doctor --trainers --json`."""

    trainers: tuple[Listed, ...]


def trainers_here(config: Path | None) -> tuple[Listed, ...]:
    """Return our own trainer, those of a YAML, where one is named, and the presets."""
    configured = _listed(config, "configured") if config else ()
    return (Listed(OUR_TRAINER, "ours", "", missing(None)), *configured, *_presets())


def _presets() -> Iterator[Listed]:
    folder = shipped("trainers")
    for path in sorted(folder.glob("*.yml")) if folder else ():
        yield from _listed(path, "preset")


def _listed(path: Path, origin: Literal["configured", "preset"]) -> Iterator[Listed]:
    for name, program in configuration.load(path).trainers.items():
        yield Listed(name, origin, str(path), missing(program))
