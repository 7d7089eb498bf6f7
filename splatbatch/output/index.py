"""What `status` has read of manifests and ledgers, kept: of thousands of patches only what changed is read again.

The files stay the truth: an entry counts as long as size, time and number of its file are those of when it was read.
An index that is missing, torn, of another version or that cannot be written costs time, and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from splatbatch.caches import make_cache
from splatbatch.files import MOST_JSON_BYTES, read_regular, write_text
from splatbatch.hashing import Stamp, hash_of
from splatbatch.output.records.fingerprint import MODEL
from splatbatch.output.records.result import Result

VERSION = 6
"""Of the index; raise it when its entries, or what is read from manifests, mean something else."""
LEAST_NEWS = 100
"""So many manifests that were read anew are worth writing the index again."""
SETTLED_S = 10.0
"""So old a file must be before its time tells it from a later one: clocks differ, and file systems count in steps."""


class CachedResult(NamedTuple):
    """What a manifest says of a splat, as far as it tells whether that is fresh."""

    stamp: list[int]
    """Of result.json when it was read."""
    accepted: list[int]
    """Of the folder of the accepted records."""
    attempt: str
    splat: list[int | None]
    """Size and time of the file that was accepted."""
    recipes: list[str]
    """Hashes of the settings it is held against, as written and as they were in force."""
    model: dict[str, list[int]]
    """Size and time of the files of its model, by their names."""
    settled: str
    """Under which records of the batch it was trained; empty: that was not looked at, or has changed."""
    others: str
    """Which of `Index.others` the rest of its files are."""


class Index:
    """Manifests that were read before, in brief, and what the ledger said."""

    def __init__(self, path: Path) -> None:
        self._path = path
        body = _load(path)
        self._briefs: dict[str, list[Any]] = body.get("patches", {})
        self.others: dict[str, dict[str, list[int]]] = body.get("others", {})
        """Sizes and times of photographs and masks, by their hash: patches that have the same ones share an entry."""
        self.ledger: Mapping[str, Any] = body.get("ledger", {})
        """What `TaskHistory.digest` made."""
        self._num_new = 0

    def brief(self, name: str, stamp: Stamp, accepted: Stamp) -> CachedResult | None:
        """Return what a manifest says; None if it is not known, or another one counts by now."""
        found = self._briefs.get(name)
        is_same = found is not None and found[0] == [*stamp] and found[1] == [*accepted]
        return CachedResult(*found) if found is not None and is_same else None

    def learn(self, name: str, stamps: tuple[Stamp, Stamp], result: Result, settled: str = "") -> None:
        """Take in a manifest that was read; one without hashes, or that was written a moment ago, is read each time.

        Args:
            name: of its task.
            stamps: of result.json, and of the folder of the accepted records.
            result: what it says.
            settled: see `CachedResult`.
        """
        held, splat = result.held_against, result.splat
        newest_ns = max(stamp.mtime_ns for stamp in stamps)
        if not splat.sha256 or not held.files or not newest_ns < (time.time() - SETTLED_S) * 1e9:
            return
        facts = {key: [fact.num_bytes, fact.mtime_ns] for key, fact in held.files.items()}
        model = {key.removeprefix(MODEL): fact for key, fact in facts.items() if key.startswith(MODEL)}
        others = {key: fact for key, fact in facts.items() if not key.startswith(MODEL)}
        hash_of_others = hash_of(others)
        self.others.setdefault(hash_of_others, others)
        recipes = [one for one in (held.recipe, held.effective) if one]
        self._briefs[name] = [
            *CachedResult(
                [*stamps[0]],
                [*stamps[1]],
                result.attempt,
                [splat.bytes, splat.mtime_ns],
                recipes,
                model,
                settled,
                hash_of_others,
            )
        ]
        self._num_new += 1

    @property
    def has_news(self) -> bool:
        """Whether so much of it is new that it is worth writing."""
        return self._num_new >= LEAST_NEWS

    def keep(self, ledger: Mapping[str, Any]) -> None:
        """Write the index; a folder that cannot be written is none the worse."""
        text = json.dumps({"patches": self._briefs, "others": self.others, "ledger": ledger}, separators=(",", ":"))
        with contextlib.suppress(OSError):
            make_cache(self._path.parent)
            write_text(self._path, f"{_head(text.encode())}\n{text}")
        self._num_new = 0


def _head(body: bytes) -> str:
    return f"splatbatch index {VERSION} {hashlib.sha256(body).hexdigest()}"


def _load(path: Path) -> dict[str, Any]:
    """Return what was kept; nothing unless every byte of it is as this version wrote it."""
    try:
        head, _, body = read_regular(path, MOST_JSON_BYTES).partition(b"\n")
    except OSError:
        return {}
    if head.decode(errors="replace") != _head(body):
        return {}
    found: dict[str, Any] = json.loads(body)
    return found
