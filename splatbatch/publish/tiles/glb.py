"""A tile's content: glTF 2.0 with KHR_gaussian_splatting and its compression spz_2, in one binary file."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

from splatbatch import __version__
from splatbatch.publish.tiles.spz import pack
from splatbatch.splats.ply import Gaussians

SPLATTING = "KHR_gaussian_splatting"
COMPRESSION = "KHR_gaussian_splatting_compression_spz_2"
EXTENSIONS = (SPLATTING, COMPRESSION)
FLOAT, UNSIGNED_BYTE, POINTS = 5126, 5121, 0
MAGIC, JSON_CHUNK, BINARY_CHUNK = b"glTF", b"JSON", b"BIN\0"


def glb(gaussians: Gaussians) -> bytes:
    """Return Gaussians as a binary glTF, in its axes: x right, y up, z towards who looks.

    Raises:
        ValueError: they lie too far from their origin.
    """
    packed = pack(gaussians)
    text = json.dumps(_document(gaussians, len(packed)), separators=(",", ":")).encode()
    chunks = _chunk(JSON_CHUNK, text, b" ") + _chunk(BINARY_CHUNK, packed, b"\0")
    return struct.pack("<4sII", MAGIC, 2, 12 + len(chunks)) + chunks


def _chunk(kind: bytes, content: bytes, filler: bytes) -> bytes:
    """Return a part of the file, filled up to whole words."""
    filled = content + filler * (-len(content) % 4)
    return struct.pack("<I4s", len(filled), kind) + filled


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
    """Return the names of what a Gaussian has, each with its type."""
    degree = math.isqrt(num_coefficients + 1) - 1
    harmonics = [
        f"{SPLATTING}:SH_DEGREE_{order}_COEF_{which}"
        for order in range(1, degree + 1)
        for which in range(2 * order + 1)
    ]
    own = {f"{SPLATTING}:SCALE": "VEC3", f"{SPLATTING}:ROTATION": "VEC4"}
    return {"POSITION": "VEC3", "COLOR_0": "VEC4", **own, **dict.fromkeys(harmonics, "VEC3")}
