"""The tiles of what is published: where they lie on the globe, which patches they have, and which are written anew."""

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
from splatbatch.publish.tiles.geodesy import EnuFrame, on_globe, upright
from splatbatch.publish.tiles.glb import leaves
from splatbatch.publish.tiles.write import ROOT, Tiles
from splatbatch.report.viewer.viewer import up_of
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.splats.blocks import sample_means
from splatbatch.splats.ply import write_pieces
from splatbatch.tasks.inspection import SCENE

COLMAP_UP = (0.0, -1.0, 0.0)
NOWHERE = "scene.crs is not set: the tiles have no place on Earth"
PATCHES = "patches"
"""What tiles hold that were made of patches, not of the merged scene."""


@dataclass(frozen=True)
class TilePlacement:
    """Where tiles go."""

    folder: Path
    work: Path
    crs: str
    """Empty: nowhere on Earth."""
    done: Callable[[str, int, int], None]
    say: Callable[[str], None] = lambda _: None
    """Told what was found damaged."""


def tile(splats: Sequence[PublishedSplat], place: TilePlacement, before: PublishedFile) -> PublishedFile:
    """Write the tiles of splats that have changed; return what publish.json says of all.

    Raises:
        OutputError: a patch cannot be tiled, or the folder holds tiles of another kind.
        ConfigError: the CRS is none, or the scene lies outside its area.
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
    """Return a hash of the tiles of a splat."""
    return hash_of([[tiled[part.name].key for part in splat.parts_with_any()]])


def write_back(splat: PublishedSplat, place: TilePlacement, tiles: TilesRecord, target: Path) -> None:
    """Write what the finest tiles of a splat hold as a splat again, from the files that lie in their folder.

    Raises:
        OutputError: one of them cannot be read, or Gaussians are missing.
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
    """Return what becomes a tileset of its own: of the scene each of its patches, else every splat."""
    whole = [splat for splat in splats if splat.name == SCENE] or splats
    return {part.name: (splat, part) for splat in whole for part in splat.parts}


def _see_one_degree(splats: Mapping[str, PublishedSplat], known: TilesRecord) -> None:
    """See that all patches of a tileset have colours of one degree: CesiumJS draws others in wrong colours.

    Raises:
        OutputError: they have not.
    """
    degrees = {name: splat.header.sh_degree for name, splat in splats.items()}
    if known.sh_degree is not None and set(known.patches) - set(degrees):
        degrees["tiles that are there"] = known.sh_degree
    if len(set(degrees.values())) > 1:
        said = ", ".join(f"{name} {degree}" for name, degree in degrees.items())
        hint = "Publish the merged scene, whose patches have one; or train all with one training.sh_degree."
        raise OutputError(f"tiles: patches with colours of several degrees cannot be drawn together: {said}", hint)


def _ground(splats: Sequence[PublishedSplat], crs: str, known: TilesRecord) -> tuple[EnuFrame, TilesRecord]:
    """Return where the scene lies, and what is written down of it: the same again where tiles are there already."""
    middle = known.middle if known.middle and known.crs == crs else _middle(splats)
    if crs:
        return on_globe(crs, np.array(middle)), TilesRecord(crs, middle)
    up = known.up or _up(splats[0])
    return upright(up), TilesRecord("", middle, up)


def _middle(splats: Sequence[PublishedSplat]) -> Offset:
    """Return the middle of a scene in coordinates of its model, in whole units."""
    means = np.concatenate([sample_means(splat.path).astype(np.float64) + splat.offset for splat in splats])
    x, y, z = np.round(np.median(means, axis=0)).tolist()
    return (x, y, z)


def _up(splat: PublishedSplat) -> Offset:
    """Return where the sky is, by the cameras."""
    try:
        images = read_images(Path(splat.views.sparse))
    except (SceneError, OSError, ValueError):
        return COLMAP_UP
    x, y, z = up_of(images).tolist() if images else COLMAP_UP
    return (x, y, z)
