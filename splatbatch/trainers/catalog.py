"""Lists the trainers to choose from (builtin, of a YAML, shipped presets), and what each lacks on this machine."""

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
    """Where it is defined: builtin, in the user's YAML, or in a shipped preset."""
    file: str
    """Path of the YAML that defines the trainer; "" for the builtin trainer."""
    missing: tuple[str, ...]
    """What the trainer lacks on this machine, as messages; empty: it can be used."""
    told: ClassVar = ("found",)

    @property
    def found(self) -> bool:
        """Whether the trainer lacks nothing on this machine."""
        return not self.missing


@dataclass(frozen=True)
class TrainerList:
    """The trainers to choose from: output of `doctor --trainers --json`."""

    trainers: tuple[TrainerEntry, ...]


def trainers_here(config: Path | None) -> tuple[TrainerEntry, ...]:
    """Return the builtin trainer, those of the YAML `config`, and the shipped presets, in this order.

    Args:
        config: path of the YAML; None: there is none, so that its trainers are left out.

    Raises:
        ConfigError: the YAML is missing or has mistakes.
    """
    configured = _listed(config, "configured") if config else ()
    folder = shipped("trainers")
    presets = (one for path in (sorted(folder.glob("*.yml")) if folder else ()) for one in _listed(path, "preset"))
    return (TrainerEntry(OUR_TRAINER, "ours", "", missing(None)), *configured, *presets)


def _listed(path: Path, origin: Literal["configured", "preset"]) -> Iterator[TrainerEntry]:
    for name, program in configuration.load(path).trainers.items():
        yield TrainerEntry(name, origin, str(path), missing(program))
