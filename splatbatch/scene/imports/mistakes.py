"""The mistakes of a source, all at once: each with its place and value, and with the remedy that its kind has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from splatbatch.errors import SceneError
from splatbatch.plain_text import counted
from splatbatch.scene.colmap.files import shown

MOST_OF_A_KIND = 8
"""Places named of one kind of mistake before "and 37 more"."""
_LONGEST_VALUE = 60


class Mistakes:
    """What is wrong with a source; collected, then raised together."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self._by_remedy: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_remedy.values()))

    def add(self, where: str, what: str, remedy: str) -> None:
        """Note a mistake: its place in the source, what is wrong there, and what to do."""
        line = f"{shown(where)}: {' '.join(shown(what).split())}"
        self._by_remedy.setdefault(remedy, {})[line] = None  # what all frames share is told once

    def stop(self) -> None:
        """Raise all mistakes, if there are any.

        Raises:
            SceneError: there are.
        """
        if not self._by_remedy:
            return
        lines = [f"{self.source}: {counted(len(self), 'mistake')}, nothing was written"]
        for remedy, found in self._by_remedy.items():
            lines += list(found)[:MOST_OF_A_KIND]
            if len(found) > MOST_OF_A_KIND:
                lines.append(f"… and {len(found) - MOST_OF_A_KIND:,} more of this kind")
            lines.append(f"→ {remedy}")
        raise SceneError("\n  ".join(lines))


def spelt(value: Any) -> str:
    """Return a value as an error quotes it: short, on one line."""
    words = json_word(value) if value is None or isinstance(value, bool) else " ".join(str(value).split())
    text = repr(value) if isinstance(value, str) else words
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def json_word(value: bool | None) -> str:
    """Return null, true or false, as they stand in a JSON file."""
    return {None: "null", True: "true", False: "false"}[value]


def why_no_number(value: Any) -> str:
    """Return what is wrong with what should be a number of a lens."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return "is beyond what any lens has" if is_number else "is no finite number"


def some(names: Sequence[str], most: int = 3) -> str:
    """Return some names in words: "a, b, c and 12 others"."""
    more = f" and {counted(len(names) - most, 'other')}" if len(names) > most else ""
    return f"{', '.join(map(shown, names[:most]))}{more}"


def unknown_keys(given: Mapping[str, Any], known: frozenset[str]) -> list[str]:
    """Return the keys that nothing is made of, sorted."""
    return sorted(key for key in given if key not in known)
