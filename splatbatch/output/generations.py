"""Files that can be made once, link(2) being atomic everywhere, and the numbers in their names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from splatbatch.files import MOST_JSON_BYTES, names_in, open_descriptor, read_regular


def create_once(source: Path, target: Path) -> bool:
    """Give the file `source`, which must be on the disk, the name `target`; return whether that name was free."""
    try:
        os.link(source, target)
        return True
    except FileExistsError:
        return is_same(source, target)
    except OSError:
        # an answer of NFS that was lost is an error of a link that was made
        return is_same(source, target) or _copied_once(source, target)


def is_same(source: Path, target: Path) -> bool:
    """Return whether both names are of one file."""
    try:
        return source.samefile(target)
    except OSError:
        return False


def numbers_in(folder: str | Path, suffix: str = "") -> Iterator[int]:
    """Yield the numbers that stand before a suffix in the names of a folder; none if there is no folder."""
    for name in names_in(str(folder)):
        number = name.removesuffix(suffix)
        if name == f"{number}{suffix}" and number.isdecimal():
            yield int(number)


def _copied_once(source: Path, target: Path) -> bool:
    content = read_regular(source, MOST_JSON_BYTES)
    try:
        with open_descriptor(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
            os.write(descriptor, content)
            os.fsync(descriptor)
        return True
    except FileExistsError:
        return False
