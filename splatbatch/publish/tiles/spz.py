"""SPZ 2: Gaussians in about 20 bytes each and one for each colour coefficient, packed by gzip; what CesiumJS decodes.

Source: github.com/nianticlabs/spz. A header of 16 bytes, then all places, opacities, colours, scales, rotations and
coefficients one after the other. Whoever calls has the axes that the reader wants: nothing is turned here.
"""

from __future__ import annotations

import gzip
import itertools
import math
import struct
import zlib

import numpy as np
import numpy.typing as npt

from splatbatch.splats.ply import FloatArray, Gaussians

MAGIC, VERSION = 0x5053474E, 2
HEADER = struct.Struct("<IIIBBBB")
NEARLY_NONE = 1e-6
"""Of an opacity: what 0 and 1 are read as."""
PLACE_BITS = 24
"""A signed number of steps for each coordinate."""
FINEST = 20
"""Bits behind the point, at most: a millionth of a unit."""
COLOR_SCALE = 0.15
"""Of sh0 in a byte: -3.33 to 3.33 are 0 to 255."""
LEAST_LOG_SCALE, STEPS_PER_LOG = -10.0, 16.0
"""Scales from 4.5e-5 to 376 units, in steps of 6 %."""
LEVEL = 4
"""Of gzip: a tenth more bytes than at 9, in a fifth of the time."""
Bytes = npt.NDArray[np.uint8]


def pack(gaussians: Gaussians) -> bytes:
    """Return Gaussians as an SPZ file.

    Raises:
        ValueError: they lie too far from their origin for 24 bits.
    """
    bits = fractional_bits(gaussians.means)
    degree = math.isqrt(gaussians.shN.shape[1] + 1) - 1
    header = HEADER.pack(MAGIC, VERSION, len(gaussians), degree, bits, 0, 0)
    alphas = 255 / (1 + np.exp(-np.clip(gaussians.opacities, -30, 30)))
    scales = (gaussians.scales - LEAST_LOG_SCALE) * STEPS_PER_LOG
    parts = (
        _places(gaussians.means, bits),
        _bytes(alphas),
        _bytes(255 * (COLOR_SCALE * gaussians.sh0 + 0.5)),
        _bytes(scales),
        _bytes(127.5 * _turns(gaussians.quats) + 127.5),
        _bytes(128 * gaussians.shN + 128),
    )
    return gzip.compress(b"".join((header, *(part.tobytes() for part in parts))), LEVEL, mtime=0)


def unpack(packed: bytes) -> Gaussians:
    """Return the Gaussians of an SPZ file of version 2.

    Raises:
        ValueError: it is none, or cut.
    """
    try:
        data = gzip.decompress(packed)
        magic, version, num, degree, bits, _, _ = HEADER.unpack_from(data)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise ValueError(f"not an SPZ file ({error})") from error
    num_directed = (degree + 1) ** 2 - 1
    widths = (9, 1, 3, 3, 3, 3 * num_directed)
    if (magic, version) != (MAGIC, VERSION) or len(data) != HEADER.size + num * sum(widths):
        raise ValueError("not SPZ version 2, or cut short")
    ends = np.cumsum([HEADER.size, *(num * width for width in widths)])
    raw = [np.frombuffer(data[one:other], np.uint8) for one, other in itertools.pairwise(ends)]
    places, alphas, colors, scales, turned, directed = raw
    turns = _floats(turned, num) / 127.5 - 1
    w = np.sqrt(np.maximum(1 - np.square(turns).sum(axis=1, keepdims=True), 0))
    return Gaussians(
        means=_means(places.reshape(num, 3, 3), bits),
        scales=_floats(scales, num) / STEPS_PER_LOG + LEAST_LOG_SCALE,
        quats=np.concatenate([w, turns], axis=1),
        opacities=logits(_floats(alphas, num)[:, 0] / np.float32(255)),
        sh0=(_floats(colors, num) - np.float32(127.5)) / np.float32(255 * COLOR_SCALE),
        shN=(_floats(directed, num).reshape(num, num_directed, 3) - np.float32(128)) / np.float32(128),
    )


def _floats(raw: Bytes, num: int) -> FloatArray:
    """Return bytes of so many Gaussians as numbers, [N, bytes of each]."""
    found: FloatArray = raw.reshape(num, len(raw) // max(num, 1)).astype(np.float32)
    return found


def _means(raw: Bytes, bits: int) -> FloatArray:
    """Return places of three bytes for each coordinate, [N, 3, 3]."""
    steps = raw[..., 0].astype(np.int32) | raw[..., 1].astype(np.int32) << 8 | raw[..., 2].astype(np.int32) << 16
    found: FloatArray = (np.where(steps >= 1 << 23, steps - (1 << 24), steps) / (1 << bits)).astype(np.float32)
    return found


def logits(shares: FloatArray) -> FloatArray:
    """Return the logits of opacities, finite at 0 and 1, too."""
    inside = np.clip(shares.astype(np.float64), NEARLY_NONE, 1 - NEARLY_NONE)
    found: FloatArray = np.log(inside / (1 - inside)).astype(np.float32)
    return found


def fractional_bits(means: FloatArray) -> int:
    """Return how fine places may be told: as many bits behind the point as the farthest leaves.

    Raises:
        ValueError: it leaves none.
    """
    farthest = max(float(np.abs(means).max(initial=0.0)), 1e-9)
    bits = min(FINEST, PLACE_BITS - 2 - math.frexp(farthest)[1] + 1)
    if bits < 0:
        raise ValueError(f"a Gaussian lies {farthest:.3g} units from the middle: too far for a tile")
    return bits


def _places(means: FloatArray, bits: int) -> Bytes:
    """Return places as three bytes for each coordinate, [N, 9]."""
    steps = np.rint(means.astype(np.float64) * (1 << bits)).astype("<i4")
    found: Bytes = np.ascontiguousarray(steps).view(np.uint8).reshape(-1, 4)[:, :3]
    return found


def _bytes(values: npt.NDArray[np.floating]) -> Bytes:
    found: Bytes = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return found


def _turns(quats: FloatArray) -> FloatArray:
    """Return x y z of rotations of length 1 whose w is not negative, [N, 3]."""
    length = np.maximum(np.linalg.norm(quats, axis=1, keepdims=True), 1e-12)
    turned: FloatArray = quats[:, 1:] / length * np.where(quats[:, :1] < 0, -1, 1)
    return turned
