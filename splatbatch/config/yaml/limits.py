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
TOO_DEEP = f"nested deeper than {MOST_LEVELS} levels"
DEPTH_OF_PARSER = "maximum nesting depth"
"""Of the fast parser since PyYAML 6.0.4: it reads ahead, and stops at 1,000 brackets before it tells of the first."""
MOST_CHARS = 4_000
"""Of one value: numbers of more digits take minutes to read."""
SHORT = 1 << 16
"""Up to here the slow parser, whose messages are better, says what is wrong."""
FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

STDIN = Path("-")
AS_WRITTEN = ("deadline",)
"""Settings whose words are kept: to YAML 1.1 25:00 is the number 1500, and a date is no text."""
TWICE = "stands here and in line"
LONGEST_NUMBER = 40
_SIXTIES = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_GAPS = re.compile(r"[-+]?(0[xb])?[0-9a-fA-F]*[0-9.]_[0-9a-fA-F_]*(\.[0-9_]*)?")
_OCTAL = re.compile(r"[-+]?0[0-7_]+")

Read = tuple[yaml.Node | None, Any]
"""The nodes, with their lines, and the values."""


class YamlTooLarge(yaml.MarkedYAMLError):
    """The YAML is larger than anybody's configuration."""


def read_file(path: Path) -> str:
    """Return the text of a YAML file; "-" is standard input.

    Raises:
        OSError, ValueError, YamlTooLarge: it cannot be read, or is longer than anybody's configuration.
    """
    if path == STDIN:
        data = standard_input()
    else:
        with open_regular(path) as file:
            data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise YamlTooLarge(problem=f"more than {MOST_BYTES // MIB} MiB")
    return data.decode("utf-8")


@lru_cache(maxsize=1)
def standard_input() -> bytes:
    """Return what came on standard input; it comes once, and some commands look twice."""
    return sys.stdin.buffer.read(MOST_BYTES + 1)


def read_text(text: str) -> Read:
    """Return what a YAML holds.

    Raises:
        yaml.YAMLError: it is none, or is larger than anybody's configuration (`YamlTooLarge`).
        ValueError: a value is none, such as a day that there is not.
    """
    try:
        return _read(text, FAST)
    except YamlTooLarge:
        raise
    except yaml.YAMLError as error:
        if DEPTH_OF_PARSER in str(error):
            raise YamlTooLarge(problem=TOO_DEEP, problem_mark=getattr(error, "problem_mark", None)) from None
        return _read(text, yaml.SafeLoader if len(text) < SHORT else FAST)


def _read(text: str, kind: Any) -> Read:
    _measure(_with_plain_numbers(yaml.parse(text, Loader=kind), text))
    loader = kind(text)
    try:
        node = loader.get_single_node()
        _see_twice(node)  # before it is built: what << takes over stands among a mapping's own keys then
        return node, loader.construct_document(node) if node else None
    finally:
        loader.dispose()


def _with_plain_numbers(events: Iterator[yaml.Event], text: str) -> Iterator[yaml.Event]:
    key, is_flow_mapping = "", [False]
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            is_flow_mapping.append(isinstance(event, yaml.MappingStartEvent) and bool(event.flow_style))
        elif isinstance(event, yaml.CollectionEndEvent):
            is_flow_mapping.pop()
        elif isinstance(event, yaml.ScalarEvent) and is_flow_mapping[-1] and event.value.isdecimal():
            at = cast("yaml.Mark", event.start_mark).index
            if text[at - 1] == "," and text[at - 2].isdecimal():  # {means: 0,00016}: to YAML two keys
                problem = f"{key},{event.value} is no number: write {key}.{event.value}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=_mark(event))
        if isinstance(event, yaml.ScalarEvent):
            if event.implicit[0] and key not in AS_WRITTEN:
                _see_number(event)
            key = event.value
        yield event


def _measure(events: Iterator[yaml.Event]) -> None:
    """Walk through the events of a YAML, and stop where it becomes too much.

    Raises:
        YamlTooLarge: it does.
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
    what = ""
    if num > MOST_NODES:
        what = f"more than {MOST_NODES:,} keys and values, what aliases stand for counted each time"
    elif level > MOST_LEVELS:
        what = TOO_DEEP
    elif isinstance(event, yaml.ScalarEvent) and len(event.value) > MOST_CHARS:
        what = f"a value of {len(event.value):,} characters"
    if what:
        raise YamlTooLarge(problem=what, problem_mark=_mark(event))


def _see_number(event: yaml.ScalarEvent) -> None:
    """See that a number is the one that people read: YAML 1.1 has numbers to the base of 8 and 60, and 1_0 is 10.

    Raises:
        yaml.MarkedYAMLError: it is another.
    """
    if _OCTAL.fullmatch(event.value):
        taken, instead = int(event.value, 8), str(int(event.value))
        is_other = str(taken) != instead
    elif _SIXTIES.fullmatch(event.value) or _GAPS.fullmatch(event.value):
        if len(event.value) > LONGEST_NUMBER:
            return  # nobody's number: what it is written for says so
        taken = yaml.safe_load(event.value)
        instead, is_other = str(taken), taken != event.value
    else:
        return
    if is_other:
        remedy = f"write {instead}, or quote what is no number"
        raise yaml.MarkedYAMLError(problem=f"{event.value} is read as {taken}: {remedy}", problem_mark=_mark(event))


def _see_twice(top: yaml.Node | None) -> None:
    """See that no mapping has a key twice: YAML takes the last, and hides the mistake.

    Raises:
        yaml.MarkedYAMLError: one has.
    """
    todo, looked_at = [top], set()
    while todo:
        node = todo.pop()
        if not isinstance(node, yaml.CollectionNode) or id(node) in looked_at:
            continue
        looked_at.add(id(node))
        if not isinstance(node, yaml.MappingNode):
            todo += node.value
            continue
        seen: dict[str, int] = {}
        for key, value in node.value:
            name = str(key.value)  # a key may itself be a list or mapping, which nothing of ours is called
            if name in seen:
                raise yaml.MarkedYAMLError(problem=f"{name!r} {TWICE} {seen[name]}", problem_mark=key.start_mark)
            seen[name] = key.start_mark.line + 1
            todo += (key, value)


def _mark(event: yaml.Event) -> yaml.Mark | None:
    return cast("yaml.Mark | None", event.start_mark)
