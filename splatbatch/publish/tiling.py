"""The tiles of what is published: where they lie on the globe, which patches they have, and which are written anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from splatbatch.config import Offset
from splatbatch.errors import OutputError, SceneError
from splatbatch.fields import mapping, number
from splatbatch.publish.formats import TILES
from splatbatch.publish.record import Output
from splatbatch.publish.rows import WIDEST_DEGREE
from splatbatch.publish.source import SCENE, Part, Published, key_of
from splatbatch.publish.tiles.geodesy import Ground, on_globe, upright
from splatbatch.publish.tiles.write import Tiled, Tiles
from splatbatch.report.viewer.initial_camera import up_of
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.splats.blocks import sample_means

COLMAP_UP = (0.0, -1.0, 0.0)
NOWHERE = "scene.crs is not set: the tiles lie nowhere on Earth, with the sky above"
PATCHES = "patches"
"""What tiles hold that were made of patches, not of the merged scene."""


@dataclass(frozen=True)
class Place:
    """Where tiles go."""

    folder: Path
    work: Path
    crs: str
    """Empty: nowhere on Earth."""
    done: Callable[[str, int, int], None]


def tile(splats: Sequence[Published], place: Place, before: Output) -> Output:
    """Write the tiles of splats that have changed; return what publish.json says of all.

    Raises:
        OutputError: a patch cannot be tiled, or the folder holds tiles of another kind.
        ConfigError: the CRS is none, or the scene lies outside its area.
        MissingPartError: pyproj is not installed.
    """
    of = SCENE if any(splat.name == SCENE for splat in splats) else PATCHES
    known = {name: Tiled.from_record(one) for name, one in mapping(before.details.get("patches")).items()}
    if before.kind and before.of != of:
        message = f"{place.folder}: holds the tiles of {'the scene' if before.of == SCENE else before.of}"
        raise OutputError(message, f"Name another folder for those of {of}: they would be drawn twice.")
    parts = _parts(splats)
    ground, placed = _ground(splats, place.crs, mapping(before.details.get("ground")))
    _see_one_degree({name: splat for name, (splat, _) in parts.items()}, before, known)
    tiled = Tiles(place.folder, place.work, ground, place.done).write(parts, known, keeps=of == PATCHES)
    degree = max([_degree(splat) for splat in splats])
    return Output(
        kind=TILES,
        of=of,
        key=key_of(sorted((name, one.key) for name, one in tiled.items())),
        bytes_before=sum(4 * len(splat.header.properties) * part.num_gaussians for splat, part in parts.values()),
        num_gaussians=sum(one.counters.num_gaussians for one in tiled.values()),
        notes=() if place.crs else (NOWHERE,),
        details={
            "ground": placed,
            "sh_degree": degree,
            "patches": {name: one.to_record() for name, one in tiled.items()},
        },
    )


def _parts(splats: Sequence[Published]) -> dict[str, tuple[Published, Part]]:
    """Return what becomes a tileset of its own: of the scene each of its patches, else every splat."""
    whole = [splat for splat in splats if splat.name == SCENE] or splats
    return {part.name: (splat, part) for splat in whole for part in splat.parts}


def _degree(splat: Published) -> int:
    return min(splat.header.sh_degree, WIDEST_DEGREE)


def _see_one_degree(splats: Mapping[str, Published], before: Output, known: Mapping[str, Tiled]) -> None:
    """See that all patches of a tileset have colours of one degree: CesiumJS draws others in wrong colours.

    Raises:
        OutputError: they have not.
    """
    degrees = {name: _degree(splat) for name, splat in splats.items()}
    kept = number(before.details.get("sh_degree"))
    if kept is not None and set(known) - set(degrees):
        degrees["tiles that are there"] = int(kept)
    if len(set(degrees.values())) > 1:
        said = ", ".join(f"{name} {degree}" for name, degree in degrees.items())
        hint = "Publish the merged scene, whose patches have one; or train all with one training.sh_degree."
        raise OutputError(f"tiles: patches with colours of several degrees cannot be drawn together: {said}", hint)


def _ground(splats: Sequence[Published], crs: str, before: Mapping[str, Any]) -> tuple[Ground, dict[str, Any]]:
    """Return where the scene lies, and what publish.json says of it: the same again where tiles are there already."""
    said = [number(value) for value in before.get("middle") or ()]
    middle = tuple(value for value in said if value is not None)
    if before.get("crs", "") != crs or len(middle) != 3:
        middle = _middle(splats)
    if crs:
        return on_globe(crs, np.array(middle)), {"crs": crs, "middle": list(middle)}
    ups = [value for value in map(number, before.get("up") or ()) if value is not None]
    up: Offset = (ups[0], ups[1], ups[2]) if len(ups) == 3 else _up(splats[0])
    return upright(up), {"crs": "", "middle": list(middle), "up": list(up)}


def _middle(splats: Sequence[Published]) -> Offset:
    """Return the middle of a scene in coordinates of its model, in whole units."""
    means = np.concatenate([sample_means(splat.path).astype(np.float64) + splat.offset for splat in splats])
    x, y, z = np.round(np.median(means, axis=0)).tolist()
    return (x, y, z)


def _up(splat: Published) -> Offset:
    """Return where the sky is, by the cameras."""
    try:
        images = read_images(Path(splat.views.sparse))
    except (SceneError, OSError, ValueError):
        return COLMAP_UP
    x, y, z = up_of(images).tolist() if images else COLMAP_UP
    return (x, y, z)
