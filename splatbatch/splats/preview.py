"""Preview of a splat for the report: a subset of Gaussians without view-dependent colour, as .compressed.ply.

The format is PlayCanvas's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from splatbatch.scene.rotations import multiply, rotate
from splatbatch.splats.ply import FloatArray, columns_of, read_header, read_table

Floats = npt.NDArray[np.floating[Any]]
MOST_GAUSSIANS = 180_000
"""Largest number of Gaussians of a preview: 2.9 MB at 16 bytes each and 72 for every 256."""
LOGIT_RANGE, LOG_SCALE_RANGE = 30.0, 30.0
"""Limits to which logits and log scales are clamped before exp(), which would overflow beyond."""
UNTURNED = np.array([1.0, 0.0, 0.0, 0.0])
_CHUNK_FLOATS = 18
"""Floats per chunk of the file: least and greatest x, y, z, then those of scales and colours."""


def make_preview(splat: Path, turn: Floats = UNTURNED, most: int = MOST_GAUSSIANS) -> bytes:
    """Return a splat file as the bytes of a .compressed.ply of at most `most` Gaussians (see `most_visible`).

    `turn` rotates the whole splat: a quaternion w x y z of length 1.

    Raises:
        ImportError: gsply is not installed (extra `web`).
        ValueError: it is no splat, or cut.
        OSError: it cannot be read.
    """
    import gsply

    header = read_header(splat)
    table = read_table(splat, header)
    take = columns_of(table, header)
    if not len(table):
        raise ValueError("no Gaussians")
    scales, opacities = take("scale_0", "scale_1", "scale_2"), take("opacity")[:, 0]
    rows = most_visible(scales, opacities, most)
    quats = take("rot_0", "rot_1", "rot_2", "rot_3")[rows]
    quats = multiply(turn, quats / np.maximum(np.linalg.norm(quats, axis=1, keepdims=True), 1e-12))
    means = rotate(take("x", "y", "z")[rows], turn)
    sh0 = take("f_dc_0", "f_dc_1", "f_dc_2")[rows]
    columns = (np.ascontiguousarray(array, dtype=np.float32) for array in (means, scales[rows], quats))
    return gsply.compress_to_bytes(*columns, opacities[rows], sh0)


def middle_of(preview: bytes) -> Floats:
    """Return the approximate median position of a preview's Gaussians, [3]: the median of its chunks' middles.

    Raises:
        ValueError: it is no preview.
    """
    header, end, body = preview.partition(b"end_header\n")
    found = re.search(rb"^element chunk (\d+)$", header, re.MULTILINE)
    if not end or not found:
        raise ValueError("no chunks in the header")
    chunks = np.frombuffer(body, dtype="<f4", count=_CHUNK_FLOATS * int(found[1])).reshape(-1, _CHUNK_FLOATS)
    return np.median((chunks[:, :3] + chunks[:, 3:6]) / 2, axis=0)


def most_visible(scales: FloatArray, opacities: FloatArray, most: int) -> npt.NDArray[np.intp]:
    """Return the indices of the `most` Gaussians with the largest opacity times area, ascending; all if they are fewer.

    Args:
        scales: [N, 3], logarithms; a Gaussian's area is the product of the two largest.
        opacities: [N], logits.
        most: largest number of Gaussians to return.
    """
    if len(scales) <= most:
        return np.arange(len(scales))
    area = np.exp(np.clip(scales.sum(axis=1) - scales.min(axis=1), -LOG_SCALE_RANGE, LOG_SCALE_RANGE))
    weight = area / (1 + np.exp(-np.clip(opacities, -LOGIT_RANGE, LOGIT_RANGE)))
    return np.sort(np.argpartition(weight, len(weight) - most)[-most:])
