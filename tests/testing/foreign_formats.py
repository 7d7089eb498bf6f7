"""What lies in files of other formats, read without the tool that wrote them."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

COMPRESSION = "KHR_gaussian_splatting_compression_spz_2"


def glb_parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the JSON and the binary part of a binary glTF."""
    magic, version, length = struct.unpack_from("<4sII", content)
    assert (magic, version, length) == (b"glTF", 2, len(content))
    size, kind = struct.unpack_from("<I4s", content, 12)
    assert kind == b"JSON"
    return json.loads(content[20 : 20 + size]), content[28 + size :]


def spz_places(packed: bytes) -> np.ndarray:
    """Return the means in an SPZ of version 2 or 3, [N, 3]."""
    data = gzip.decompress(packed)
    magic, version, num, _, bits, _, _ = struct.unpack_from("<IIIBBBB", data)
    assert magic == 0x5053474E and version in (2, 3)
    raw = np.frombuffer(data, np.uint8, 9 * num, 16).reshape(num, 3, 3).astype(np.int32)
    steps = raw[..., 0] | raw[..., 1] << 8 | raw[..., 2] << 16
    return np.where(steps >= 1 << 23, steps - (1 << 24), steps) / (1 << bits)


def glb_places(path: Path) -> np.ndarray:
    """Return the means in a binary glTF with plain attributes, or compressed ones."""
    document, binary = glb_parts(path.read_bytes())
    primitive = document["meshes"][0]["primitives"][0]
    compressed = primitive["extensions"]["KHR_gaussian_splatting"].get("extensions", {}).get(COMPRESSION)
    if compressed:
        view = document["bufferViews"][compressed["bufferView"]]
        return spz_places(binary[view.get("byteOffset", 0) :][: view["byteLength"]])
    accessor = document["accessors"][primitive["attributes"]["POSITION"]]
    view = document["bufferViews"][accessor["bufferView"]]
    return np.frombuffer(binary, "<f4", 3 * accessor["count"], view.get("byteOffset", 0)).reshape(-1, 3)


def turn_between(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the matrix [3, 3] that takes some places, in any order, to others; both have the same distances."""
    found, *_ = np.linalg.lstsq(before, after, rcond=None)
    return found.T
