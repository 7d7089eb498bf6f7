"""What is to be published, as what and where; and who hears how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from splatbatch.machine.bounded import USUAL, Bounds
from splatbatch.publish.target import Target


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
