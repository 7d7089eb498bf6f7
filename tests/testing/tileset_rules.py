"""What 3D Tiles 1.1 demands of a tileset, as its validator asks it; that one cannot be had from npm.

Source: the specification (OGC 22-025r4) and its JSON schema: github.com/CesiumGS/3d-tiles.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

TILESET = {"asset", "properties", "schema", "schemaUri", "statistics", "groups", "metadata", "geometricError", "root"}
TILESET |= {"extensionsUsed", "extensionsRequired", "extensions", "extras"}
TILE = {"boundingVolume", "viewerRequestVolume", "geometricError", "refine", "transform", "content", "contents"}
TILE |= {"metadata", "implicitTiling", "children", "extensions", "extras"}
SLACK = 1e-6
"""Of a box's size, by which what is in it may stick out."""


def problems_of(path: Path) -> list[str]:
    """Return what is wrong with a tileset and all that it leads to; each with its file and place."""
    return list(_of_tileset(path, math.inf, None, set()))


def _of_tileset(path: Path, error: float, outer: np.ndarray | None, seen: set[Path]) -> Iterator[str]:
    """Yield what is wrong; `outer`: corners that what leads here says hold all, in this tileset's frame."""
    if path in seen:
        yield f"{path.name}: leads back to itself"
        return
    record = json.loads(path.read_text())
    yield from (f"{path.name}: {key}: no property of a tileset" for key in record.keys() - TILESET)
    yield from (f"{path.name}: {key}: missing" for key in {"asset", "geometricError", "root"} - record.keys())
    if record.get("asset", {}).get("version") not in ("1.0", "1.1"):
        yield f"{path.name}: asset.version: {record.get('asset')}"
    used = {*record.get("extensionsUsed", ())}
    if not {*record.get("extensionsRequired", ()), *record.get("extensions", {})} <= used:
        yield f"{path.name}: extensionsUsed: {used} are not all"
    if "root" in record:
        own = record.get("geometricError")
        if not _is_number(own) or own < 0:
            yield f"{path.name}: geometricError: {own}"
            own = error
        if "refine" not in record["root"]:
            yield f"{path.name}: root.refine: missing"
        place = _Place(path, np.eye(4), outer, seen | {path})
        yield from place.of_tile(record["root"], min(error, own), "root")


class _Place:
    """Where a tile stands: its file, its frame, and what has to hold it."""

    def __init__(self, path: Path, matrix: np.ndarray, outer: np.ndarray | None, seen: set[Path]) -> None:
        self.path, self.matrix, self.outer, self.seen = path, matrix, outer, seen

    def of_tile(self, tile: dict[str, Any], error: float, name: str) -> Iterator[str]:
        yield from (f"{name}: {key}: no property of a tile" for key in tile.keys() - TILE)
        box = tile.get("boundingVolume", {}).get("box")
        if not isinstance(box, list) or len(box) != 12 or not all(map(_is_number, box)):
            yield f"{name}: boundingVolume.box: {box}"
            return
        if abs(np.linalg.det(np.array(box[3:]).reshape(3, 3))) <= 0:
            yield f"{name}: boundingVolume.box: flat"
        own = tile.get("geometricError")
        if not _is_number(own) or not 0 <= own <= error:
            yield f"{name}: geometricError: {own}, and {error} above"
            own = error
        if tile.get("refine", "ADD") not in ("ADD", "REPLACE"):
            yield f"{name}: refine: {tile['refine']}"
        matrix = self.matrix @ _matrix(tile)
        yield from self._of_box(box, matrix, name)
        below = _Place(self.path, matrix, _corners(box, matrix), self.seen)
        yield from below.of_content(tile, own, name)
        for index, child in enumerate(tile.get("children", ())):
            yield from below.of_tile(child, own, f"{name}/{index}")

    def _of_box(self, box: list[float], matrix: np.ndarray, name: str) -> Iterator[str]:
        if self.outer is None:
            return
        axes = self.outer[[1, 2, 4]] - self.outer[0]
        lengths = np.linalg.norm(axes, axis=1)
        if not lengths.all():
            return  # it is flat, which is said of it
        along = (_corners(box, matrix) - self.outer[0]) @ (axes / lengths[:, None]).T / lengths
        if along.min() < -SLACK or along.max() > 1 + SLACK:
            yield f"{name}: boundingVolume.box: sticks out of the one above by {max(-along.min(), along.max() - 1):.3g}"

    def of_content(self, tile: dict[str, Any], error: float, name: str) -> Iterator[str]:
        if "content" not in tile:
            return
        uri = tile["content"].get("uri")
        target = self.path.parent / unquote(str(uri))
        if not uri or not target.is_file():
            yield f"{name}: content.uri: {uri}: there is no such file"
        elif target.suffix == ".json":
            if tile.get("children"):
                yield f"{name}: children: beside an external tileset"
            outer = (self.outer if self.outer is not None else np.zeros((8, 3))) @ np.linalg.inv(self.matrix[:3, :3]).T
            moved = outer - np.linalg.inv(self.matrix[:3, :3]) @ self.matrix[:3, 3]
            yield from (f"{name}: {one}" for one in _of_tileset(target, error, moved, self.seen))
        elif target.read_bytes()[:4] != b"glTF":
            yield f"{name}: content.uri: {uri}: no binary glTF"


def _matrix(tile: dict[str, Any]) -> np.ndarray:
    return np.array(tile.get("transform", np.eye(4).ravel())).reshape(4, 4).T


def _corners(box: list[float], matrix: np.ndarray) -> np.ndarray:
    """Return the corners of a box in another frame, [8, 3]; those at 1, 2 and 4 lie along its axes from the first."""
    middle, half = np.array(box[:3]), np.array(box[3:]).reshape(3, 3)
    signs = np.array(list(itertools.product((-1, 1), repeat=3)))[:, ::-1]
    return (middle + signs @ half) @ matrix[:3, :3].T + matrix[:3, 3]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
