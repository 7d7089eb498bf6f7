"""A photograph as its header describes it: a size and its oddities, or why no program can use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Trait = Literal["cmyk", "deep", "alpha", "animated"]
Fault = Literal["missing", "empty", "truncated", "unreadable"]


@dataclass(frozen=True)
class Photo:
    """A photograph as it is stored; `orientation` (EXIF, 1 to 8) is not applied to the size."""

    width: int
    height: int
    orientation: int = 1
    traits: tuple[Trait, ...] = ()

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the stored pixels."""
        return self.width, self.height


@dataclass(frozen=True)
class Unreadable:
    """A photograph that no program can use, and why."""

    fault: Fault
    what: str


Header = Photo | Unreadable
