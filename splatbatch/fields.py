"""A field of a record as a crash, a stranger or another version may have left it: what it should be, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LARGEST = 1 << 63
"""Nothing that we write is as large, and larger numbers overflow when they are added up."""


def number(value: object) -> float | None:
    """Return a number as it is; None for anything else, and for one that is not finite or beyond `LARGEST`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -LARGEST < value < LARGEST else None  # NaN is not


def whole_number(value: object) -> int | None:
    """Return a whole number; None for anything else."""
    known = number(value)
    return None if known is None or known != int(known) else int(known)


def text(value: object) -> str:
    """Return a text, or a number in words; empty for anything else."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) else ""


def mapping(value: object) -> dict[str, Any]:
    """Return an object; an empty one for anything else."""
    return {str(key): one for key, one in value.items()} if isinstance(value, Mapping) else {}
