"""Reads the points of a PLY file, text or binary: positions and colours of its vertices.

The number of points that a binary file claims is checked against the file's size before memory is taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from splatbatch.errors import SceneError
from splatbatch.scene.colmap.files import opened
from splatbatch.scene.imports.capture import ImportLog, PointCloud

MOST_POINTS = 2_000_000
"""Most points that are taken from a file, evenly spread over it."""
LARGEST_MIB = 4096
_LONGEST_HEADER = 1 << 16  # bytes
_REMEDY = "Export the points again, as a PLY file with x, y, z (and red, green, blue) for each vertex."
_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
    "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
    "double": "f8", "float64": "f8",
}  # fmt: skip
_COLORS = (("red", "green", "blue"), ("r", "g", "b"), ("diffuse_red", "diffuse_green", "diffuse_blue"))
_GREY = 128


def read_cloud(path: Path, log: ImportLog) -> PointCloud:
    """Return the points of a PLY file in its coordinates; without `ids`.

    Points without a finite position are left out, and at most `MOST_POINTS` are returned. Points without colours get
    grey. Colours of type float whose largest is at most 1 are taken for shares of 255.

    Args:
        path: the file.
        log: record of the import, to which such changes are added.

    Raises:
        SceneError: the file is missing, cannot be read, is cut or larger than 4096 MiB, or no PLY file. Or its first
            element is not vertices with positions, or they have a list or a property twice.
    """
    with opened(path, LARGEST_MIB) as (file, size):
        form, count, columns = _header(path, file)
        if form == "ascii":
            table = _ascii(path, file, count, list(columns))
        else:
            order = ">" if form == "binary_big_endian" else "<"
            kind = np.dtype([(name, order + code) for name, code in columns.items()])
            if not 0 <= count * kind.itemsize <= size - file.tell():
                raise SceneError(f"{path}: the file is cut: {count:,} points do not fit into {size:,} bytes", _REMEDY)
            table = np.frombuffer(file.read(count * kind.itemsize), kind)
    xyz = np.stack([table[axis].astype(np.float64) for axis in "xyz"], axis=1)
    finite = np.isfinite(xyz).all(axis=1)
    if not finite.all():
        log.convert(
            f"{path.name}: {int((~finite).sum()):,} of {len(xyz):,} points have no finite position and were left out"
        )
    rgb, has_colors = _colors(table, columns)
    if not has_colors:
        log.convert(f"{path.name}: the points have no colours and start grey")
    xyz, rgb = xyz[finite], rgb[finite]
    if len(xyz) > MOST_POINTS:
        log.convert(f"{path.name}: of {len(xyz):,} points {MOST_POINTS:,}, evenly spread over the file, were taken")
        taken = np.arange(MOST_POINTS) * len(xyz) // MOST_POINTS
        xyz, rgb = xyz[taken], rgb[taken]
    return PointCloud(xyz, rgb, str(path))


def _header(path: Path, file: BinaryIO) -> tuple[str, int, dict[str, str]]:
    """Read a header; return the form of the file, the number of vertices, and the types of their columns by name."""
    head = file.read(_LONGEST_HEADER)
    end = re.search(rb"\bend_header[ \t]*\r?\n", head)
    if not head.startswith(b"ply") or end is None:
        raise SceneError(f"{path}: no PLY file (its header does not begin with ply and end with end_header)", _REMEDY)
    lines = [line.split() for line in head[: end.start()].decode("ascii", errors="replace").splitlines()]
    forms = [line[1] for line in lines if line[:1] == ["format"] and len(line) > 1]
    if not forms or forms[0] not in ("ascii", "binary_little_endian", "binary_big_endian"):
        raise SceneError(f"{path}: format {forms[0] if forms else 'missing'} is no format of PLY", _REMEDY)
    elements = [index for index, line in enumerate(lines) if line[:1] == ["element"]]
    if not elements or lines[elements[0]][1:2] != ["vertex"]:
        raise SceneError(f"{path}: the first element in the header is not vertex", _REMEDY)
    try:
        count = int(lines[elements[0]][2])
    except (IndexError, ValueError) as error:
        raise SceneError(f"{path}: the header has no number of vertices", _REMEDY) from error
    until = elements[1] if len(elements) > 1 else len(lines)
    file.seek(end.end())
    return forms[0], count, _columns(path, [one for one in lines[elements[0] + 1 : until] if one[:1] == ["property"]])


def _columns(path: Path, properties: list[list[str]]) -> dict[str, str]:
    if any(len(line) != 3 or line[1] not in _TYPES for line in properties):
        raise SceneError(f"{path}: a property of the vertices is a list, or of no known type", _REMEDY)
    names = [line[2] for line in properties]
    if not set("xyz") <= set(names) or len(set(names)) < len(names):
        raise SceneError(f"{path}: the vertices lack x, y or z, or have a property twice ({', '.join(names)})", _REMEDY)
    return {line[2]: _TYPES[line[1]] for line in properties}


def _ascii(path: Path, file: BinaryIO, count: int, names: Sequence[str]) -> NDArray[np.void]:
    rows = []
    for number in range(count):
        fields = file.readline(_LONGEST_HEADER).split()
        try:
            rows.append(tuple(float(field) for field in fields[: len(names)]))
        except ValueError as error:
            raise SceneError(f"{path}: point {number + 1} is not a row of numbers", _REMEDY) from error
        if len(fields) < len(names):
            raise SceneError(f"{path}: the file is cut: it ends inside point {number + 1} of {count:,}", _REMEDY)
    return np.array(rows, dtype=[(name, "f8") for name in names])


def _colors(table: NDArray[np.void], types: dict[str, str]) -> tuple[NDArray[np.uint8], bool]:
    for triple in _COLORS:
        if set(triple) <= set(types):
            values = np.stack([table[name].astype(np.float64) for name in triple], axis=1)
            is_share = types[triple[0]].startswith("f") and len(values) and np.nanmax(values) <= 1
            values = np.nan_to_num(values * 255 if is_share else values)
            return np.clip(np.round(values), 0, 255).astype(np.uint8), True
    return np.full((len(table), 3), _GREY, np.uint8), False
