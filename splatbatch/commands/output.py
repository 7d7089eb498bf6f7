"""How commands print: JSON for programs, tables for people, no escape codes into a pipe."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

PIPE_WIDTH = 200
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[]PX^_]|[\x9d\x90])[^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]"
)
"""Of ECMA-48: control sequences (colours, cursor), control strings (titles, links, the clipboard), other escapes."""


def open_console() -> Console:
    """Return a console on stdout; a pipe gets no escape codes, whatever FORCE_COLOR claims, and no cut columns."""
    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, force_terminal=is_terminal, width=None if is_terminal else PIPE_WIDTH)


def plain(words: str) -> str:
    """Return what a program wrote as text alone: nothing in it that a terminal would obey, but tabs and line ends."""
    words = _SEQUENCE.sub("", words).replace("\r\n", "\n").replace("\r", "\n")
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "" for letter in words)


def print_json(record: Mapping[str, Any]) -> None:
    """Print a record as JSON on stdout."""
    sys.stdout.write(json.dumps(record, indent=1, default=str) + "\n")
