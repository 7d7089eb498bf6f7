"""Numbers as names of photographs, for programs that take a letter of a name for something else.

COLMAP splits lists at blanks and takes # for a remark; OpenImageIO takes ? for the end of a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from splatbatch.scene.photos.folders import PHOTOGRAPHS


def numbers_of(names: Iterable[str]) -> list[str]:
    """Return a number for each photograph, as "0000012.jpg": COLMAP asks the suffix what a file is."""
    suffixes = (PurePosixPath(name).suffix for name in names)
    return [f"{place:07d}{one if one.lower() in PHOTOGRAPHS else ''}" for place, one in enumerate(suffixes)]


def link_numbers(photographs: Sequence[Path], folder: Path) -> list[str]:
    """Link photographs below a folder under their numbers, and return these.

    Raises:
        OSError: the folder cannot be written, or its file system knows no links.
    """
    folder.mkdir(parents=True, exist_ok=True)
    numbers = numbers_of(one.name for one in photographs)
    for number, path in zip(numbers, photographs, strict=True):
        (folder / number).symlink_to(path.absolute())
    return numbers
