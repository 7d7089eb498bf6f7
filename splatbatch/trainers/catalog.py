"""Lists the trainers to choose from: the builtin one, those of a YAML and the presets; and what each lacks here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from splatbatch import config as configuration
from splatbatch.config.data_files import shipped
from splatbatch.config.trainers.programs import OUR_TRAINER
from splatbatch.trainers.availability import missing


@dataclass(frozen=True)
class TrainerEntry:
    """A trainer: where it is defined, and what it lacks on this machine."""

    name: str
    origin: Literal["ours", "configured", "preset"]
    file: str
    """YAML that defines it; empty for the builtin trainer."""
    missing: tuple[str, ...]
    """What it lacks on this machine, as messages."""
    told: ClassVar = ("found",)

    @property
    def found(self) -> bool:
        """Return whether nothing is missing."""
        return not self.missing


@dataclass(frozen=True)
class TrainerList:
    """Result of `doctor --trainers --json`."""

    trainers: tuple[TrainerEntry, ...]


def trainers_here(config: Path | None) -> tuple[TrainerEntry, ...]:
    """Return the builtin trainer, those of the YAML `config` unless it is None, and the presets, in this order."""
    configured = _listed(config, "configured") if config else ()
    folder = shipped("trainers")
    presets = (one for path in (sorted(folder.glob("*.yml")) if folder else ()) for one in _listed(path, "preset"))
    return (TrainerEntry(OUR_TRAINER, "ours", "", missing(None)), *configured, *presets)


def _listed(path: Path, origin: Literal["configured", "preset"]) -> Iterator[TrainerEntry]:
    for name, program in configuration.load(path).trainers.items():
        yield TrainerEntry(name, origin, str(path), missing(program))
