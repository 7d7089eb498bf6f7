"""Reads or copies part of a splat file; without memory mapping, since a mapped file that is truncated is fatal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from splatbatch.errors import OutputError
from splatbatch.files import MIB, open_regular, sync_folder, write_whole
from splatbatch.processes import available_mib
from splatbatch.publish.source import SourcePart
from splatbatch.splats.blocks import read_rows
from splatbatch.splats.ply import (
    Gaussians,
    degree_of,
    encode_header,
    gaussians_of,
    mode_comments,
    names_at,
    offset_comments,
    read_header,
)

AT_ONCE = 5
"""Memory that converting a part of a splat takes, as a multiple of the part's size in its file."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the splat file that is read in the enclosed block, if it cannot be read.

    Raises:
        OutputError: the block raises OSError, or ValueError: the file is not a splat, or is truncated.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        raise OutputError(f"{path}: {error}", "Train the patch or merge the scene again.") from error


def read_part(part: SourcePart) -> Gaussians:
    """Return the Gaussians of a part of a splat file, in the order of the file.

    Raises:
        OutputError: the file cannot be read, is not a splat, or is truncated; or AT_ONCE times the part's size exceeds
            the available memory.
    """
    with reading(part.path):
        header = read_header(part.path)
    width = len(header.properties)
    needed, free = AT_ONCE * 4 * width * part.num_gaussians // MIB, available_mib()
    if needed > free:
        message = (
            f"{part.name}: {part.num_gaussians:,} Gaussians need about {needed:,} MiB of memory; {free:,} MiB are free"
        )
        raise OutputError(message, "Cut the scene into smaller patches: splatbatch split.")
    table = np.empty((part.num_gaussians, width), np.float32)
    with reading(part.path):
        for start, rows in read_rows(part.path, header, (), (part.start, part.start + part.num_gaussians)):
            table[start - part.start :][: len(rows)] = rows
        return gaussians_of(table, header)


def is_whole(part: SourcePart) -> bool:
    """Return whether a part is the whole of its file, and the file has the standard properties in standard order.

    Raises:
        OutputError: the file cannot be read, or is not a splat.
    """
    with reading(part.path):
        header = read_header(part.path)
        return part.num_gaussians == header.num_gaussians and header.properties == names_at(degree_of(header))


def copy_part(part: SourcePart, target: Path) -> None:
    """Write the Gaussians of a part to a PLY of their own, whole or not at all; an earlier file is replaced.

    Values are unchanged. The new header keeps step, offset and antialiasing mode of the old one.

    Raises:
        ValueError: the file of the part is not a splat, or is truncated.
        OSError: a file cannot be read or written.
    """
    header = read_header(part.path)
    step = [] if header.step is None else [f"splatbatch step {header.step}"]
    said = [*step, *offset_comments(header.offset), *mode_comments(header.antialiased)]

    def write(file: BinaryIO) -> None:
        file.write(encode_header(part.num_gaussians, header.properties, said))
        own = (part.start, part.start + part.num_gaussians)
        file.writelines(rows.data for _, rows in read_rows(part.path, header, (), own))

    write_whole(target, write)


def folder_bytes(place: Path) -> int:
    """Return the size in bytes of a file, or of all files below a folder together; 0 if the path does not exist."""
    return sum(one.stat().st_size for one in ([place] if place.is_file() else place.rglob("*")) if one.is_file())


def put(aside: Path, place: Path) -> None:
    """Move a file or folder to its place on the same disk, and replace an earlier one there; contents are synced first.

    Args:
        aside: the file or folder to move.
        place: the path to move to, whose parent folder exists. An earlier folder there is removed only after the move.

    Raises:
        OSError: the contents cannot be synced, or the move failed; an earlier file or folder is still in place.
    """
    for one in [aside] if aside.is_file() else sorted(aside.rglob("*")):
        if one.is_file():
            with open_regular(one) as file:
                os.fsync(file.fileno())
    before = aside.with_name(f"{aside.name}.before")
    if aside.is_dir() and place.exists():
        place.rename(before)
    try:
        aside.replace(place)
    except OSError:
        if before.exists():
            before.rename(place)
        raise
    sync_folder(place.parent)
    shutil.rmtree(before, ignore_errors=True)
