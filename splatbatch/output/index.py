"""Cache of the manifests and ledgers that `status` has read: of thousands of patches only changed files are read again.

An entry counts as long as size, time and inode of its file are those of when it was read. An index that is missing,
torn, of another version or not writable costs time, but never changes a result.
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
"""Version of the index; raise it when its entries, or the fields read from manifests, change their meaning."""
LEAST_NEWS = 100
"""Number of manifests read anew from which on the index is written again."""
SETTLED_S = 10.0
"""Age from which on a file's time tells it from a later one: clocks differ, and file systems count in steps."""


class CachedResult(NamedTuple):
    """The fields of a manifest by which a splat is found up to date; see `FreshnessChecker._indexed`."""

    stamp: list[int]
    """Stamp of result.json when it was read."""
    accepted: list[int]
    """Stamp of the folder of the accepted records when it was read."""
    attempt: str
    splat: list[int | None]
    """Size and time of the splat file that was accepted."""
    recipes: list[str]
    """Hashes of the settings by which the splat is judged, as in the YAML and as they were in force."""
    model: dict[str, list[int]]
    """Size and time of each file of the model, by name."""
    settled: str
    """Key of the shared decisions and surroundings of the training; empty: they were not compared, or have changed."""
    others: str
    """Key in `Index.others` of the photographs, masks and other files."""


class Index:
    """Cached manifests, and a digest of the ledgers; read when made, and written by `keep`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        body = _load(path)
        self._briefs: dict[str, list[Any]] = body.get("patches", {})
        self.others: dict[str, dict[str, list[int]]] = body.get("others", {})
        """Sizes and times of photographs and masks, by the hash of the list: patches with the same ones share it."""
        self.ledger: Mapping[str, Any] = body.get("ledger", {})
        """Digest of the ledgers, from `TaskHistory.digest`."""
        self._num_new = 0

    def brief(self, name: str, stamp: Stamp, accepted: Stamp) -> CachedResult | None:
        """Return the cached manifest of a task; None if there is none, or the stamps of its files have changed."""
        found = self._briefs.get(name)
        is_same = found is not None and found[0] == [*stamp] and found[1] == [*accepted]
        return CachedResult(*found) if found is not None and is_same else None

    def learn(self, name: str, stamps: tuple[Stamp, Stamp], result: Result, settled: str = "") -> None:
        """Cache a manifest that was read; one without hashes, or younger than 10 s, is not cached.

        Args:
            name: name of the task.
            stamps: stamps of result.json and of the folder of the accepted records.
            result: the manifest.
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
        """Whether at least 100 manifests were cached since the index was written."""
        return self._num_new >= LEAST_NEWS

    def keep(self, ledger: Mapping[str, Any]) -> None:
        """Write the index with this digest of the ledgers; an error of writing is ignored."""
        text = json.dumps({"patches": self._briefs, "others": self.others, "ledger": ledger}, separators=(",", ":"))
        with contextlib.suppress(OSError):
            make_cache(self._path.parent)
            write_text(self._path, f"{_head(text.encode())}\n{text}")
        self._num_new = 0


def _head(body: bytes) -> str:
    return f"splatbatch index {VERSION} {hashlib.sha256(body).hexdigest()}"


def _load(path: Path) -> dict[str, Any]:
    """Return the content of the index; empty unless this version wrote it and its hash fits."""
    try:
        head, _, body = read_regular(path, MOST_JSON_BYTES).partition(b"\n")
    except OSError:
        return {}
    if head.decode(errors="replace") != _head(body):
        return {}
    found: dict[str, Any] = json.loads(body)
    return found
