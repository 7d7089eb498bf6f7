"""Some of many, evenly taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def evenly_spaced(items: Sequence[T], most: int) -> tuple[T, ...]:
    """Return at most so many, evenly spread over all, in their order."""
    count = min(most, len(items))
    return tuple(items[place * len(items) // count] for place in range(count))
