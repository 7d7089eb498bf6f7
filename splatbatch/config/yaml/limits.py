"""YAML read within bounds: how large, how deep, how much its aliases stand for; checked while it is composed."""

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
NO_NUMBER = "Quote what is no number."
LONGEST_NUMBER = 40
DECIMAL_COMMA = re.compile(r"[0-9],$")
"""What stands before the key 00016 of {means: 0,00016}, which is two keys to YAML."""
_SIXTIES = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_GAPS = re.compile(r"[-+]?(0[xb])?[0-9a-fA-F]*[0-9.]_[0-9a-fA-F_]*(\.[0-9_]*)?")
_OCTAL = re.compile(r"[-+]?0[0-7_]+")

TOO_LARGE = "A configuration is some lines of text: is this the right file?"
"""The remedy for a YAML that is too large for a configuration."""

Read = tuple[yaml.Node | None, Any]
"""The nodes, with their lines, and the values."""


def read_file(path: Path) -> str:
    """Return the text of a YAML file; "-" is standard input.

    Raises:
        OSError, ValueError: it cannot be read.
        ConfigError: it is too long for a configuration.
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
    """Return what came on standard input; it comes once, and some commands look twice."""
    return sys.stdin.buffer.read(MOST_BYTES + 1)


def read_text(text: str) -> Read:
    """Return what a YAML holds.

    Raises:
        yaml.YAMLError: it is none, or not what its author means; then `note` is the remedy.
        ValueError: a value is none, such as a day that there is not.
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
    """PyYAML's composer over the events of its fast or slow parser; it refuses what its author cannot mean.

    That is a YAML too large for a configuration, and an alias of what it stands in. So is a key that stands twice in a
    mapping, and a number that YAML reads as another. Each is a `yaml.MarkedYAMLError` whose `note` is the remedy.
    """

    def __init__(self, text: str, parser: yaml.SafeLoader) -> None:
        for base in (Composer, SafeConstructor, Resolver):
            base.__init__(self)
        self.check_event, self.peek_event, self.get_event = parser.check_event, parser.peek_event, parser.get_event
        self.text = text
        self.count = self.level = 0
        self.sizes: dict[str | None, int] = {}
        """Nodes below each anchor, itself included; an anchor that is not here yet is still open."""

    def compose_node(self, parent: yaml.Node | None, index: int | yaml.Node | None) -> yaml.Node | None:
        """Compose one node; what an alias stands for is counted each time."""
        event: yaml.NodeEvent = self.peek_event()  # type: ignore[no-untyped-call]
        before, is_alias = self.count, isinstance(event, yaml.AliasEvent)
        if is_alias and event.anchor in self.anchors and event.anchor not in self.sizes:
            raise _mistake(event, f"*{event.anchor} holds itself", "Remove the alias.")
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
        """Compose a mapping whose keys differ: YAML takes the last of equal ones, and hides the mistake."""
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            name = str(key.value)  # a key may itself be a list or mapping, which nothing of ours is called
            if name in lines:
                problem = f"{name!r} stands here and in line {lines[name]}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark, note="Keep one of the two.")
            lines[name] = key.start_mark.line + 1
        return node

    def _check_size(self, event: yaml.Event) -> None:
        if self.count > MOST_NODES:
            what = f"more than {MOST_NODES:,} keys and values, what aliases stand for counted each time"
        elif self.level >= MOST_LEVELS and isinstance(event, yaml.CollectionStartEvent):
            what = TOO_DEEP
        elif isinstance(event, yaml.ScalarEvent) and len(event.value) > MOST_CHARS:
            what = f"a value of {len(event.value):,} characters"
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
    """Check that a number is the one that people read: YAML 1.1 has numbers to the base of 8 and 60, and 1_0 is 10.

    Raises:
        yaml.MarkedYAMLError: it is another.
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
        problem = f"{event.value} is read as {taken}: write {instead}, or quote what is no number"
        raise _mistake(event, problem, NO_NUMBER)
