"""Reads what lies in glTFs with KHR_gaussian_splatting: the tool's plain attributes, and the tiles that we write."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from splatbatch.publish.tiles.geodesy import TO_CONTENT, Ground
from splatbatch.publish.tiles.glb import COMPRESSION, FLOAT, MAGIC, SPLATTING
from splatbatch.publish.tiles.spz import logits, unpack
from splatbatch.splats.ply import FloatArray, Gaussians

HEADER = struct.Struct("<4sII")
CHUNK = struct.Struct("<I4s")
WIDTHS = {"SCALAR": 1, "VEC3": 3, "VEC4": 4}
SMALLEST = 1e-12
"""Of a size whose logarithm is taken."""
HALF_TURN = np.array([-1.0, -1.0, 1.0], dtype=np.float32)
"""Around z: between PLY's axes right, down, forward and glTF's left, up, forward, there and back."""


def decode(content: bytes) -> Gaussians:
    """Return the Gaussians of a binary glTF, in its axes.

    Raises:
        ValueError: it is none, or cut.
    """
    try:
        magic, _, length = HEADER.unpack_from(content)
        size, _ = CHUNK.unpack_from(content, HEADER.size)
        start = HEADER.size + CHUNK.size
        if magic != MAGIC or length != len(content):
            raise ValueError("not a binary glTF, or cut short")
        document = json.loads(content[start : start + size])
        primitive = document["meshes"][0]["primitives"][0]
        binary = content[start + size + CHUNK.size :]
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
    """Return Gaussians whose attributes are floats, each in a place of its own."""

    def take(name: str) -> FloatArray:
        accessor = document["accessors"][attributes[name]]
        if accessor["componentType"] != FLOAT:
            raise ValueError(f"{name}: no floats")
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
    """Return Gaussians turned by 180 degrees around z; of a harmonic's order m the odd ones change their sign."""
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


def leaves(tileset: Path, ground: Ground, offset: npt.NDArray[np.float64]) -> Iterator[Gaussians]:
    """Yield what the finest tiles of a patch hold, where its splat has it.

    Args:
        tileset: of the patch.
        ground: where its model lies.
        offset: of the splat, taken off again.

    Raises:
        OSError, ValueError: a file cannot be read, or is none of ours.
    """
    root = json.loads(tileset.read_text(encoding="utf-8"))["root"]
    matrix = np.array(root["transform"]).reshape(4, 4).T
    turn = matrix[:3, :3] @ np.linalg.inv(TO_CONTENT)  # readers turn the axes of a glTF first
    for tile in _finest(root):
        found = decode((tileset.parent / tile["content"]["uri"]).read_bytes())
        there = found.means.astype(np.float64) @ turn.T + matrix[:3, 3]
        values = {**vars(found), "means": (ground.invert(there) - offset).astype(np.float32)}
        yield Gaussians(**values)


def _finest(tile: dict[str, Any]) -> Iterator[dict[str, Any]]:
    below = tile.get("children", ())
    if not below:
        yield tile
    for child in below:
        yield from _finest(child)
