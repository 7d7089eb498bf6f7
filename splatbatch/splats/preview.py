"""Preview of a splat for the report: the most visible Gaussians, without view-dependent colour, as .compressed.ply.

The format .compressed.ply is PlayCanvas's; the viewer in the report reads it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from splatbatch.scene.rotations import multiply, rotate
from splatbatch.splats.ply import FloatArray, columns_of, importance_of, read_header, read_table

Floats = npt.NDArray[np.floating[Any]]
MOST_GAUSSIANS = 180_000
"""Largest number of Gaussians of a preview: 2.9 MB at 16 bytes each, and 72 bytes for every 256 Gaussians."""
UNTURNED = np.array([1.0, 0.0, 0.0, 0.0])
_CHUNK_FLOATS = 18
"""Floats per chunk of the file: least and greatest x, y, z, then those of scales and colours."""


def make_preview(splat: Path, turn: Floats = UNTURNED) -> bytes:
    """Return the most visible Gaussians of a splat file as the bytes of a .compressed.ply; no file is written.

    At most `MOST_GAUSSIANS` are taken.

    Args:
        splat: path of the splat file.
        turn: rotation of the whole splat, a quaternion w x y z of length 1.

    Raises:
        ImportError: gsply is not installed (extra `web`).
        ValueError: the file is no splat, is truncated, or has no Gaussians.
        OSError: the file cannot be read.
    """
    import gsply

    header = read_header(splat)
    table = read_table(splat, header)
    take = columns_of(table, header)
    if not len(table):
        raise ValueError("a splat with no Gaussians")
    scales, opacities = take("scale_0", "scale_1", "scale_2"), take("opacity")[:, 0]
    rows = most_visible(scales, opacities, MOST_GAUSSIANS)
    quats = take("rot_0", "rot_1", "rot_2", "rot_3")[rows]
    quats = multiply(turn, quats / np.maximum(np.linalg.norm(quats, axis=1, keepdims=True), 1e-12))
    means = rotate(take("x", "y", "z")[rows], turn)
    sh0 = take("f_dc_0", "f_dc_1", "f_dc_2")[rows]
    columns = (np.ascontiguousarray(array, dtype=np.float32) for array in (means, scales[rows], quats))
    return gsply.compress_to_bytes(*columns, opacities[rows], sh0)


def middle_of(preview: bytes) -> Floats:
    """Return the approximate median position of a preview's Gaussians, [3], at which a viewer may look.

    The result is the median over the middles of the chunks of up to 256 Gaussians that the format consists of.

    Raises:
        ValueError: the bytes are no .compressed.ply, or are truncated.
    """
    header, end, body = preview.partition(b"end_header\n")
    found = re.search(rb"^element chunk (\d+)$", header, re.MULTILINE)
    if not end or not found:
        raise ValueError("no chunks in the header of the preview")
    chunks = np.frombuffer(body, dtype="<f4", count=_CHUNK_FLOATS * int(found[1])).reshape(-1, _CHUNK_FLOATS)
    return np.median((chunks[:, :3] + chunks[:, 3:6]) / 2, axis=0)


def most_visible(scales: FloatArray, opacities: FloatArray, most: int) -> npt.NDArray[np.intp]:
    """Return the indices of the `most` Gaussians with the largest importance, ascending; all if they are fewer.

    Args:
        scales: [N, 3], logarithms.
        opacities: [N], logits.
        most: largest number of Gaussians to return.
    """
    if len(scales) <= most:
        return np.arange(len(scales))
    weight = importance_of(scales, opacities)
    return np.sort(np.argpartition(weight, len(weight) - most)[-most:])
