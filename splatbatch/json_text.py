"""JSON read without trust (finite 64-bit numbers, bounded depth) and written one entry per line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import chain, groupby
from typing import Any

MOST_LEVELS = 64
"""Deepest nesting that is read; records of splatbatch have five levels."""
MOST_DIGITS = 20
"""Most characters of a whole number of 64 bits, with its sign; a number of thousands of digits takes long to read."""


def parse(text: str | bytes) -> Any:
    """Return the value of a JSON text; NaN, infinite numbers, and whole numbers beyond 64 bits become None.

    So every number in the result can be calculated with, and the result can be written again.

    Raises:
        ValueError: the text is no JSON, or is nested more than `MOST_LEVELS` deep.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text))
    try:
        found = _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    # as many brackets at least as levels: most records need not be walked through
    if text.count("[") + text.count("{") > MOST_LEVELS:
        _check_depth(found)
    return found


def pieces(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield an object as JSON text in pieces: a line for each entry, and for each object in a list of several objects.

    Deeper values stand on one line, so that few calls of the C encoder suffice. That encoder cannot indent, and the
    Python encoder would take longer than anything else that is done for an attempt.

    Raises:
        ValueError: the object holds NaN or infinity.
        TypeError: the object holds a value that JSON cannot hold.
    """
    mark = "{\n "
    for nested, entries in groupby(record.items(), lambda entry: entry[0] if isinstance(entry[1], _NESTED) else None):
        part = dict(entries)
        if nested is None:
            yield mark + _BY_LINES.encode(part)[1:-1]
        elif isinstance(found := part[nested], list) and len(found) > 1 and all(isinstance(one, dict) for one in found):
            yield f"{mark}{_IN_A_LINE.encode(nested)}: ["
            yield from (f"{',' if index else ''}\n  {_IN_A_LINE.encode(one)}" for index, one in enumerate(found))
            yield "\n ]"
        else:
            yield mark + _IN_A_LINE.encode(part)[1:-1]
        mark = ",\n "
    yield "\n}\n" if record else "{}\n"


def _check_depth(found: Any) -> None:
    """Refuse a value nested so deeply that walking through it, or writing it, could exhaust the stack.

    Raises:
        ValueError: the value has more than `MOST_LEVELS` levels.
    """
    level = [found]
    for _ in range(MOST_LEVELS):
        inside = chain.from_iterable(one.values() if isinstance(one, dict) else one for one in level)
        level = [one for one in inside if isinstance(one, dict | list)]
        if not level:
            return
    raise ValueError("the JSON is nested too deeply")


def _finite(text: str) -> float | None:
    return value if math.isfinite(value := float(text)) else None


def _whole(text: str) -> int | None:
    """Return a whole number of 64 bits; None for any other."""
    return value if len(text) <= MOST_DIGITS and -(1 << 63) <= (value := int(text)) < 1 << 63 else None


_DECODER = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_finite, parse_int=_whole)
_NESTED = (dict, list, tuple)
_IN_A_LINE = json.JSONEncoder(allow_nan=False)
_BY_LINES = json.JSONEncoder(allow_nan=False, separators=(",\n ", ": "))
