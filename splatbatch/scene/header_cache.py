"""Headers of thousands of photographs by a few threads, and kept until a file's size or mtime changes."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

from splatbatch.files import read_json, write_text
from splatbatch.scene.headers import read_known, unreadable
from splatbatch.scene.photo import Header, Photo

_VERSION = 1  # raise it when headers are read differently: older caches are then ignored
_AT_ONCE = 64  # files per task: handing over single files costs more than reading them
THREADS = 8  # enough to hide the waiting of network file systems; parsing itself holds the interpreter's lock

Known = dict[str, list[Any]]
"""path -> [size in bytes, mtime in ns, width, height, orientation, traits]"""


def read_headers(paths: Sequence[str], cache: Path | None = None) -> dict[str, Header]:
    """Return the header of every file; `cache` is read first and brought up to date.

    A cache that is corrupt is ignored, and one that cannot be written is no error.
    """
    known = _load(cache)
    chunks = [paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE)]
    with warnings.catch_warnings(), ThreadPoolExecutor(THREADS, thread_name_prefix="headers") as pool:
        warnings.simplefilter("ignore")  # Pillow's: whatever matters about a file becomes its header
        read = list(chain.from_iterable(pool.map(lambda chunk: [_read(path, known) for path in chunk], chunks)))
    fresh = {path: entry for path, (_, entry) in zip(paths, read, strict=True) if entry and known.get(path) != entry}
    if cache and fresh:
        _store(cache, known | fresh)
    return {path: header for path, (header, _) in zip(paths, read, strict=True)}


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
        and all(isinstance(number, int) for number in entry[:5])
        and isinstance(entry[5], list)
    )


def _store(cache: Path, known: Known) -> None:
    with contextlib.suppress(OSError, ValueError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_text(cache, json.dumps({"version": _VERSION, "photos": known}))
