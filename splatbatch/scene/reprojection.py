"""Projects 3D points into photographs, and measures how far their pixels lie from keypoints, for audit and fixes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from splatbatch.scene.colmap.files import load_pycolmap
from splatbatch.scene.colmap.reconstruction import Reconstruction, read_points2d
from splatbatch.scene.colmap.types import NONE, PINHOLE_MODELS, Camera, Floats, Mask, finite, places_in


@dataclass(frozen=True)
class ReprojectionError:
    """Mean reprojection error of a model in pixels, over all observations whose point lies in front of the camera."""

    mean_px: float
    num_observations: int


def reprojection_error(model: Reconstruction) -> ReprojectionError | None:
    """Return the mean error of a model, computed from poses, cameras and points.

    None if no keypoint has a point in front of its camera, or the camera models are unknown or have another number of
    parameters. The errors that the model file stores with its points are not used: after most edits they are out of
    date.

    Raises:
        ModelError: images.bin (or .txt), which holds the keypoints, cannot be read.
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
    """Return the pixels [N, 2] of points [N, 3] in camera coordinates.

    NaN (for SIMPLE_DIVISION and DIVISION also infinity) for points behind the camera, which only a panorama shows. NaN
    for all points if the camera model is unknown or has another number of parameters. pycolmap computes the pixels,
    except for pinholes: importing pycolmap takes half a second, which most scenes do not need.
    """
    if camera.model in PINHOLE_MODELS and camera.is_known:
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
    """Return where the rays of pixels [N, 2] cross the plane z = 1 of the camera, [N, 2].

    NaN if the camera model is unknown or has another number of parameters. For rays that lead behind the camera, as of
    a wide fisheye, the result means nothing.
    """
    theirs = in_pycolmap(camera)
    if theirs is None:
        return np.full((len(pixels), 2), np.nan)
    return np.asarray(theirs.cam_from_img(np.ascontiguousarray(pixels, np.float64)), np.float64)[:, :2]


def in_picture(camera: Camera, local: Floats) -> tuple[Mask, Floats]:
    """Return which points lie in a photograph, [N], and the pixels of all points, [N, 2].

    Args:
        camera: camera of the photograph.
        local: points in camera coordinates, [N, 3]; points behind the camera lie in no photograph.
    """
    pixels = project(camera, local)
    with np.errstate(invalid="ignore"):
        inside = ((pixels >= 0) & (pixels < camera.size)).all(axis=1) & (local[:, 2] > 0)
    return np.asarray(inside), pixels


@lru_cache(maxsize=4096)
def in_pycolmap(camera: Camera) -> Any:
    """Return the camera as a pycolmap.Camera, with width and height of 1.

    None if the camera model is unknown or has another number of parameters. Cached for 4,096 cameras.
    """
    if not camera.is_known:
        return None
    return load_pycolmap().Camera({"model": camera.model, "width": 1, "height": 1, "params": np.array(camera.params)})
