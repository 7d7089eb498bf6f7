"""Hashes of files and texts, and what tells one state of a file from another."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from stat import S_ISDIR
from typing import NamedTuple

from splatbatch.files import open_regular
from splatbatch.store.records.fingerprint import FileFact


class Stamp(NamedTuple):
    """What tells one state of a file from another; -1 bytes: it is not there."""

    num_bytes: int
    mtime_ns: int = 0
    number: int = 0
    """Its inode: a file that was renamed over another has one of its own."""


def stamp_of(path: str) -> Stamp:
    """Return size, time and number of a file as they are now."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - of thousands of patches
    except (OSError, ValueError):
        return Stamp(-1)
    return Stamp(stat.st_size, stat.st_mtime_ns, stat.st_ino)


def file_fact(path: str | Path) -> FileFact:
    """Return size and time of a file as they are now."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - of thousands of photographs
    except (OSError, ValueError):
        return FileFact(-1)
    return FileFact(0 if S_ISDIR(stat.st_mode) else stat.st_size, stat.st_mtime_ns)


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file; empty if it cannot be read."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return ""


def short_hash(text: str) -> str:
    """Return 16 hexadecimal digits that stand for a text."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
