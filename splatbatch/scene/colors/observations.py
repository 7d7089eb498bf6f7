"""Which photograph sees which points, and where: the keypoints of the tracks of one model, or of several together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from splatbatch.scene.colmap.files import ModelError
from splatbatch.scene.colmap.reconstruction import read_cameras, read_images, read_points2d
from splatbatch.scene.colmap.types import NO_POINT3D, Camera, Floats, Ints
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.folders import find_masks
from splatbatch.scene.photos.resolution import stored_photographs

LEAST = 50
"""Observations from which a gain can be told: one is right within about 10 %, the mean of 50 within 1.5 %."""


@dataclass(frozen=True, eq=False)
class Shot:
    """A photograph with the keypoints of its tracks."""

    name: str
    path: Path
    camera: Camera
    xy: Floats  # [N, 2] in pixels of the camera
    points: Ints  # [N], numbers of points, over all models
    mask: Path | None = None
    problem: str = ""
    """Why nothing can be told of it, whatever is seen."""


def shots_of(patches: Iterable[Patch]) -> dict[str, Shot]:
    """Return the photographs of patches by name; what several patches see of one is put together.

    Only points that two photographs see are kept.

    Raises:
        ModelError: every model is missing, unreadable, cut or garbage.
    """
    found: dict[str, Shot] = {}
    num_points = 0
    patches, errors = tuple(patches), list[ModelError]()
    for patch in patches:
        try:
            shots = _shots_of(patch)
        except ModelError as error:  # the audit's to report: the others are solved without it
            errors.append(error)
            continue
        for shot in shots:
            moved = replace(shot, points=shot.points + num_points)
            found[shot.name] = _together(found[shot.name], moved) if shot.name in found else moved
        num_points = 1 + max((int(shot.points.max()) for shot in found.values() if len(shot.points)), default=-1)
    if errors and len(errors) == len(patches):
        raise errors[0]
    return _in_tracks(found)


def _shots_of(patch: Patch) -> list[Shot]:
    cameras, images, keypoints = read_cameras(patch.sparse), read_images(patch.sparse), read_points2d(patch.sparse)
    folder, _ = stored_photographs(patch.images)
    masks = find_masks(patch.masks, [image.name for image in images])
    shots = []
    for image in images:
        seen = keypoints[image.id]
        has_point = (seen.point3d_ids != NO_POINT3D) & np.isfinite(seen.xy).all(axis=1)
        if image.camera_id in cameras:
            place, mask = folder / image.name, masks.get(image.name)
            ids = seen.point3d_ids[has_point]
            shots.append(Shot(image.name, place, cameras[image.camera_id], seen.xy[has_point], ids, mask))
    return _numbered(shots)


def _numbered(shots: list[Shot]) -> list[Shot]:
    """Return photographs whose points are numbered from 0 on: ids go up to 2 to the 64th."""
    ids = np.concatenate([np.zeros(0, np.uint64), *(shot.points for shot in shots)])
    numbers = np.unique(ids, return_inverse=True)[1].astype(np.int64)
    ends = np.cumsum([len(shot.points) for shot in shots], dtype=np.int64)[:-1]
    return [replace(shot, points=part) for shot, part in zip(shots, np.split(numbers, ends), strict=True)]


def _together(first: Shot, second: Shot) -> Shot:
    if first.path != second.path and not _is_same_file(first.path, second.path):
        return replace(first, problem=f"another photograph has its name: {second.path}")
    xy, points = np.concatenate([first.xy, second.xy]), np.concatenate([first.points, second.points])
    return replace(first, xy=xy, points=points)


def _is_same_file(first: Path, second: Path) -> bool:
    """Return whether two files seem to be the same, or one of them is not there to tell."""
    try:
        return first.stat().st_size == second.stat().st_size
    except OSError:
        return True


def _in_tracks(shots: Mapping[str, Shot]) -> dict[str, Shot]:
    """Return photographs with the points alone that another photograph sees, too."""
    if not shots:
        return {}
    counts = np.bincount(np.concatenate([np.unique(shot.points) for shot in shots.values()]))
    return {name: _only(shot, counts[shot.points] > 1) for name, shot in shots.items()}


def _only(shot: Shot, which: object) -> Shot:
    chosen = np.asarray(which, dtype=bool)
    return replace(shot, xy=shot.xy[chosen], points=shot.points[chosen])
