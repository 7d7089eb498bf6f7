"""The rows of an accepted splat, a few thousand at a time: read once, seen to be whole, sound and what was accepted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from io import BufferedReader

import numpy as np

from splatbatch.config import NO_OFFSET, Offset
from splatbatch.errors import OutputError
from splatbatch.files import open_regular
from splatbatch.plain_text import spell_place
from splatbatch.splats.check import Flaws, flaws_of
from splatbatch.splats.export import ChangedOnDisk, Source
from splatbatch.splats.ply import LARGEST_COORDINATE, FloatArray, SplatHeader, degree_of, read_header

ROWS_AT_ONCE = 1 << 15
"""Of 8 MB at most: a merge needs no more memory for ten thousand patches than for two."""
AGAIN = "Train it again: splatbatch train {name}."


def header_of(source: Source, offset: Offset) -> SplatHeader:
    """Return the header of a splat that is to be merged with others in a frame.

    Raises:
        OutputError: it is no splat that could be, or lies in another frame.
    """
    try:
        header, size = read_header(source.path), source.path.stat().st_size
        degree_of(header)
    except (OSError, ValueError) as error:
        raise _unusable(source, str(error)) from error
    if size != header.file_bytes:
        raise _unusable(source, f"cut: {size} of {header.file_bytes} bytes")
    if header.offset not in (NO_OFFSET, offset):  # other programs write none, whatever frame they were given
        there, here = spell_place(header.offset), spell_place(offset)
        raise _unusable(source, f"it lies in another frame: offset {there}, the others {here}")
    return header


def read_rows(source: Source, header: SplatHeader) -> Iterator[FloatArray]:
    """Yield all rows [n, properties] of a splat; each piece is overwritten by the next.

    Raises:
        OutputError: it is not the splat that was accepted, is cut, or cannot be rendered; what was taken of it before
            is worth nothing.
    """
    digest, flaws = hashlib.sha256(), Flaws()
    width = len(header.properties)
    buffer = np.empty((min(ROWS_AT_ONCE, header.num_gaussians), width), dtype="<f4")
    with open_regular(source.path) as file:
        digest.update(file.read(header.header_bytes))
        for start in range(0, header.num_gaussians, ROWS_AT_ONCE):
            rows = buffer[: min(ROWS_AT_ONCE, header.num_gaussians - start)]
            if _fill(file, rows.data.cast("B")) < rows.nbytes:
                raise _unusable(source, "cut: it became shorter while it was read")
            digest.update(rows.data)
            flaws += flaws_of(rows, header)
            yield rows
    if source.sha256 and digest.hexdigest() != source.sha256:
        raise ChangedOnDisk(source.name, "it is not the splat that was accepted")
    if flaws != Flaws():
        num, far = f"of {header.num_gaussians} Gaussians", f"{flaws.out_of_reach} lie beyond {LARGEST_COORDINATE:g}"
        raise _unusable(source, f"{flaws.not_finite} {num} are not finite, {flaws.unturned} have no rotation, {far}")


def _fill(file: BufferedReader, target: memoryview) -> int:
    """Read until a buffer is full or the file ends; return how many bytes there were."""
    filled = 0
    while filled < len(target) and (num := file.readinto(target[filled:])):
        filled += num
    return filled


def _unusable(source: Source, why: str) -> OutputError:
    return OutputError(f"{source.name}: {source.path}: {why}", AGAIN.format(name=source.name))
