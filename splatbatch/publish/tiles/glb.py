"""Writes and reads the content of a tile: glTF 2.0 with KHR_gaussian_splatting, its Gaussians packed as SPZ 2.

SPZ 2 takes about 20 bytes per Gaussian and one per colour coefficient, before gzip; CesiumJS decodes it.

Source: github.com/nianticlabs/spz. A header of 16 bytes, then all positions, opacities, colours, scales, rotations and
coefficients one after the other. The caller supplies Gaussians in the reader's axes: nothing is rotated here.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from splatbatch import __version__
from splatbatch.publish.tiles.geodesy import TO_CONTENT, EnuFrame
from splatbatch.splats.ply import FloatArray, Gaussians

SPZ_MAGIC, SPZ_VERSION = 0x5053474E, 2
SPZ_HEADER = struct.Struct("<IIIBBBB")
NEARLY_NONE = 1e-6
"""Least distance of opacities from 0 and 1, to which they are clipped, so that their logits are finite."""
PLACE_BITS = 24
"""Number of bits of a coordinate in SPZ, a signed fixed-point number."""
FINEST = 20
"""Most fractional bits of a coordinate in SPZ: steps of a millionth of a unit."""
COLOR_SCALE = 0.15
"""Factor of the colour sh0 before it becomes a byte in SPZ: the values -3.33 to 3.33 become 0 to 255."""
LEAST_LOG_SCALE, STEPS_PER_LOG = -10.0, 16.0
"""Least natural logarithm of a scale in SPZ, and steps per unit of the logarithm.

A byte holds scales from 4.5e-5 to 379 units in steps of 6 %.
"""
LEVEL = 4
"""Level of gzip compression: a tenth more bytes than level 9, in a fifth of the time."""
Bytes = npt.NDArray[np.uint8]
SPLATTING = "KHR_gaussian_splatting"
COMPRESSION = "KHR_gaussian_splatting_compression_spz_2"
EXTENSIONS = (SPLATTING, COMPRESSION)
FLOAT, UNSIGNED_BYTE, POINTS = 5126, 5121, 0
MAGIC, JSON_CHUNK, BINARY_CHUNK = b"glTF", b"JSON", b"BIN\0"
GLB_HEADER = struct.Struct("<4sII")
GLB_CHUNK = struct.Struct("<I4s")
WIDTHS = {"SCALAR": 1, "VEC3": 3, "VEC4": 4}
SMALLEST = 1e-12
"""Least scale, in units, whose logarithm is taken; smaller scales count as this."""
HALF_TURN = np.array([-1.0, -1.0, 1.0], dtype=np.float32)
"""Signs of x, y and z under a half turn around z, [3]: from PLY's axes right, down, forward to left, up, forward.

The latter are those of a splat in glTF; the same turn leads back.
"""


def pack(gaussians: Gaussians, *, is_antialiased: bool = False) -> bytes:
    """Return the content of an SPZ 2 file with these Gaussians, gzipped; equal Gaussians give equal bytes.

    Args:
        gaussians: the Gaussians, in the axes that the file shall have.
        is_antialiased: whether the splat is to be drawn antialiased, which the file tells its readers.

    Raises:
        ValueError: a Gaussian lies too far from the origin for coordinates of PLACE_BITS.
    """
    bits = fractional_bits(gaussians.means)
    degree = math.isqrt(gaussians.shN.shape[1] + 1) - 1
    header = SPZ_HEADER.pack(SPZ_MAGIC, SPZ_VERSION, len(gaussians), degree, bits, int(is_antialiased), 0)
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
    """Return the Gaussians of the content of an SPZ file of version 2, in the axes and the order of the file.

    Raises:
        ValueError: the content is not SPZ 2, or is truncated.
    """
    try:
        data = gzip.decompress(packed)
        magic, version, num, degree, bits, _, _ = SPZ_HEADER.unpack_from(data)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise ValueError(f"not an SPZ file ({error})") from error
    num_directed = (degree + 1) ** 2 - 1
    widths = (9, 1, 3, 3, 3, 3 * num_directed)
    if (magic, version) != (SPZ_MAGIC, SPZ_VERSION) or len(data) != SPZ_HEADER.size + num * sum(widths):
        raise ValueError("not SPZ version 2, or cut short")
    ends = np.cumsum([SPZ_HEADER.size, *(num * width for width in widths)])
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
    """Return bytes of `num` Gaussians as float32, [N, bytes per Gaussian]."""
    found: FloatArray = raw.reshape(num, len(raw) // max(num, 1)).astype(np.float32)
    return found


def _means(raw: Bytes, bits: int) -> FloatArray:
    """Return positions [N, 3] from three bytes per coordinate, [N, 3, 3]."""
    steps = raw[..., 0].astype(np.int32) | raw[..., 1].astype(np.int32) << 8 | raw[..., 2].astype(np.int32) << 16
    found: FloatArray = (np.where(steps >= 1 << 23, steps - (1 << 24), steps) / (1 << bits)).astype(np.float32)
    return found


def logits(shares: FloatArray) -> FloatArray:
    """Return the logits of opacities between 0 and 1, in the same shape; they are finite at 0 and 1, too."""
    inside = np.clip(shares.astype(np.float64), NEARLY_NONE, 1 - NEARLY_NONE)
    found: FloatArray = np.log(inside / (1 - inside)).astype(np.float32)
    return found


def fractional_bits(means: FloatArray) -> int:
    """Return the number of fractional bits of coordinates: what the farthest position leaves of PLACE_BITS.

    The number is at most FINEST.

    Args:
        means: positions [N, 3].

    Raises:
        ValueError: a position is so far from the origin that its integer part does not fit into PLACE_BITS.
    """
    farthest = max(float(np.abs(means).max(initial=0.0)), 1e-9)
    bits = min(FINEST, PLACE_BITS - 2 - math.frexp(farthest)[1] + 1)
    if bits < 0:
        raise ValueError(f"a Gaussian lies {farthest:.3g} units from the middle: too far for 3D Tiles")
    return bits


def _places(means: FloatArray, bits: int) -> Bytes:
    """Return positions [N, 3] as three bytes per coordinate, [3 N, 3]."""
    steps = np.rint(means.astype(np.float64) * (1 << bits)).astype("<i4")
    found: Bytes = np.ascontiguousarray(steps).view(np.uint8).reshape(-1, 4)[:, :3]
    return found


def _bytes(values: npt.NDArray[np.floating]) -> Bytes:
    found: Bytes = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return found


def _turns(quats: FloatArray) -> FloatArray:
    """Return x y z [N, 3] of rotations w x y z, normalised and with w not negative."""
    length = np.maximum(np.linalg.norm(quats, axis=1, keepdims=True), 1e-12)
    turned: FloatArray = quats[:, 1:] / length * np.where(quats[:, :1] < 0, -1, 1)
    return turned


def glb(gaussians: Gaussians, *, is_antialiased: bool = False) -> bytes:
    """Return the content of a binary glTF file with these Gaussians, packed as SPZ 2.

    Args:
        gaussians: at least one Gaussian, in the axes of glTF: x right, y up, z towards the viewer.
        is_antialiased: whether the splat is to be drawn antialiased, which the file tells its readers.

    Raises:
        ValueError: a Gaussian lies too far from the origin for coordinates of PLACE_BITS.
    """
    packed = pack(gaussians, is_antialiased=is_antialiased)
    text = json.dumps(_document(gaussians, len(packed)), separators=(",", ":")).encode()
    chunks = _chunk(JSON_CHUNK, text, b" ") + _chunk(BINARY_CHUNK, packed, b"\0")
    return GLB_HEADER.pack(MAGIC, 2, GLB_HEADER.size + len(chunks)) + chunks


def _chunk(kind: bytes, content: bytes, filler: bytes) -> bytes:
    """Return a chunk of a binary glTF, padded to a multiple of four bytes."""
    filled = content + filler * (-len(content) % 4)
    return GLB_CHUNK.pack(len(filled), kind) + filled


def _document(gaussians: Gaussians, num_bytes: int) -> dict[str, Any]:
    names = _attributes(gaussians.shN.shape[1])
    accessors = [{"componentType": FLOAT, "count": len(gaussians), "type": kind} for kind in names.values()]
    accessors[0] |= {"min": gaussians.means.min(axis=0).tolist(), "max": gaussians.means.max(axis=0).tolist()}
    accessors[1] |= {"componentType": UNSIGNED_BYTE, "normalized": True}
    splatting = {
        "kernel": "ellipse",
        "colorSpace": "srgb_rec709_display",
        "sortingMethod": "cameraDistance",
        "projection": "perspective",
        "extensions": {COMPRESSION: {"bufferView": 0}},
    }
    primitive = {
        "attributes": {name: index for index, name in enumerate(names)},
        "mode": POINTS,
        "extensions": {SPLATTING: splatting},
    }
    return {
        "asset": {"version": "2.0", "generator": f"splatbatch {__version__}"},
        "extensionsUsed": [*EXTENSIONS],
        "extensionsRequired": [*EXTENSIONS],
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [primitive]}],
        "accessors": accessors,
        "bufferViews": [{"buffer": 0, "byteLength": num_bytes}],
        "buffers": [{"byteLength": num_bytes}],
    }


def _attributes(num_coefficients: int) -> dict[str, str]:
    """Return the glTF attributes of a Gaussian and the type of each, in the order of the accessors."""
    degree = math.isqrt(num_coefficients + 1) - 1
    harmonics = [
        f"{SPLATTING}:SH_DEGREE_{order}_COEF_{which}"
        for order in range(1, degree + 1)
        for which in range(2 * order + 1)
    ]
    own = {f"{SPLATTING}:SCALE": "VEC3", f"{SPLATTING}:ROTATION": "VEC4"}
    return {"POSITION": "VEC3", "COLOR_0": "VEC4", **own, **dict.fromkeys(harmonics, "VEC3")}


def decode(content: bytes) -> Gaussians:
    """Return the Gaussians of the content of a binary glTF file, in the axes of the file.

    The Gaussians may be packed as SPZ 2, or stored as floats.

    Raises:
        ValueError: the content is not a binary glTF with Gaussians, or is truncated.
    """
    try:
        magic, _, length = GLB_HEADER.unpack_from(content)
        size, _ = GLB_CHUNK.unpack_from(content, GLB_HEADER.size)
        start = GLB_HEADER.size + GLB_CHUNK.size
        if magic != MAGIC or length != len(content):
            raise ValueError("not a binary glTF, or cut short")
        document = json.loads(content[start : start + size])
        primitive = document["meshes"][0]["primitives"][0]
        binary = content[start + size + GLB_CHUNK.size :]
        packed = primitive["extensions"][SPLATTING].get("extensions", {}).get(COMPRESSION)
        if packed:
            return unpack(_view(document, packed["bufferView"], binary))
        return _plain(document, primitive["attributes"], binary)
    except (KeyError, IndexError, TypeError, struct.error) as error:
        raise ValueError(f"not the Gaussians of a glTF ({error!r})") from error


def _view(document: dict[str, Any], index: int, binary: bytes) -> bytes:
    view = document["bufferViews"][index]
    start = int(view.get("byteOffset", 0))
    return binary[start : start + int(view["byteLength"])]


def _plain(document: dict[str, Any], attributes: dict[str, int], binary: bytes) -> Gaussians:
    """Return Gaussians whose attributes are float accessors, without compression."""

    def take(name: str) -> FloatArray:
        accessor = document["accessors"][attributes[name]]
        if accessor["componentType"] != FLOAT:
            raise ValueError(f"{name}: the values are no floats")
        width, raw = WIDTHS[accessor["type"]], _view(document, accessor["bufferView"], binary)
        values = np.frombuffer(raw, "<f4", width * accessor["count"], accessor.get("byteOffset", 0))
        return values.reshape(-1, width).astype(np.float32)

    num_directed = sum(name.startswith(f"{SPLATTING}:SH_DEGREE_") for name in attributes) - 1
    degree = math.isqrt(num_directed + 1) - 1
    directed = [
        take(f"{SPLATTING}:SH_DEGREE_{one}_COEF_{m}") for one in range(1, degree + 1) for m in range(2 * one + 1)
    ]
    means = take("POSITION")
    return Gaussians(
        means=means,
        scales=np.log(np.maximum(take(f"{SPLATTING}:SCALE"), SMALLEST)),
        quats=np.roll(take(f"{SPLATTING}:ROTATION"), 1, axis=1),
        opacities=logits(take(f"{SPLATTING}:OPACITY")[:, 0]),
        sh0=take(f"{SPLATTING}:SH_DEGREE_0_COEF_0"),
        shN=np.stack(directed, axis=1) if directed else np.zeros((len(means), 0, 3), np.float32),
    )


def half_turned(gaussians: Gaussians) -> Gaussians:
    """Return Gaussians rotated by 180 degrees around z, with view-dependent colours (spherical harmonics), in order.

    Of the harmonics, those of odd order m change their sign.
    """
    w, x, y, z = gaussians.quats.T
    degree = math.isqrt(gaussians.shN.shape[1] + 1) - 1
    signs = [(-1.0) ** m for one in range(1, degree + 1) for m in range(-one, one + 1)]
    return Gaussians(
        means=gaussians.means * HALF_TURN,
        scales=gaussians.scales,
        quats=np.stack([-z, -y, x, w], axis=1),
        opacities=gaussians.opacities,
        sh0=gaussians.sh0,
        shN=gaussians.shN * np.array(signs, dtype=np.float32)[:, None],
    )


def leaves(tileset: Path, ground: EnuFrame, offset: npt.NDArray[np.float64]) -> Iterator[Gaussians]:
    """Yield the Gaussians of each of a patch's finest tiles, in the coordinates of its splat.

    Args:
        tileset: path of the patch's tileset.json; paths of tiles are relative to its folder.
        ground: frame that the tiles were written in.
        offset: offset of the splat, [3], which is subtracted from the coordinates of the reconstruction.

    Raises:
        OSError: a file cannot be read.
        ValueError: a tile holds no Gaussians, or tileset.json is no JSON.
        KeyError: tileset.json lacks a key.
    """
    root = json.loads(tileset.read_text(encoding="utf-8"))["root"]
    matrix = np.array(root["transform"]).reshape(4, 4).T
    turn = matrix[:3, :3] @ np.linalg.inv(TO_CONTENT)  # readers change the axes of a glTF first
    for tile in _finest(root):
        found = decode((tileset.parent / tile["content"]["uri"]).read_bytes())
        there = found.means.astype(np.float64) @ turn.T + matrix[:3, 3]
        yield replace(found, means=(ground.invert(there) - offset).astype(np.float32))


def _finest(tile: dict[str, Any]) -> Iterator[dict[str, Any]]:
    below = tile.get("children", ())
    if not below:
        yield tile
    for child in below:
        yield from _finest(child)
