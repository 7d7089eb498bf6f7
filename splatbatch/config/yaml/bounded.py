"""YAML read within bounds: how large, how deep, how much its aliases make of it; known before anything is built."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import yaml

from splatbatch.files import MIB, open_regular

MOST_BYTES = MIB
MOST_NODES = 40_000
"""Keys, values and lists, those that an alias stands for too. Enough for 6,000 patches with settings of their own."""
MOST_LEVELS = 40
MOST_CHARS = 4_000
"""Of one value: numbers of more digits take minutes to read."""
SHORT = 1 << 16
"""Up to here the slow parser, whose messages are better, says what is wrong."""
FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

STDIN = Path("-")
_OCTAL = re.compile(r"[-+]?0[0-7_]+")

Read = tuple[yaml.Node | None, Any]
"""The nodes, with their lines, and the values."""


class TooMuch(yaml.MarkedYAMLError):
    """The YAML is larger than anybody's configuration."""


def read_file(path: Path) -> str:
    """Return the text of a YAML file; "-" is standard input.

    Raises:
        OSError, ValueError, TooMuch: it cannot be read, or is longer than anybody's configuration.
    """
    if path == STDIN:
        data = standard_input()
    else:
        with open_regular(path) as file:
            data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise TooMuch(problem=f"more than {MOST_BYTES // MIB} MiB")
    return data.decode("utf-8")


@lru_cache(maxsize=1)
def standard_input() -> bytes:
    """Return what came on standard input; it comes once, and some commands look twice."""
    return sys.stdin.buffer.read(MOST_BYTES + 1)


def read_text(text: str) -> Read:
    """Return what a YAML holds.

    Raises:
        yaml.YAMLError: it is none, or is larger than anybody's configuration (`TooMuch`).
        ValueError: a value is none, such as a day that there is not.
    """
    try:
        return _read(text, FAST)
    except TooMuch:
        raise
    except yaml.YAMLError:
        return _read(text, yaml.SafeLoader if len(text) < SHORT else FAST)


def _read(text: str, kind: Any) -> Read:
    _measure(yaml.parse(text, Loader=kind))
    loader = kind(text)
    try:
        node = loader.get_single_node()
        return node, loader.construct_document(node) if node else None
    finally:
        loader.dispose()


def _measure(events: Iterator[yaml.Event]) -> None:
    """Walk through the events of a YAML, and stop where it becomes too much.

    Raises:
        TooMuch: it does.
    """
    sizes: dict[str | None, int] = {}
    open_ones: list[tuple[str | None, int]] = []
    num = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in (anchor for anchor, _ in open_ones):
                raise yaml.MarkedYAMLError(problem=f"*{event.anchor} holds itself", problem_mark=_mark(event))
            num += sizes.get(event.anchor, 1)  # one that is not known is the parser's to name
        elif isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            num += 1
        if isinstance(event, yaml.CollectionStartEvent):
            open_ones.append((event.anchor, num - 1))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_ones.pop()
            sizes |= {anchor: num - before} if anchor else {}
        elif isinstance(event, yaml.ScalarEvent) and event.anchor:
            sizes[event.anchor] = 1
        _see_bounds(event, num, len(open_ones))


def _see_bounds(event: yaml.Event, num: int, level: int) -> None:
    if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and _OCTAL.fullmatch(event.value):
        _see_octal(event)
    what = ""
    if num > MOST_NODES:
        what = f"more than {MOST_NODES:,} keys and values, what aliases stand for counted each time"
    elif level > MOST_LEVELS:
        what = f"nested deeper than {MOST_LEVELS} levels"
    elif isinstance(event, yaml.ScalarEvent) and len(event.value) > MOST_CHARS:
        what = f"a value of {len(event.value):,} characters"
    if what:
        raise TooMuch(problem=what, problem_mark=_mark(event))


def _see_octal(event: yaml.ScalarEvent) -> None:
    """See that a number that YAML reads to the base of eight is the same to the base of ten.

    Raises:
        yaml.MarkedYAMLError: it is another.
    """
    meant, taken = int(event.value), int(event.value, 8)
    if meant != taken:
        remedy = f"write {meant}, or quote what is no number"
        raise yaml.MarkedYAMLError(problem=f"{event.value} is read as {taken}: {remedy}", problem_mark=_mark(event))


def _mark(event: yaml.Event) -> yaml.Mark | None:
    return cast("yaml.Mark | None", event.start_mark)
