"""JSON read without trust: numbers of 64 bits, a bounded depth, nothing that cannot be written again."""

from __future__ import annotations

import json
import math
from itertools import chain
from typing import Any

MOST_LEVELS = 64
"""Records of ours have five."""
DIGITS_OF_64_BITS = 19


def parse(text: str | bytes) -> Any:
    """Read JSON whose numbers are finite, whole ones of 64 bits; what else stands in place of a number becomes None.

    So whatever was read can be calculated with, and written again.

    Raises:
        ValueError: it is no JSON, or nested too deeply to be of anybody's making.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text))
    try:
        found = _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    # as many brackets at least as levels: most records need not be walked through
    if text.count("[") + text.count("{") > MOST_LEVELS:
        _check_depth(found)
    return found


def _check_depth(found: Any) -> None:
    """Refuse what is nested so deeply that whoever walks through it, or writes it, runs out of stack.

    Raises:
        ValueError: it is.
    """
    level = [found]
    for _ in range(MOST_LEVELS):
        inside = chain.from_iterable(one.values() if isinstance(one, dict) else one for one in level)
        level = [one for one in inside if isinstance(one, dict | list)]
        if not level:
            return
    raise ValueError("nested too deeply")


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _whole(text: str) -> int | None:
    """Return a whole number of 64 bits; others are nobody's, and thousands of digits take long to read."""
    if len(text) < DIGITS_OF_64_BITS:
        return int(text)
    value = int(text) if len(text) <= DIGITS_OF_64_BITS + 1 else 1 << 63
    return value if -(1 << 63) <= value < 1 << 63 else None


_DECODER = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_finite, parse_int=_whole)
