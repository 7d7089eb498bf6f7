"""Files of a split: their names, and how partition.json is found. Numpy is not loaded, so that `status` starts fast."""

from __future__ import annotations

from pathlib import Path

from splatbatch.errors import SceneError
from splatbatch.files import read_json, read_record

PARTITION, PATCH = "partition.json", "patch.json"
"""Files that `splatbatch split` writes: the first beside the patches, the second into the folder of each patch."""
SPLIT_READY = ".split-ready"
"""Folder beside the patches with new patches that are complete; there only while they are put in place.

If a split is interrupted then, the folder stays, and the next split puts the patches in place.
"""


def find_partition(root: Path) -> Path | None:
    """Return the path of the partition.json in a folder of patches; None if `splatbatch split` wrote none there.

    A damaged or unreadable file is returned too, since the error belongs to the call that reads the file.

    Raises:
        SceneError: a split was interrupted while it put patches in place.
        LaterFormatError: a later version of splatbatch wrote the file.
        PermissionError: the folder may not be entered.
    """
    if (root / SPLIT_READY / PARTITION).exists():
        message = f"{root}: a split was interrupted while its patches were put in place: some are new, others not"
        raise SceneError(message, "Run the same `splatbatch split` again: that puts the other patches in place.")
    path = root / PARTITION
    return path if is_of_split(path) else None


def is_of_split(path: Path) -> bool:
    """Return whether a file exists and `splatbatch split` wrote it; other programs use the name partition.json, too.

    True also for a file that cannot be read, or holds no whole JSON object.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the file.
        PermissionError: its folder may not be entered.
    """
    if not path.exists():
        return False
    found = read_json(path)
    return found is None or ("format" in found and read_record(path) is not None)
