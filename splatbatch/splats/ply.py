"""The splat file: 3DGS PLY (Kerbl 2023), binary little endian, in COLMAP's axes and units.

    x y z, f_dc_0..2, f_rest_0..3K-1 (channel by channel), opacity (logit), scale_0..2 (log), rot_0..3 (w x y z)

The normals `nx ny nz`, which the first implementation of 3DGS also writes, are left out, as gsplat does: readers find
properties by name. On reading, properties may be in any order, and further float properties are ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from splatbatch.config import NO_OFFSET
from splatbatch.files import open_regular, write_whole
from splatbatch.scene.colmap.types import triple
from splatbatch.scene.rotations import from_quats

FloatArray = npt.NDArray[np.float32]
MOST_HEADER_BYTES = 65536
HIGHEST_DEGREE = 3
"""Highest degree of the spherical harmonics that the rasterisers of this program and of others support."""
CHANNELS = 3
LARGEST_COORDINATE = 1e18
"""Largest absolute coordinate of a Gaussian; of larger ones a squared distance would be infinite in float32."""
_OFFSET = re.compile(r"^comment splatbatch offset (\S+) (\S+) (\S+)$", re.MULTILINE)
_MODE = re.compile(r"^comment (?:splatrendermode: (default|mip)|antialiased ([01]))\s*$", re.MULTILINE | re.IGNORECASE)
_STEP = re.compile(r"^comment splatbatch step (\d+)(?: of (\d+), stopped early)?$", re.MULTILINE)


@dataclass(frozen=True)
class Gaussians:
    """The parameters of N Gaussians before activation, as a splat file stores them, in host memory.

    Shapes: means [N, 3] in the units of the COLMAP model; scales [N, 3], logarithms of standard deviations;
    quats [N, 4], w x y z, any length but 0; opacities [N], logits; sh0 [N, 3]; shN [N, K, 3] with
    K = (degree + 1)^2 - 1. `len()` is N.
    """

    means: FloatArray
    scales: FloatArray
    quats: FloatArray
    opacities: FloatArray
    sh0: FloatArray
    shN: FloatArray

    def __len__(self) -> int:
        return len(self.means)


@dataclass(frozen=True)
class SplatHeader:
    """Contents of the header of a splat file, with the values that this program writes as comments."""

    num_gaussians: int
    properties: tuple[str, ...]
    """Names of the properties of a Gaussian, in the order of the file."""
    header_bytes: int
    """Size of the header in bytes, at which the rows begin."""
    step: int | None
    """Number of training steps done; None where the header does not say."""
    planned: int | None = None
    """Planned number of steps: `step`, or more after early stopping; None where the header does not say."""
    offset: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Offset that was subtracted from COLMAP's coordinates; zero where the header names none, or no three numbers."""
    antialiased: bool | None = None
    """Whether the splat was trained with antialiasing (Mip-Splatting, Yu 2024); None where the header does not say."""

    @property
    def file_bytes(self) -> int:
        """Return the size in bytes that the whole file must have: header, and 4 bytes per property and Gaussian."""
        return self.header_bytes + 4 * len(self.properties) * self.num_gaussians

    @property
    def sh_degree(self) -> int:
        """Return the degree of the harmonics, by the number of f_rest properties, which is 3 ((degree + 1)^2 - 1).

        The number is rounded down where it fits no degree; `degree_of` checks that.
        """
        rest = sum(name.startswith("f_rest_") for name in self.properties)
        return math.isqrt(rest // 3 + 1) - 1


def property_names(num_rest: int) -> tuple[str, ...]:
    """Return the names of a splat's properties in the order in which they are written, with `num_rest` of f_rest."""
    return (
        "x",
        "y",
        "z",
        *(f"f_dc_{i}" for i in range(3)),
        *(f"f_rest_{i}" for i in range(num_rest)),
        "opacity",
        *(f"scale_{i}" for i in range(3)),
        *(f"rot_{i}" for i in range(4)),
    )


def num_coefficients(degree: int) -> int:
    """Return the number of spherical harmonics per colour channel above degree 0, up to a degree; 0 for degree 0."""
    return (degree + 1) ** 2 - 1


def names_at(degree: int) -> tuple[str, ...]:
    """Return the names of a splat's properties in the order of writing, with harmonics up to a degree."""
    return property_names(CHANNELS * num_coefficients(degree))


def degree_of(header: SplatHeader) -> int:
    """Return the degree of a splat's harmonics, 0 to `HIGHEST_DEGREE`, after a check of its properties.

    Raises:
        ValueError: a required property is missing, or a property occurs twice; the number of harmonics fits no degree;
            or the degree is above `HIGHEST_DEGREE`.
    """
    names = set(header.properties)
    if len(names) < len(header.properties):
        twice = next(name for name in header.properties if header.properties.count(name) > 1)
        raise ValueError(f"PLY property {twice} occurs twice")
    if missing := set(names_at(0)) - names:
        raise ValueError(f"PLY property {min(missing)} is missing")
    rest = {name for name in names if name.startswith("f_rest_")}
    degree = header.sh_degree
    if rest != set(names_at(degree)) - set(names_at(0)):
        raise ValueError(f"{len(rest)} properties f_rest fit no degree of spherical harmonics")
    if degree > HIGHEST_DEGREE:
        raise ValueError(f"harmonics of degree {degree} cannot be rendered: train with degree {HIGHEST_DEGREE} at most")
    return degree


def write_splat(
    path: Path, gaussians: Gaussians, step: int | None, planned: int | None = None, comments: Sequence[str] = ()
) -> None:
    """Write a splat file, whole or not at all; an earlier file is replaced, and on an error stays unchanged.

    Args:
        path: the file to write.
        gaussians: in the coordinates of the model less its offset.
        step: number of training steps done, for the header; None: the header names no steps.
        planned: planned number of steps, written only if larger than `step`; None: as `step`.
        comments: further comments of the header; characters beyond ASCII are escaped.

    Raises:
        ValueError: a parameter is not finite.
        OSError: the file cannot be written.
    """
    table = table_of(gaussians)
    if not np.isfinite(table).all():
        bad = int((~np.isfinite(table).all(axis=1)).sum())
        raise ValueError(f"{bad} of {len(gaussians)} Gaussians have parameters that are not finite (NaN or infinite)")
    early = f" of {planned}, stopped early" if step is not None and planned is not None and step < planned else ""
    said = [*([] if step is None else [f"splatbatch step {step}{early}"]), *comments]

    def write(file: BinaryIO) -> None:
        file.write(encode_header(len(gaussians), property_names(CHANNELS * gaussians.shN.shape[1]), said))
        file.write(table.data)

    write_whole(path, write)


def write_pieces(path: Path, num_gaussians: int, sh_degree: int, pieces: Iterable[Gaussians]) -> None:
    """Write a splat file from pieces, whole or not at all, for a splat larger than memory; values are not checked.

    Args:
        path: the file to write; an earlier one is replaced, and on an error stays unchanged.
        num_gaussians: number of Gaussians of all pieces.
        sh_degree: degree of the harmonics of every piece.
        pieces: in the order in which to write them.

    Raises:
        ValueError: the pieces have another number of Gaussians, or another degree, than given.
        OSError: the file cannot be written.
    """
    names = names_at(sh_degree)

    def write(file: BinaryIO) -> None:
        file.write(encode_header(num_gaussians, names))
        left = num_gaussians
        for piece in pieces:
            table = table_of(piece)
            if table.shape[1] != len(names):
                raise ValueError(f"a piece of the splat has {table.shape[1]} properties in place of {len(names)}")
            left -= len(table)
            file.write(table.data)
        if left:
            raise ValueError(f"the pieces of the splat have {num_gaussians - left} of {num_gaussians} Gaussians")

    write_whole(path, write)


def table_of(gaussians: Gaussians) -> FloatArray:
    """Return Gaussians as the rows of a splat file, float32 [N, properties], in the order of `names_at`."""
    shn = gaussians.shN.transpose(0, 2, 1).reshape(len(gaussians), 3 * gaussians.shN.shape[1])  # channel by channel
    columns = (gaussians.means, gaussians.sh0, shn, gaussians.opacities[:, None], gaussians.scales, gaussians.quats)
    return np.concatenate(columns, axis=1).astype("<f4", copy=False)


def encode_header(num_gaussians: int, properties: Sequence[str], comments: Sequence[str] = ()) -> bytes:
    """Return the header of a splat file in bytes, up to and with the line end_header.

    Args:
        num_gaussians: number of rows that follow.
        properties: names of the properties, all float32.
        comments: one line each; characters beyond ASCII are escaped.
    """
    lines = [
        "ply",
        "format binary_little_endian 1.0",
        *(f"comment {text.encode('unicode_escape').decode('ascii')}" for text in comments),
        f"element vertex {num_gaussians}",
        *(f"property float {name}" for name in properties),
        "end_header\n",
    ]
    return "\n".join(lines).encode("ascii")


def offset_comments(offset: Sequence[float]) -> tuple[str, ...]:
    """Return the comment for the header that names the offset, as a tuple of one line; empty for a zero offset."""
    return (f"splatbatch offset {' '.join(f'{value!r}' for value in offset)}",) if any(offset) else ()


def mode_comments(antialiased: bool | None) -> tuple[str, ...]:
    """Return the header's comment on whether a splat was trained with antialiasing, as a tuple of one line.

    The comment has the form that Brush writes and splat-transform reads. Empty if `antialiased` is None: not known.
    """
    return () if antialiased is None else (f"SplatRenderMode: {'mip' if antialiased else 'default'}",)


def has_comment(path: Path, words: str) -> bool:
    """Return whether a comment in the header of a file begins with these words; False if the file cannot be read."""
    with suppress(OSError), open_regular(path) as file:
        header = file.read(MOST_HEADER_BYTES).partition(b"end_header\n")[0]
        return f"\ncomment {words} ".encode() in header
    return False


def read_header(path: Path) -> SplatHeader:
    """Read the header of a splat file; the names of the properties are not checked (see `degree_of`).

    Raises:
        ValueError: the file is no binary little-endian PLY whose only element is vertices with float properties, or its
            header is longer than 64 KiB.
        OSError: the file cannot be read.
    """
    with open_regular(path) as file:
        start = file.read(MOST_HEADER_BYTES)
    end = start.find(b"end_header\n")
    if not start.startswith(b"ply\n") or end < 0:
        raise ValueError("the file has no PLY header")
    text = start[:end].decode("ascii", errors="replace")
    lines = [line.split() for line in text.splitlines()]
    if ["format", "binary_little_endian", "1.0"] not in lines:
        raise ValueError("a PLY file, but not binary little endian")
    elements = [line for line in lines if line[:1] == ["element"]]
    properties = [line for line in lines if line[:1] == ["property"]]
    if [line[1:2] for line in elements] != [["vertex"]] or any(line[1:2] != ["float"] for line in properties):
        raise ValueError("a PLY file, but not a list of vertices with float properties")
    step, modes = _STEP.search(text), _MODE.findall(text)
    return SplatHeader(
        num_gaussians=_count(elements[0]),
        properties=tuple(line[-1] for line in properties),
        header_bytes=end + len(b"end_header\n"),
        step=int(step[1]) if step else None,
        planned=int(step[2] or step[1]) if step else None,
        offset=_offset(text),
        antialiased="".join(modes[-1]).lower() in {"mip", "1"} if modes else None,
    )


def _offset(text: str) -> tuple[float, float, float]:
    """Return the offset that a header names; zero where it names none, or not three numbers."""
    said = _OFFSET.search(text)
    try:
        return triple(map(float, said.groups())) if said else NO_OFFSET
    except ValueError:
        return NO_OFFSET


def _count(element: list[str]) -> int:
    if len(element) != 3 or not element[2].isdecimal():
        raise ValueError("the number of vertices in the PLY header is no number")
    return int(element[2])


def read_table(path: Path, header: SplatHeader) -> FloatArray:
    """Map the rows of a splat file into memory, read-only, [N, properties]; their values are read when used.

    Raises:
        ValueError: the file has another size than its header says.
        OSError: the file cannot be opened.
    """
    if (size := path.stat().st_size) != header.file_bytes:
        raise ValueError(f"cut: {size} of {header.file_bytes} bytes are there")
    shape = (header.num_gaussians, len(header.properties))
    if header.num_gaussians == 0:
        return np.zeros(shape, dtype=np.float32)
    with open_regular(path) as file:
        return np.memmap(file, dtype="<f4", mode="r", offset=header.header_bytes, shape=shape)


def columns_of(table: FloatArray, header: SplatHeader) -> Callable[..., FloatArray]:
    """Return a function that takes names of properties and returns a copy of these columns of `table`, [N, names].

    The function raises ValueError for a property that the file does not have.

    Args:
        table: rows of a splat file, [N, properties].
        header: header of that file.
    """
    column = {name: index for index, name in enumerate(header.properties)}

    def take(*names: str) -> FloatArray:
        if missing := [name for name in names if name not in column]:
            raise ValueError(f"the splat file has no property {missing[0]}")
        columns = [column[name] for name in names]
        first = min(columns, default=0)
        row = range(first, first + len(columns))
        # neighbours, as most programs write them, are copied as rows, in a third of the time
        return np.array(table[:, row.start : row.stop] if columns == [*row] else table[:, columns], order="C")

    return take


def read_splat(path: Path) -> Gaussians:
    """Read a splat file of any program that uses the property names of 3DGS, with its properties in any order.

    All Gaussians are held in memory; their values are not checked.

    Raises:
        ValueError: the file is no splat, or is truncated.
        OSError: the file cannot be read.
    """
    header = read_header(path)
    degree_of(header)  # its error is the first that a reader should see
    return gaussians_of(read_table(path, header), header)


def gaussians_of(table: FloatArray, header: SplatHeader) -> Gaussians:
    """Return a copy of rows of a splat file, [N, properties], as Gaussians; the properties may be in any order.

    Raises:
        ValueError: the header is not that of a splat.
    """
    num, take = num_coefficients(degree_of(header)), columns_of(table, header)
    shn = take(*(f"f_rest_{i}" for i in range(CHANNELS * num))).reshape(len(table), CHANNELS, num)
    return Gaussians(
        means=take("x", "y", "z"),
        scales=take("scale_0", "scale_1", "scale_2"),
        quats=take("rot_0", "rot_1", "rot_2", "rot_3"),
        opacities=take("opacity")[:, 0],
        sh0=take("f_dc_0", "f_dc_1", "f_dc_2"),
        shN=np.ascontiguousarray(shn.transpose(0, 2, 1)),
    )


def importance_of(scales: FloatArray, opacities: FloatArray) -> FloatArray:
    """Return the importance of each Gaussian, [N]: its opacity times its area, a measure of its share of an image.

    Args:
        scales: [N, 3], logarithms.
        opacities: [N], logits.
    """
    return areas(scales) * np.reciprocal(1 + np.exp(-np.clip(opacities, -30, 30)))


def areas(scales: FloatArray) -> FloatArray:
    """Return the area of each Gaussian, [N]: the product of its two largest standard deviations, in square units.

    `scales` are logarithms, [N, 3]. The area is limited to exp(-30) to exp(30).
    """
    return np.exp(np.clip(scales.sum(axis=1) - scales.min(axis=1), -30, 30))


def covariances(scales: FloatArray, quats: FloatArray) -> FloatArray:
    """Return the covariance R S S^T R^T of each Gaussian, [N, 3, 3] (Kerbl 2023, eq. 6).

    Args:
        scales: [N, 3], logarithms.
        quats: [N, 4], w x y z, any length but 0.
    """
    stretched = from_quats(quats) * np.exp(scales)[:, None, :]
    return stretched @ stretched.transpose(0, 2, 1)
