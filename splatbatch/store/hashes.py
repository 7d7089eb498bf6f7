"""Hashes of files and texts, and what tells one state of a file from another."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from splatbatch.store.records.fingerprint import FileFact


def file_fact(path: str | Path) -> FileFact:
    """Return size and time of a file as they are now."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - of thousands of photographs
    except (OSError, ValueError):
        return FileFact(-1)
    return FileFact(0 if os.path.isdir(path) else stat.st_size, stat.st_mtime_ns)  # noqa: PTH112


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return ""


def short_hash(text: str) -> str:
    """Return 16 hexadecimal digits that stand for a text."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
