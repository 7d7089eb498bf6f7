"""Rows that a merged splat has already: copied by the kernel from one file to the next, without being read here."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from splatbatch.files import MIB, open_regular
from splatbatch.splats.ply import names_at, read_header

NOT_HERE = frozenset({errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF, errno.ETXTBSY})
"""What the kernel says where it cannot copy from file to file: other file systems, older kernels, some shares."""


@dataclass(frozen=True)
class Written:
    """What a part has become in a merged splat."""

    name: str
    start: int
    """Its first Gaussian there."""
    num_gaussians: int
    """It has there."""
    num_read: int
    """Of its whole splat."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """By cleaning, by rule; what is neither here nor there lies outside its region."""
    sha256: str = ""
    """Of its rows as they lie there; empty: nobody knows."""
    is_taken_over: bool = False
    """From the merged splat that was there before."""


@dataclass(frozen=True)
class Earlier:
    """A merged splat that is to be replaced."""

    path: Path
    parts: Mapping[str, Written]
    """By key: all that decides which rows a part has."""

    def fits(self, degree: int) -> bool:
        """Return whether its rows are those of a splat with harmonics up to this degree, and all there."""
        try:
            header, size = read_header(self.path), self.path.stat().st_size
        except (OSError, ValueError):
            return False
        are_there = all(
            0 <= one.start <= one.start + one.num_gaussians <= header.num_gaussians for one in self.parts.values()
        )
        return size == header.file_bytes and header.properties == names_at(degree) and are_there

    def holds(self, part: Written) -> bool:
        """Return whether the rows of a part are those that were merged; all of them are read.

        Raises:
            OSError: one of them cannot be read.
        """
        header, digest = read_header(self.path), hashlib.sha256()
        row_bytes = 4 * len(header.properties)
        with open_regular(self.path) as file:
            file.seek(header.header_bytes + part.start * row_bytes)
            left = part.num_gaussians * row_bytes
            while left and (chunk := file.read(min(MIB, left))):
                digest.update(chunk)
                left -= len(chunk)
        return digest.hexdigest() == part.sha256

    def damaged(self) -> tuple[str, ...]:
        """Return the parts whose rows are not those that were merged, or cannot be read."""
        return tuple(one.name for one in self.parts.values() if one.sha256 and not self._is_whole(one))

    def _is_whole(self, part: Written) -> bool:
        try:
            return self.holds(part)
        except (OSError, ValueError):
            return False

    def copy(self, part: Written, target: BinaryIO) -> None:
        """Append the rows of a part to another splat of the same form.

        Raises:
            OSError: one of them cannot be read or written.
        """
        header = read_header(self.path)
        row_bytes = 4 * len(header.properties)
        with open_regular(self.path) as file:
            at = header.header_bytes + part.start * row_bytes
            copy_bytes(file.fileno(), at, part.num_gaussians * row_bytes, target)


def copy_bytes(source: int, start: int, num: int, target: BinaryIO) -> None:
    """Append bytes of an open file to another, inside the kernel where that can: file systems may share the blocks.

    Raises:
        OSError: the source is shorter, or the target cannot be written.
    """
    target.flush()
    end, at = start + num, start
    while at < end:
        moved = _copy_in_kernel(source, at, end - at, target.fileno())
        if moved is None:
            moved = os.write(target.fileno(), os.pread(source, min(MIB, end - at), at))
        if not moved:
            raise OSError(errno.EIO, "became shorter while it was read")
        at += moved
    target.seek(0, os.SEEK_END)


def _copy_in_kernel(source: int, start: int, num: int, target: int) -> int | None:
    """Return how many bytes the kernel has copied; None if it does not do that here."""
    if not hasattr(os, "copy_file_range"):
        return None
    try:
        return os.copy_file_range(source, target, num, offset_src=start)
    except OSError as error:
        if error.errno in NOT_HERE:
            return None
        raise
