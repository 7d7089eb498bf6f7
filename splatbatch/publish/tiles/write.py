"""Writes 3D Tiles patch by patch: unchanged patches are kept, and the root switches to all new folders at once.

A patch's tiles lie in a folder named by a hash of their inputs, so that no file is overwritten while viewers read it.
New folders are complete before the root is replaced; old folders are removed after that.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from splatbatch import __version__
from splatbatch.errors import OutputError
from splatbatch.files import fault_of_name, read_json, write_object
from splatbatch.output.records.publication import TiledPatch
from splatbatch.publish.rows import folder_bytes, put, read_part
from splatbatch.publish.source import PublishedSplat, SourcePart
from splatbatch.publish.tiles.geodesy import EnuFrame, TileFrame
from splatbatch.publish.tiles.glb import EXTENSIONS
from splatbatch.publish.tiles.tree import MOST_PER_TILE, Tile, Tiling
from splatbatch.splats.ply import FloatArray, Gaussians
from splatbatch.tasks.patch_state import Damaged, UpToDate
from splatbatch.tasks.product import compare_product, hashes_in, key_of

CONTENT_GLTF = "3DTILES_content_gltf"
"""Extension that names the glTF extensions of the contents; without it CesiumJS draws no splats."""
UNLOADED = 4.0
"""Geometric error of showing nothing, as a multiple of the root tile's error."""
VERSION = 1
"""Raise this when the content of tiles changes: all are then written again."""
ROOT = "tileset.json"
KEY = re.compile(r"[0-9a-f]{16}")


def of_patch(tile: Tile, frame: TileFrame) -> dict[str, Any]:
    """Return tileset.json of a patch, from the root of its tree of tiles."""
    root = tile.to_record(frame.ground.scale)
    return _tileset(_unloaded(root), {"transform": frame.transform.T.ravel().tolist(), **root})


def of_scene(
    patches: Mapping[str, tuple[str, Mapping[str, Any]]], counters: Mapping[str, TiledPatch]
) -> dict[str, Any]:
    """Return the root tileset, with one child per patch.

    Args:
        patches: for each patch the path of its tileset.json, and its content.
        counters: for each patch its record, which the root carries as `extras`.
    """
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
    """Return the geometric error of showing nothing: UNLOADED times the root's, at least a quarter of its diagonal."""
    half_axes = np.array(root["boundingVolume"]["box"][3:]).reshape(3, 3)
    return max(UNLOADED * float(root["geometricError"]), float(np.linalg.norm(half_axes.sum(axis=0))) / 2)


def _moved(root: Mapping[str, Any]) -> list[float]:
    """Return the box of a patch's root tile in the coordinates of the scene's tileset."""
    matrix = np.array(root["transform"]).reshape(4, 4).T
    box = np.array(root["boundingVolume"]["box"])
    middle = matrix[:3, :3] @ box[:3] + matrix[:3, 3]
    axes = matrix[:3, :3] @ box[3:].reshape(3, 3).T
    return [*middle.tolist(), *axes.T.ravel().tolist()]


def _around(boxes: Sequence[Sequence[float]]) -> list[float]:
    """Return the box around several boxes, along the axes of the first; all patches of a scene have the same axes."""
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


@dataclass(frozen=True)
class Tiles:
    """The folder of a scene's tiles: a root tileset.json, and a subfolder per patch."""

    folder: Path
    work: Path
    """Working folder on the same disk."""
    ground: EnuFrame
    done: Callable[[str, int, int], None] = lambda _name, _done, _total: None
    """Called with the name of a patch, its Gaussians written so far, and their total number."""
    say: Callable[[str], None] = lambda _: None
    """Called with a message for each patch whose tiles are damaged on disk."""

    def write(
        self,
        splats: Mapping[str, tuple[PublishedSplat, SourcePart]],
        known: Mapping[str, TiledPatch],
        *,
        keeps: bool = False,
    ) -> dict[str, TiledPatch]:
        """Write the tiles of changed or damaged patches, then the root; return the records of all patches in it.

        Args:
            splats: splat and part of each patch, by name.
            known: records of the patches that are already in the folder.
            keeps: whether known patches that `splats` does not name stay in the folder.

        Raises:
            OutputError: a patch cannot be read, or does not fit into memory.
            OSError: the files cannot be written.
        """
        tiled = {
            name: self._patch(name, splat, part, known.get(name, TiledPatch()))
            for name, (splat, part) in splats.items()
            if part.num_gaussians
        }
        tiled = {**(known if keeps else {}), **tiled}
        patches = {
            name: (f"{quote(name)}/{one.key}/{ROOT}", self._tileset(name, one.key)) for name, one in tiled.items()
        }
        write_object(self.folder / ROOT, of_scene(patches, tiled))
        self._sweep(tiled, known)
        return tiled

    def _patch(self, name: str, splat: PublishedSplat, part: SourcePart, known: TiledPatch) -> TiledPatch:
        ground = [self.ground.crs, self.ground.rotation.tolist(), self.ground.scale]
        key = key_of(VERSION, part.key, splat.header.sh_degree, splat.offset, ground, MOST_PER_TILE)
        place = self.folder / name / key
        recorded = known.key if (place / ROOT).is_file() else None
        match compare_product(key, recorded, place=place, parts=known.sha256):
            case UpToDate():
                return known
            case Damaged(parts=files):
                self.say(f"tiles of {name}: damaged on disk: written anew ({files})")
        aside = self.work / f"tiles-{key}"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        num_tiles = self._written(name, splat, part, aside)
        place.parent.mkdir(parents=True, exist_ok=True)
        put(aside, place)
        return TiledPatch(key, part.num_gaussians, num_tiles, folder_bytes(place), hashes_in(place))

    def _written(self, name: str, splat: PublishedSplat, part: SourcePart, aside: Path) -> int:
        """Write the tiles of a patch into the folder `aside`; return the number of tiles."""
        try:
            gaussians = read_part(part)
        except (OSError, ValueError) as error:
            raise OutputError(f"{name}: {part.path}: {error}", "Train or merge it again.") from error
        offset = np.array(splat.offset)
        frame = self.ground.around(np.round(np.median(gaussians.means, axis=0).astype(np.float64) + offset))
        placed = replace(gaussians, means=_in_frame(gaussians, offset, frame))
        tiling = Tiling(
            placed,
            lambda file, content: (aside / file).write_bytes(content),
            most=MOST_PER_TILE,
            is_antialiased=splat.header.antialiased is True,
            done=_counting(lambda num: self.done(name, num, part.num_gaussians)),
        )
        try:
            above_all = tiling.tiles()
        except ValueError as error:
            raise OutputError(f"{name}: {error}", "splatbatch merge --clean leaves it out.") from error
        (aside / ROOT).write_text(json.dumps(of_patch(above_all, frame)), encoding="utf-8")
        return sum(1 for _ in above_all.every())

    def _tileset(self, name: str, key: str) -> dict[str, Any]:
        found = read_json(self.folder / name / key / ROOT)
        if found is None:
            raise OutputError(f"{self.folder / name / key / ROOT}: cannot be read", "Publish again with --force.")
        return found

    def _sweep(self, tiled: Mapping[str, TiledPatch], known: Mapping[str, TiledPatch]) -> None:
        """Remove folders of tiles that the root no longer refers to."""
        for name in {one for one in (*tiled, *known) if not fault_of_name(one)}:
            place = self.folder / name
            for left in place.iterdir() if place.is_dir() else ():
                if KEY.fullmatch(left.name) and (name not in tiled or left.name != tiled[name].key):
                    shutil.rmtree(left, ignore_errors=True)
            with contextlib.suppress(OSError):  # not empty: still in use
                place.rmdir()


def _in_frame(gaussians: Gaussians, offset: FloatArray, frame: TileFrame) -> FloatArray:
    found: FloatArray = frame.places(gaussians.means.astype(np.float64) + offset).astype(np.float32)
    return found


def _counting(tell: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function that adds up its arguments and calls `tell` with the sum so far."""
    total = 0

    def add(number: int) -> None:
        nonlocal total
        total += number
        tell(total)

    return add
