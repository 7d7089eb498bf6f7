"""Numbered files that only one process can create, by link(2), which is atomic on every file system; see `claims`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from splatbatch.files import MOST_JSON_BYTES, names_in, open_descriptor, read_regular


def create_once(source: Path, target: Path) -> bool:
    """Link the file `source` to the name `target`; return whether this call created it, False if that name was taken.

    `source` must be on the disk already. Where links are impossible its content is copied into a new file. An error of
    link(2) after which `target` is a link to `source`, as on NFS, counts as success.

    Raises:
        OSError: neither a link nor a copy can be made.
    """
    try:
        os.link(source, target)
        return True
    except FileExistsError:
        return is_same(source, target)
    except OSError:
        # if NFS loses the answer, a link that was made is reported as an error
        return is_same(source, target) or _copied_once(source, target)


def is_same(source: Path, target: Path) -> bool:
    """Return whether both paths are names of one file; False if either cannot be read."""
    try:
        return source.samefile(target)
    except OSError:
        return False


def numbers_in(folder: str | Path, suffix: str = "") -> Iterator[int]:
    """Yield the numbers of the files called NUMBER + suffix in a folder, in no order; none if it cannot be read."""
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
