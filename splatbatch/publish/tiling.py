"""3D Tiles of published splats: their place on the globe, which patches they hold, which of them are rewritten."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from splatbatch.config import Offset
from splatbatch.errors import OutputError, SceneError
from splatbatch.hashing import hash_of
from splatbatch.output.records.publication import PublishedFile, TiledPatch, TilesRecord
from splatbatch.publish.formats import TILES
from splatbatch.publish.source import PublishedSplat, SourcePart
from splatbatch.publish.stage import COLMAP_UP
from splatbatch.publish.tiles.geodesy import EnuFrame, on_globe, upright
from splatbatch.publish.tiles.glb import leaves
from splatbatch.publish.tiles.write import ROOT, Tiles
from splatbatch.report.viewer.viewer import up_of
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.splats.blocks import sample_means
from splatbatch.splats.ply import write_pieces
from splatbatch.tasks.inspection import SCENE

NOWHERE = "scene.crs is not set: the tiles have no place on Earth"
PATCHES = "patches"
"""Value of `PublishedFile.of` for tiles of single patches; for tiles of the merged scene it is SCENE."""


@dataclass(frozen=True)
class TilePlacement:
    """Where tiles are written, and in which CRS the scene is placed."""

    folder: Path
    work: Path
    """Working folder on the same disk."""
    crs: str
    """CRS of the reconstruction; empty if the scene has no known place on Earth."""
    done: Callable[[str, int, int], None]
    """Called with the name of a patch, its Gaussians written so far, and their total number."""
    say: Callable[[str], None] = lambda _: None
    """Called with a message for each patch whose tiles are damaged on disk."""


def tile(splats: Sequence[PublishedSplat], place: TilePlacement, before: PublishedFile) -> PublishedFile:
    """Write the tiles of splats that have changed; return the record of all tiles for publish.json.

    Args:
        splats: all splats to publish; the merged scene alone is tiled if it is among them.
        place: the folder, and the CRS.
        before: the record of the tiles that are already in the folder.

    Raises:
        OutputError: a patch cannot be tiled, or the folder holds tiles of the scene instead of patches, or vice versa.
        ConfigError: the CRS is not known, or the scene lies outside its area.
        TrainerError: pyproj is not installed.
    """
    of = SCENE if any(splat.name == SCENE for splat in splats) else PATCHES
    known = before.tiles or TilesRecord()
    if before.of not in ("", of):
        message = f"{place.folder}: holds the tiles of {'the scene' if before.of == SCENE else before.of}"
        raise OutputError(message, f"Name another folder for those of {of}: they would be drawn twice.")
    parts = _parts(splats)
    ground, placed = _ground(splats, place.crs, known)
    _see_one_degree({name: splat for name, (splat, _) in parts.items()}, known)
    tiled = Tiles(place.folder, place.work, ground, place.done, place.say).write(
        parts, known.patches, keeps=of == PATCHES
    )
    keys = {splat.name: key_of_tiles(splat, tiled) for splat in splats}
    losses = {name: one for name, one in known.losses.items() if keys.get(name, one.key) == one.key}
    return PublishedFile(
        kind=TILES,
        of=of,
        key=hash_of([sorted((name, one.key) for name, one in tiled.items())]),
        bytes_before=sum(4 * len(splat.header.properties) * part.num_gaussians for splat, part in parts.values()),
        num_gaussians=sum(one.num_gaussians for one in tiled.values()),
        notes=() if place.crs else (NOWHERE,),
        tiles=replace(placed, sh_degree=max(splat.header.sh_degree for splat in splats), patches=tiled, losses=losses),
    )


def key_of_tiles(splat: PublishedSplat, tiled: Mapping[str, TiledPatch]) -> str:
    """Return a hash that changes if any tile of a splat changes."""
    return hash_of([[tiled[part.name].key for part in splat.parts_with_any()]])


def write_back(splat: PublishedSplat, place: TilePlacement, tiles: TilesRecord, target: Path) -> None:
    """Decode the finest tiles of a splat from their files and write them as one PLY, to measure what they lose.

    The PLY is in the splat's coordinates.

    Raises:
        OutputError: a tile cannot be read, or the tiles do not hold all Gaussians of the splat.
    """
    ground, _ = _ground([splat], place.crs, tiles)
    offset = np.array(splat.offset)
    roots = [place.folder / part.name / tiles.patches[part.name].key / ROOT for part in splat.parts_with_any()]
    pieces = (piece for root in roots for piece in leaves(root, ground, offset))
    try:
        write_pieces(target, splat.num_gaussians, splat.header.sh_degree, pieces)
    except (OSError, ValueError, KeyError) as error:
        raise OutputError(
            f"{splat.name}: its tiles do not read back ({error})", "Publish again with --force."
        ) from error


def _parts(splats: Sequence[PublishedSplat]) -> dict[str, tuple[PublishedSplat, SourcePart]]:
    """Return each part that becomes a tileset, by name: parts of the merged scene if given, else of all splats."""
    whole = [splat for splat in splats if splat.name == SCENE] or splats
    return {part.name: (splat, part) for splat in whole for part in splat.parts}


def _see_one_degree(splats: Mapping[str, PublishedSplat], known: TilesRecord) -> None:
    """Check that all patches have one SH degree: CesiumJS draws a tileset of several degrees in wrong colours.

    Raises:
        OutputError: the degrees differ.
    """
    degrees = {name: splat.header.sh_degree for name, splat in splats.items()}
    if known.sh_degree is not None and set(known.patches) - set(degrees):
        degrees["tiles that are there"] = known.sh_degree
    if len(set(degrees.values())) > 1:
        said = ", ".join(f"{name} {degree}" for name, degree in degrees.items())
        hint = "Publish the merged scene, whose patches have one; or train all with one training.sh_degree."
        raise OutputError(f"tiles: patches with colours of several degrees cannot be drawn together: {said}", hint)


def _ground(splats: Sequence[PublishedSplat], crs: str, known: TilesRecord) -> tuple[EnuFrame, TilesRecord]:
    """Return the frame of the tiles, and its record; both keep the middle and up direction of tiles already written."""
    middle = known.middle if known.middle and known.crs == crs else _middle(splats)
    if crs:
        return on_globe(crs, np.array(middle)), TilesRecord(crs, middle)
    up = known.up or _up(splats[0])
    return upright(up), TilesRecord("", middle, up)


def _middle(splats: Sequence[PublishedSplat]) -> Offset:
    """Return the median position of all Gaussians in the reconstruction's coordinates, rounded to whole units."""
    means = np.concatenate([sample_means(splat.path).astype(np.float64) + splat.offset for splat in splats])
    x, y, z = np.round(np.median(means, axis=0)).tolist()
    return (x, y, z)


def _up(splat: PublishedSplat) -> Offset:
    """Return the direction of the sky by the cameras; COLMAP's up if they cannot be read."""
    try:
        images = read_images(Path(splat.views.sparse))
    except (SceneError, OSError, ValueError):
        images = []
    x, y, z = (up_of(images) if images else COLMAP_UP).tolist()
    return (x, y, z)
