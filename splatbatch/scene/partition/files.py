"""Where a split leaves what it says: beside the patches, and in each of them; read without arrays, for `status`."""

from __future__ import annotations

from pathlib import Path

from splatbatch.errors import SceneError
from splatbatch.files import read_json, read_record

PARTITION, PATCH = "partition.json", "patch.json"
"""What `split` writes beside the patches, and in each of them."""
SPLIT_READY = ".split-ready"
"""Beside them: patches of a split that was interrupted while they were put in place."""


def find_partition(root: Path) -> Path | None:
    """Return the file of ours that says how the patches in a folder were cut, if any; its reader refuses a broken one.

    Raises:
        SceneError: a split was interrupted while it put patches in place.
    """
    if (root / SPLIT_READY / PARTITION).exists():
        message = f"{root}: a split was interrupted while its patches were put in place: some are new, others not"
        raise SceneError(message, "Run the same `splatbatch split` again: it finishes what is ready.")
    path = root / PARTITION
    return path if is_of_split(path) else None


def is_of_split(path: Path) -> bool:
    """Return whether a partition.json is one of ours, or what a crash has left of one; others write such files too.

    Raises:
        LaterFormatError: a later version wrote it.
    """
    if not path.exists():
        return False
    found = read_json(path)
    return found is None or ("format" in found and read_record(path) is not None)
