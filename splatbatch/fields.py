"""Checked reading of one field of a JSON record, which a crash, a person or another version may have damaged.

Each function returns a value of the expected type; for an invalid value it returns None or an empty value, and raises
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LARGEST = 1 << 63
"""Bound of the size of accepted numbers, with either sign; splatbatch writes smaller ones, and larger ones overflow
when added."""


def number(value: object) -> float | None:
    """Return a number unchanged; None for anything else.

    None is also returned for True and False, for NaN and infinity, and for a number not between -`LARGEST` and
    `LARGEST`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -LARGEST < value < LARGEST else None  # NaN is not


def whole_number(value: object) -> int | None:
    """Return a whole number as an int, also one that is written as 2.0; None for anything else."""
    known = number(value)
    return None if known is None or known != int(known) else int(known)


def text(value: object) -> str:
    """Return a text unchanged, or a number, True or False as text; "" for anything else."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) else ""


def mapping(value: object) -> dict[str, Any]:
    """Return a copy of a JSON object, with its keys as text; an empty dict for anything else."""
    return {str(key): one for key, one in value.items()} if isinstance(value, Mapping) else {}
