"""Bounded reading of YAML: size, depth, number of values and aliases are checked before values are built."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from splatbatch.errors import ConfigError
from splatbatch.files import MIB, open_regular

MOST_BYTES = MIB
MOST_NODES = 40_000
"""Largest number of keys, values and lists, with those that aliases stand for; enough for 6,000 patches with
overrides."""
MOST_LEVELS = 40
TOO_DEEP = f"nested deeper than {MOST_LEVELS} levels"
DEPTH_OF_PARSER = "maximum nesting depth"
"""Words in the error with which PyYAML's fast parser refuses deep nesting, since PyYAML 6.0.4.

That parser reads ahead, and stops at 1,000 brackets before it reports the first."""
MOST_CHARS = 4_000
"""Longest value in characters; numbers of more digits take minutes to read."""
SHORT = 1 << 16
"""Number of characters below which a text with an error is read again by the slow parser, whose messages are better."""
FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

STDIN = Path("-")
AS_WRITTEN = ("deadline",)
"""Top-level settings kept as text: YAML 1.1 would read 25:00 as the number 1500, and a date as a date."""
NO_NUMBER = "Put quotes around a value that is not a number."
LONGEST_NUMBER = 40
DECIMAL_COMMA = re.compile(r"[0-9],$")
"""Pattern of the text before a key that is the end of a number with a decimal comma.

In {means: 0,00016}, YAML reads two keys, `means` and 00016."""
_SIXTIES = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_GAPS = re.compile(r"[-+]?(0[xb])?[0-9a-fA-F]*[0-9.]_[0-9a-fA-F_]*(\.[0-9_]*)?")
_OCTAL = re.compile(r"[-+]?0[0-7_]+")

TOO_LARGE = "Check that this is the right file: a configuration is a short text."
"""The remedy for a YAML that is too large for a configuration."""

Read = tuple[yaml.Node | None, Any]
"""A YAML as it was read: its root node, whose nodes know their lines, and its values; both are None for an empty
text."""


def read_file(path: Path) -> str:
    """Return the text of a YAML file; "-" is standard input.

    Raises:
        OSError, ValueError: the file cannot be read, or is not UTF-8.
        ConfigError: the file is larger than `MOST_BYTES`, 1 MiB.
    """
    if path == STDIN:
        data = standard_input()
    else:
        with open_regular(path) as file:
            data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ConfigError(f"{path}: too large: more than {MOST_BYTES // MIB} MiB", TOO_LARGE)
    return data.decode("utf-8")


@lru_cache(maxsize=1)
def standard_input() -> bytes:
    """Return the bytes of standard input, at most one more than `MOST_BYTES`.

    They are kept, since some commands read the config twice.
    """
    return sys.stdin.buffer.read(MOST_BYTES + 1)


def read_text(text: str) -> Read:
    """Return the nodes and values of a YAML text; both None if the text is empty.

    Raises:
        yaml.YAMLError: the text is no YAML, or is refused by `BoundedComposer`; then its `note` is the remedy.
        ValueError: a value is impossible, such as the date 2026-13-45.
        RecursionError: the text is nested too deep for Python.
    """
    try:
        return _read(text, FAST)
    except yaml.YAMLError as error:
        if getattr(error, "note", None):
            raise
        if DEPTH_OF_PARSER in str(error):
            mark = getattr(error, "problem_mark", None)
            raise yaml.MarkedYAMLError(problem=TOO_DEEP, problem_mark=mark, note=TOO_LARGE) from None
        is_brief = len(text) < SHORT or isinstance(error, yaml.reader.ReaderError)
        return _read(text, yaml.SafeLoader if is_brief else FAST)


def _read(text: str, kind: type[yaml.SafeLoader]) -> Read:
    composer = BoundedComposer(text, kind(text))
    node = composer.get_single_node()
    return node, composer.construct_document(node) if node else None


class BoundedComposer(Composer, SafeConstructor, Resolver):
    """PyYAML's composer over the events of its fast or slow parser, with checks for what no user means.

    Refused are a YAML too large for a configuration, an alias inside its own anchor, and a key that stands twice. So is
    a number that YAML reads as another number. Each such error is a `yaml.MarkedYAMLError` whose `note` is the remedy.
    `text` is the whole YAML, and `parser` a loader made from it, of which only the events are used.
    """

    def __init__(self, text: str, parser: yaml.SafeLoader) -> None:
        for base in (Composer, SafeConstructor, Resolver):
            base.__init__(self)
        self.check_event, self.peek_event, self.get_event = parser.check_event, parser.peek_event, parser.get_event
        self.text = text
        self.count = self.level = 0
        self.sizes: dict[str | None, int] = {}
        """Number of nodes of each anchor, its own included; an anchor that is missing is still being composed."""

    def compose_node(self, parent: yaml.Node | None, index: int | yaml.Node | None) -> yaml.Node | None:
        """Return one node; the nodes behind an alias are counted each time that the alias stands.

        Raises:
            yaml.MarkedYAMLError: the YAML is too large, an alias contains itself, a key stands twice, or a number would
                be read as another.
        """
        event: yaml.NodeEvent = self.peek_event()  # type: ignore[no-untyped-call]
        before, is_alias = self.count, isinstance(event, yaml.AliasEvent)
        if is_alias and event.anchor in self.anchors and event.anchor not in self.sizes:
            raise _mistake(event, f"the alias *{event.anchor} stands inside its own anchor", "Remove the alias.")
        self.count += self.sizes.get(event.anchor, 1) if is_alias else 1
        self._check_size(event)
        if isinstance(event, yaml.ScalarEvent):
            self._check_scalar(event, parent, index)
        self.level += 1
        node = super().compose_node(parent, index)  # type: ignore[arg-type]  # PyYAML gives the key, or None
        self.level -= 1
        if event.anchor and not is_alias:
            self.sizes[event.anchor] = self.count - before
        return node

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        """Return a mapping node; a key that stands twice is an error, where PyYAML would silently take the last.

        Raises:
            yaml.MarkedYAMLError: a key stands twice, or a value below has a mistake; see `compose_node`.
        """
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            name = str(key.value)  # a key may itself be a list or mapping, which nothing of ours is called
            if name in lines:
                problem = f"the key {name!r} stands here and in line {lines[name]}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark, note="Keep one of the two.")
            lines[name] = key.start_mark.line + 1
        return node

    def _check_size(self, event: yaml.Event) -> None:
        if self.count > MOST_NODES:
            what = f"more than {MOST_NODES:,} keys and values, aliases expanded"
        elif self.level >= MOST_LEVELS and isinstance(event, yaml.CollectionStartEvent):
            what = TOO_DEEP
        elif isinstance(event, yaml.ScalarEvent) and len(event.value) > MOST_CHARS:
            what = f"a value has {len(event.value):,} characters, more than {MOST_CHARS:,}"
        else:
            return
        raise _mistake(event, what, TOO_LARGE)

    def _check_scalar(self, event: yaml.ScalarEvent, parent: yaml.Node | None, index: int | yaml.Node | None) -> None:
        at = cast("yaml.Mark", event.start_mark).index
        is_number = index is None and event.value.isdecimal()
        if is_number and isinstance(parent, yaml.MappingNode) and DECIMAL_COMMA.search(self.text, max(0, at - 2), at):
            whole = parent.value[-1][1].value
            raise _mistake(event, f"{whole},{event.value} is no number: write {whole}.{event.value}", NO_NUMBER)
        if event.implicit[0] and getattr(index, "value", "") not in AS_WRITTEN:
            _check_number(event)


def _mistake(event: yaml.Event, problem: str, remedy: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=cast("yaml.Mark", event.start_mark), note=remedy)


def _check_number(event: yaml.ScalarEvent) -> None:
    """Check that YAML reads a number as people do: YAML 1.1 has numbers to the base of 8 and 60, and 1_0 is 10.

    Raises:
        yaml.MarkedYAMLError: YAML reads another value.
    """
    if _OCTAL.fullmatch(event.value):
        taken, instead = int(event.value, 8), str(int(event.value))
        is_other = str(taken) != instead
    elif _SIXTIES.fullmatch(event.value) or _GAPS.fullmatch(event.value):
        if len(event.value) > LONGEST_NUMBER:
            return  # no number at all: the setting's own check says so
        taken = yaml.safe_load(event.value)
        instead, is_other = str(taken), taken != event.value
    else:
        return
    if is_other:
        problem = f"{event.value} is read as {taken}: write {instead}, or put quotes around a text"
        raise _mistake(event, problem, NO_NUMBER)
