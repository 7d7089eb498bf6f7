"""The JSON of 3D Tiles 1.1: a tileset for each patch, and the one that leads to all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from splatbatch import __version__
from splatbatch.publish.tiles.geodesy import Frame
from splatbatch.publish.tiles.glb import EXTENSIONS
from splatbatch.publish.tiles.tree import Tile
from splatbatch.store.records.publication import Tiled

CONTENT_GLTF = "3DTILES_content_gltf"
"""Says which extensions contents need: CesiumJS draws splats only where the tileset names them."""
UNLOADED = 4.0
"""Times the error of the uppermost tile: what it is worth that nothing is shown at all."""


def of_patch(tile: Tile, frame: Frame) -> dict[str, Any]:
    """Return the tileset of a patch."""
    root = tile.to_record(frame.ground.scale)
    return _tileset(_unloaded(root), {"transform": frame.transform.T.ravel().tolist(), **root})


def of_scene(patches: Mapping[str, tuple[str, Mapping[str, Any]]], counters: Mapping[str, Tiled]) -> dict[str, Any]:
    """Return the tileset that leads to those of patches: by name, where each lies and what is in it."""
    children = [
        {
            "boundingVolume": {"box": _moved(tileset["root"])},
            "geometricError": tileset["geometricError"],
            "refine": "REPLACE",
            "content": {"uri": uri},
            "extras": {"patch": name, **counters[name].to_record()},
        }
        for name, (uri, tileset) in patches.items()
    ]
    error = max(float(child["geometricError"]) for child in children)
    root = {
        "boundingVolume": {"box": _around([child["boundingVolume"]["box"] for child in children])},
        "geometricError": error,
        "refine": "ADD",
        "children": children,
    }
    return _tileset(error, root)


def _tileset(error: float, root: Mapping[str, Any]) -> dict[str, Any]:
    extensions = {CONTENT_GLTF: {"extensionsUsed": [*EXTENSIONS], "extensionsRequired": [*EXTENSIONS]}}
    return {
        "asset": {"version": "1.1", "generator": f"splatbatch {__version__}"},
        "extensionsUsed": [CONTENT_GLTF],
        "extensions": extensions,
        "geometricError": error,
        "root": root,
    }


def _unloaded(root: Mapping[str, Any]) -> float:
    """Return the error of showing nothing: more than that of the tile above all, and of a patch that is one tile."""
    half_axes = np.array(root["boundingVolume"]["box"][3:]).reshape(3, 3)
    return max(UNLOADED * float(root["geometricError"]), float(np.linalg.norm(half_axes.sum(axis=0))) / 2)


def _moved(root: Mapping[str, Any]) -> list[float]:
    """Return the box of a patch in the frame of the scene's tileset."""
    matrix = np.array(root["transform"]).reshape(4, 4).T
    box = np.array(root["boundingVolume"]["box"])
    middle = matrix[:3, :3] @ box[:3] + matrix[:3, 3]
    axes = matrix[:3, :3] @ box[3:].reshape(3, 3).T
    return [*middle.tolist(), *axes.T.ravel().tolist()]


def _around(boxes: Sequence[Sequence[float]]) -> list[float]:
    """Return a box around boxes, along the axes of the first: all patches of a scene have the same."""
    axes = np.array(boxes[0][3:]).reshape(3, 3)
    along = axes / np.linalg.norm(axes, axis=1, keepdims=True)
    corners = np.concatenate([_corners(np.array(box)) for box in boxes]) @ along.T
    low, high = corners.min(axis=0), corners.max(axis=0)
    middle: npt.NDArray[np.float64] = (low + high) / 2 @ along
    return [*middle.tolist(), *((high - low)[:, None] / 2 * along).ravel().tolist()]


def _corners(box: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    signs = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, 8).T
    found: npt.NDArray[np.float64] = box[:3] + signs @ box[3:].reshape(3, 3)
    return found
