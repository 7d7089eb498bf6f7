"""Headers of thousands of photographs by a few threads, and kept until a file's size or mtime changes."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

from splatbatch.caches import make_cache
from splatbatch.fields import whole
from splatbatch.files import read_json, write_text
from splatbatch.scene.photos.headers import read_known, unreadable
from splatbatch.scene.photos.photo import Header, Photo

_VERSION = 1  # raise it when headers are read differently: older caches are then ignored
_AT_ONCE = 64  # files per task: handing over single files costs more than reading them
THREADS = 8  # enough to hide the waiting of network file systems; parsing itself holds the interpreter's lock

Known = dict[str, list[Any]]
"""path -> [size in bytes, mtime in ns, width, height, orientation, traits]"""


class Headers:
    """The headers of photographs, each read once.

    A cache that is corrupt is ignored, and one that cannot be written is no error.
    """

    def __init__(self, cache: Path | None = None) -> None:
        self._cache = cache
        self._known = _load(cache)
        self._fresh: Known = {}
        self._headers: dict[str, Header] = {}

    def read(self, paths: Iterable[str]) -> None:
        """Read the headers of those files that were not read yet."""
        new = [path for path in dict.fromkeys(paths) if path not in self._headers]
        chunks = [new[start : start + _AT_ONCE] for start in range(0, len(new), _AT_ONCE)]
        if not chunks:
            return
        with warnings.catch_warnings(), ThreadPoolExecutor(THREADS, thread_name_prefix="headers") as pool:
            warnings.simplefilter("ignore")  # Pillow's: whatever matters about a file becomes its header
            read = chain.from_iterable(pool.map(lambda chunk: [_read(path, self._known) for path in chunk], chunks))
            for path, (header, entry) in zip(new, read, strict=True):
                self._headers[path] = header
                if entry and self._known.get(path) != entry:
                    self._fresh[path] = entry

    def of(self, path: str) -> Header:
        """Return the header of a file that was read."""
        return self._headers[path]

    def keep(self) -> None:
        """Bring the cache up to date."""
        if self._cache and self._fresh:
            with contextlib.suppress(OSError, ValueError):
                make_cache(self._cache.parent)
                write_text(self._cache, json.dumps({"version": _VERSION, "photos": self._known | self._fresh}))


def _read(path: str, known: Known) -> tuple[Header, list[Any] | None]:
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path per photograph would double the time
        entry = known.get(path)
        if entry and entry[:2] == [status.st_size, status.st_mtime_ns]:
            width, height, orientation, traits = entry[2:]
            return Photo(width, height, orientation, tuple(traits)), entry
        header = read_known(path, status)
    except OSError as error:
        return unreadable(error), None
    if not isinstance(header, Photo):  # a fault is looked at again each time: it may be mended without a trace
        return header, None
    stamp = [status.st_size, status.st_mtime_ns]
    return header, [*stamp, header.width, header.height, header.orientation, list(header.traits)]


def _load(cache: Path | None) -> Known:
    record = read_json(cache) if cache else None
    if not record or record.get("version") != _VERSION or not isinstance(record.get("photos"), dict):
        return {}
    return {path: entry for path, entry in record["photos"].items() if _is_entry(entry)}


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 6
        and all(whole(number) is not None for number in entry[:5])
        and isinstance(entry[5], list)
        and all(isinstance(trait, str) for trait in entry[5])
    )
