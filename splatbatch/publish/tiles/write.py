"""Writes 3D Tiles patch by patch: unchanged patches are kept, and the root switches to all new folders at once.

A patch's tiles lie in a folder named by a hash of their inputs, so that no file is overwritten while viewers read it.
New folders are complete before the root is replaced; old folders are removed after that.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from splatbatch import __version__
from splatbatch.errors import OutputError
from splatbatch.files import fault_of_name, read_json, write_object
from splatbatch.hashing import hash_of, sha256_of
from splatbatch.monitor.messages import PipeWriter
from splatbatch.output.records.publication import PublishedFile, TiledPatch, TilesRecord
from splatbatch.publish.formats import TILES
from splatbatch.publish.rows import folder_bytes, put, read_part, reading
from splatbatch.publish.source import PublishedSplat, SourcePart
from splatbatch.publish.stage import images_of, up_by_cameras
from splatbatch.publish.tiles.geodesy import EnuFrame, on_globe, upright
from splatbatch.publish.tiles.glb import EXTENSIONS, leaves
from splatbatch.publish.tiles.tree import MOST_PER_TILE, Tile, Tiling
from splatbatch.scene.colmap.types import triple
from splatbatch.splats.blocks import sample_rows
from splatbatch.splats.ply import write_pieces
from splatbatch.tasks.inspection import SCENE
from splatbatch.tasks.patch_state import Damaged, UpToDate
from splatbatch.tasks.product import compare_product, hashes_in, key_of

CONTENT_GLTF = "3DTILES_content_gltf"
"""Extension of 3D Tiles that names the glTF extensions of the contents; without it CesiumJS draws no splats."""
UNLOADED = 4.0
"""Geometric error of a patch of which no tile is loaded, as a multiple of its root tile's error.

It is at least a quarter of the diagonal of the root tile's box.
"""
VERSION = 1
"""Version of the content of tiles; raise it when that changes, so that `publish` writes all tiles again."""
ROOT = "tileset.json"
KEY = re.compile(r"[0-9a-f]{16}")
NOWHERE = "scene.crs is not set: the tiles have no place on Earth"
PATCHES = "patches"
"""Value of `PublishedFile.of` for tiles of single patches; for tiles of the merged scene it is SCENE ("scene")."""


def of_patch(tile: Tile, frame: EnuFrame) -> dict[str, Any]:
    """Return the content of a patch's tileset.json as a JSON object.

    Args:
        tile: root of the patch's tree of tiles.
        frame: frame of these tiles, whose origin is the middle of the patch.
    """
    root = tile.to_record(frame.scale)
    return _tileset(_unloaded(root), {"transform": frame.transform.T.ravel().tolist(), **root})


def of_scene(
    patches: Mapping[str, tuple[str, Mapping[str, Any]]], counters: Mapping[str, TiledPatch]
) -> dict[str, Any]:
    """Return the content of the root's tileset.json as a JSON object, with one child per patch, in order.

    Args:
        patches: path of each patch's tileset.json, relative to the root's folder, and its content; at least one patch.
        counters: record of each patch's tiles, which its child carries as `extras`.
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
    """Existing working folder, on the same disk as `folder`."""
    crs: str
    """Coordinate reference system of the reconstruction, as "EPSG:32632"; empty: its place on Earth is unknown."""
    telling: PipeWriter
    """Receiver of progress, and of messages on patches whose tiles are damaged on disk."""

    def write(self, splats: Sequence[PublishedSplat], before: PublishedFile) -> PublishedFile:
        """Write the tiles of changed or damaged patches, then the root's tileset.json; return the record of all tiles.

        Tiles of other patches in the folder stay in the tileset, unless the tileset is of the merged scene.

        Args:
            splats: the merged scene alone, or splats of patches.
            before: the record of the tiles that are already in the folder; blank: there are none.

        Raises:
            OutputError: a splat cannot be read or tiled, or a kept tileset.json is damaged; colours of the patches have
                different degrees; or the folder holds tiles of the scene instead of patches, or vice versa.
            ConfigError: the CRS is not known, is not usable, or does not fit the place of the scene.
            TrainerError: a CRS is given, and pyproj is not installed.
            OSError: files cannot be written.
        """
        known, of = before.tiles or TilesRecord(), SCENE if splats[0].name == SCENE else PATCHES
        if before.of not in ("", of):
            message = f"{self.folder}: holds the tiles of {'the scene' if before.of == SCENE else before.of}"
            raise OutputError(
                message, f"Name another folder for the tiles of {of}: in this one, viewers would draw everything twice."
            )
        parts = {part.name: (splat, part) for splat in splats for part in splat.parts}
        ground, placed = self.ground(splats, known)
        _check_degree({name: splat for name, (splat, _) in parts.items()}, known)
        tiled = dict(known.patches) if of == PATCHES else {}
        for name, (splat, part) in parts.items():
            if part.num_gaussians:
                tiled[name] = self._patch(name, splat, part, known.patches.get(name, TiledPatch()), ground)
        patches = {name: (f"{quote(name)}/{one.key}/{ROOT}", self._tileset(name, one)) for name, one in tiled.items()}
        write_object(self.folder / ROOT, of_scene(patches, tiled))
        self._sweep(tiled, known.patches)
        keys = {splat.name: key_of_tiles(splat, tiled) for splat in splats}
        losses = {name: one for name, one in known.losses.items() if keys.get(name, one.key) == one.key}
        degree = max(splat.header.sh_degree for splat in splats)
        return PublishedFile(
            kind=TILES,
            of=of,
            key=hash_of([sorted((name, one.key) for name, one in tiled.items())]),
            bytes_before=sum(4 * len(splat.header.properties) * part.num_gaussians for splat, part in parts.values()),
            num_gaussians=sum(one.num_gaussians for one in tiled.values()),
            notes=() if self.crs else (NOWHERE,),
            tiles=replace(placed, sh_degree=degree, patches=tiled, losses=losses),
        )

    def ground(self, splats: Sequence[PublishedSplat], known: TilesRecord) -> tuple[EnuFrame, TilesRecord]:
        """Return the frame of the tiles, and its record; both keep the middle and up direction of earlier tiles.

        Without earlier tiles in the same CRS, the middle is the median of a sample of all Gaussians. Up is then
        estimated from the cameras of the first splat.

        Args:
            splats: all splats to publish, at least one.
            known: record of earlier tiles; blank: there are none.

        Raises:
            ConfigError: the CRS is not known, is not usable, or does not fit the place of the scene.
            TrainerError: a CRS is given, and pyproj is not installed.
            OutputError: a splat cannot be read.
        """
        middle = known.middle if known.middle and known.crs == self.crs else None
        if middle is None:
            means = []
            for splat in splats:
                with reading(splat.path):
                    means.append(sample_rows(splat.path).astype(np.float64) + splat.offset)
            middle = triple(np.round(np.median(np.concatenate(means), axis=0)).tolist())
        if self.crs:
            return on_globe(self.crs, np.array(middle)), TilesRecord(self.crs, middle)
        up = known.up or triple(up_by_cameras(images_of(splats[0])).tolist())
        return upright(up), TilesRecord("", middle, up)

    def write_back(self, splat: PublishedSplat, tiles: TilesRecord, target: Path) -> None:
        """Decode the finest tiles of a splat from their files and write them as one PLY, to measure what they lose.

        The PLY is in the splat's coordinates; an earlier file is replaced.

        Args:
            splat: the splat.
            tiles: record of the published tiles, with all parts of the splat.
            target: path of the PLY.

        Raises:
            OutputError: a tile cannot be read, the tiles do not hold all Gaussians of the splat, or the PLY cannot be
                written.
            ConfigError: the CRS of the scene is not known, is not usable, or does not fit its place.
            TrainerError: the scene has a CRS, and pyproj is not installed.
            KeyError: `tiles` lacks a part of the splat.
        """
        ground, _ = self.ground([splat], tiles)
        roots = [self.folder / part.name / tiles.patches[part.name].key / ROOT for part in splat.parts_with_any()]
        pieces = (piece for root in roots for piece in leaves(root, ground, np.array(splat.offset)))
        try:
            write_pieces(target, splat.num_gaussians, splat.header.sh_degree, pieces)
        except (OSError, ValueError, KeyError) as error:
            message = f"{splat.name}: its tiles cannot be read back ({error})"
            raise OutputError(message, "Publish again with --force.") from error

    def _patch(
        self, name: str, splat: PublishedSplat, part: SourcePart, known: TiledPatch, ground: EnuFrame
    ) -> TiledPatch:
        """Write the tiles of a patch, unless they are up to date; return their record."""
        facts = [ground.crs, ground.rotation.tolist(), ground.scale]
        key = key_of(VERSION, part.key, splat.header.sh_degree, splat.offset, facts, MOST_PER_TILE)
        place = self.folder / name / key
        recorded = known.key if (place / ROOT).is_file() else None
        match compare_product(key, recorded, place=place, parts=known.sha256):
            case UpToDate():
                return known
            case Damaged(parts=files):
                self.telling.say(f"tiles of {name}: damaged on disk: written again ({files})")
        aside = self.work / f"tiles-{key}"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        num_tiles = self._write_tiles(name, splat, part, ground, aside)
        place.parent.mkdir(parents=True, exist_ok=True)
        put(aside, place)
        return TiledPatch(key, part.num_gaussians, num_tiles, folder_bytes(place), hashes_in(place))

    def _write_tiles(self, name: str, splat: PublishedSplat, part: SourcePart, ground: EnuFrame, aside: Path) -> int:
        """Write the tiles of a patch into the folder `aside`; return the number of tiles."""
        gaussians = read_part(part)
        means = gaussians.means.astype(np.float64) + splat.offset
        frame = ground.around(np.round(np.median(gaussians.means, axis=0).astype(np.float64) + np.array(splat.offset)))
        tiling = Tiling(
            replace(gaussians, means=frame.places(means).astype(np.float32)),
            aside,
            most=MOST_PER_TILE,
            is_antialiased=splat.header.antialiased is True,
            done=lambda num: self.telling.advance(name, num, part.num_gaussians),
        )
        try:
            above_all = tiling.tiles()
        except ValueError as error:
            raise OutputError(
                f"{name}: {error}", "Leave such Gaussians out of the scene: splatbatch merge --clean."
            ) from error
        (aside / ROOT).write_text(json.dumps(of_patch(above_all, frame)), encoding="utf-8")
        return sum(1 for _ in above_all.every())

    def _tileset(self, name: str, one: TiledPatch) -> dict[str, Any]:
        path = self.folder / name / one.key / ROOT
        found = read_json(path)
        if found is None or one.sha256.get(ROOT) not in (None, sha256_of(path)):
            raise OutputError(f"{path}: damaged on disk", f"Publish the tiles of {name} again, too.")
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


def key_of_tiles(splat: PublishedSplat, tiled: Mapping[str, TiledPatch]) -> str:
    """Return a hash that changes if any tile of a splat changes.

    Args:
        splat: the splat.
        tiled: record of the tiles of each of its patches, by name.

    Raises:
        KeyError: a patch of the splat has no record.
    """
    return hash_of([[tiled[part.name].key for part in splat.parts_with_any()]])


def _check_degree(splats: Mapping[str, PublishedSplat], known: TilesRecord) -> None:
    """Check that all patches have one SH degree: CesiumJS draws a tileset of several degrees in wrong colours.

    Raises:
        OutputError: the degrees differ.
    """
    degrees = {name: splat.header.sh_degree for name, splat in splats.items()}
    if known.sh_degree is not None and set(known.patches) - set(degrees):
        degrees["tiles that are there"] = known.sh_degree
    if len(set(degrees.values())) > 1:
        said = ", ".join(f"{name} {degree}" for name, degree in degrees.items())
        hint = "Publish the merged scene, whose patches have one degree; or train all with one training.sh_degree."
        raise OutputError(f"tiles: patches of different training.sh_degree cannot be drawn together: {said}", hint)
