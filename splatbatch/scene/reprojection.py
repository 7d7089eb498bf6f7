"""Projects 3D points into photographs, and measures their distance from keypoints; used to verify repairs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from splatbatch.scene.colmap.files import load_pycolmap
from splatbatch.scene.colmap.reconstruction import Reconstruction, read_points2d
from splatbatch.scene.colmap.types import CAMERA_MODELS, NONE, PINHOLE_MODELS, Camera, Floats, Mask, finite, places_in


@dataclass(frozen=True)
class ReprojectionError:
    """Mean reprojection error over all observations in front of their camera, in pixels."""

    mean_px: float
    num_observations: int


def reprojection_error(model: Reconstruction) -> ReprojectionError | None:
    """Return the error computed from poses, cameras and points; None where no keypoint has a point.

    The errors stored with the points are not used: they are stale after most edits.

    Raises:
        ModelError: the keypoints cannot be read.
    """
    total, count, keypoints = 0.0, 0, read_points2d(model.folder)
    rows = [keypoints[image.id] for image in model.images]
    named = np.concatenate([np.zeros(0, np.uint64), *(seen.point3d_ids for seen in rows)])
    ends = np.cumsum([len(seen.point3d_ids) for seen in rows])[:-1]
    for image, seen, places in zip(model.images, rows, np.split(places_in(model.points.ids, named), ends), strict=True):
        is_known = places != NONE
        matrix = image.world_to_camera()
        with np.errstate(all="ignore"):
            points = model.points.xyz[places[is_known]] @ matrix[:3, :3].T + matrix[:3, 3]
        is_ahead = points[:, 2] > 0
        pixels = project(model.cameras[image.camera_id], points[is_ahead])
        distances = finite(np.linalg.norm(pixels - seen.xy[is_known][is_ahead], axis=1))
        total, count = total + float(distances.sum()), count + len(distances)
    return ReprojectionError(total / count, count) if count else None


def project(camera: Camera, points: Floats) -> Floats:
    """Return the pixels [N, 2] of points [N, 3] in camera coordinates; NaN behind the camera or for an invalid model.

    The formulas are pycolmap's own, except for pinholes: importing it takes half a second, which most scenes do not
    need. Only the parameters reach its C++, as many as the model takes; no file and no size does.
    """
    if camera.model in PINHOLE_MODELS and len(camera.params) == len(CAMERA_MODELS[camera.model].params):
        with np.errstate(all="ignore"):
            depths = np.where(points[:, 2] >= np.finfo(np.float64).eps, points[:, 2], np.nan)
            x, y = points[:, 0] / depths, points[:, 1] / depths
            return np.array([camera.fx * x + camera.cx, camera.fy * y + camera.cy]).T
    theirs = in_pycolmap(camera)
    if theirs is None:
        return np.full((len(points), 2), np.nan)
    with np.errstate(all="ignore"):
        return np.asarray(theirs.img_from_cam(np.ascontiguousarray(points, np.float64)), np.float64)


def unproject(camera: Camera, pixels: Floats) -> Floats:
    """Return where the rays of pixels [N, 2] cross the plane z = 1 of the camera, [N, 2]; NaN for an invalid model."""
    theirs = in_pycolmap(camera)
    if theirs is None:
        return np.full((len(pixels), 2), np.nan)
    return np.asarray(theirs.cam_from_img(np.ascontiguousarray(pixels, np.float64)), np.float64)[:, :2]


def in_picture(camera: Camera, local: Floats) -> tuple[Mask, Floats]:
    """Return which points [N, 3] in camera coordinates lie in a photograph, and their pixels [N, 2]."""
    pixels = project(camera, local)
    with np.errstate(invalid="ignore"):
        inside = ((pixels >= 0) & (pixels < camera.size)).all(axis=1) & (local[:, 2] > 0)
    return np.asarray(inside), pixels


@lru_cache(maxsize=4096)
def in_pycolmap(camera: Camera) -> Any:
    """Return the camera as pycolmap's; None where its model is unknown or has another number of parameters."""
    model = CAMERA_MODELS.get(camera.model)
    if model is None or len(model.params) != len(camera.params):
        return None
    return load_pycolmap().Camera({"model": camera.model, "width": 1, "height": 1, "params": np.array(camera.params)})
