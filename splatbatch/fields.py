"""Checked reading of one field of a record, which a crash, a person or another version may have damaged.

Each function returns a value of the expected type, or None or an empty value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LARGEST = 1 << 63
"""Bound of the numbers that are accepted; splatbatch writes smaller ones, and larger ones overflow when added up."""


def number(value: object) -> float | None:
    """Return a number unchanged; None for anything else, and for a number that is not finite or beyond `LARGEST`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -LARGEST < value < LARGEST else None  # NaN is not


def whole_number(value: object) -> int | None:
    """Return a whole number; None for anything else."""
    known = number(value)
    return None if known is None or known != int(known) else int(known)


def text(value: object) -> str:
    """Return a text, or a number as text; empty for anything else."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) else ""


def mapping(value: object) -> dict[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    return {str(key): one for key, one in value.items()} if isinstance(value, Mapping) else {}
