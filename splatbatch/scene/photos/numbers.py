"""Numbered names for photographs, for programs that misread some characters of a file name.

COLMAP splits lists at blanks and takes # for a comment; OpenImageIO takes ? for the end of a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from splatbatch.scene.photos.folders import PHOTOGRAPHS


def numbers_of(names: Iterable[str]) -> list[str]:
    """Return a numbered name for each photograph, as "0000012.jpg"; COLMAP needs the suffix to know the file type."""
    suffixes = (PurePosixPath(name).suffix for name in names)
    return [f"{place:07d}{one if one.lower() in PHOTOGRAPHS else ''}" for place, one in enumerate(suffixes)]


def link_numbers(photographs: Sequence[Path], folder: Path) -> list[str]:
    """Link photographs into a folder under numbered names, and return these in order.

    Raises:
        OSError: the folder cannot be written, or its file system has no links.
    """
    folder.mkdir(parents=True, exist_ok=True)
    numbers = numbers_of(one.name for one in photographs)
    for number, path in zip(numbers, photographs, strict=True):
        (folder / number).symlink_to(path.absolute())
    return numbers
