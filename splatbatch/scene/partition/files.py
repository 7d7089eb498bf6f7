"""Files of a split: their names, and how they are found. Without numpy, so that `status` starts fast."""

from __future__ import annotations

from pathlib import Path

from splatbatch.errors import SceneError
from splatbatch.files import read_json, read_record

PARTITION, PATCH = "partition.json", "patch.json"
"""Files of `split`: beside the patches, and in each patch."""
SPLIT_READY = ".split-ready"
"""Folder beside the patches that holds those of an interrupted split, ready to be put in place."""


def find_partition(root: Path) -> Path | None:
    """Return the partition.json of a folder of patches; None if it has none of `splatbatch split`.

    A damaged file is returned too; reading it raises the error.

    Raises:
        SceneError: a split was interrupted while it put patches in place.
    """
    if (root / SPLIT_READY / PARTITION).exists():
        message = f"{root}: a split was interrupted while its patches were put in place: some are new, others not"
        raise SceneError(message, "Run the same `splatbatch split` again: it finishes what is ready.")
    path = root / PARTITION
    return path if is_of_split(path) else None


def is_of_split(path: Path) -> bool:
    """Return whether a file is a partition.json of `splatbatch split`, damaged or not; other programs use the name too.

    Raises:
        LaterFormatError: a later version wrote it.
    """
    if not path.exists():
        return False
    found = read_json(path)
    return found is None or ("format" in found and read_record(path) is not None)
