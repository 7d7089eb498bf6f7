"""Where 3D points fall on the photographs, and how far that is from their keypoints: the honest measure of a repair."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splatbatch.scene.colmap.reconstruction import Reconstruction, read_points2d
from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera, Floats


@dataclass(frozen=True)
class ReprojectionError:
    """Mean over all observations in front of their camera."""

    mean_px: float
    num_observations: int


def reprojection_error(model: Reconstruction) -> ReprojectionError | None:
    """Return the error computed anew from poses, cameras and points; None where no keypoint has a point.

    The errors stored with the points are not used: they are stale after most edits.

    Raises:
        ModelError: the keypoints cannot be read.
    """
    order = np.argsort(model.points.ids)
    ids, total, count = model.points.ids[order], 0.0, 0
    keypoints = read_points2d(model.folder)
    for image in model.images:
        seen = keypoints[image.id]
        places = np.searchsorted(ids, seen.point3d_ids)
        is_known = places < len(ids)
        is_known[is_known] = ids[places[is_known]] == seen.point3d_ids[is_known]
        matrix = image.world_to_camera()
        with np.errstate(all="ignore"):
            points = model.points.xyz[order[places[is_known]]] @ matrix[:3, :3].T + matrix[:3, 3]
        is_ahead = points[:, 2] > 0
        pixels = project(model.cameras[image.camera_id], points[is_ahead])
        distances = np.linalg.norm(pixels - seen.xy[is_known][is_ahead], axis=1)
        distances = distances[np.isfinite(distances)]
        total, count = total + float(distances.sum()), count + len(distances)
    return ReprojectionError(total / count, count) if count else None


def project(camera: Camera, points: Floats) -> Floats:
    """Return the pixels [N, 2] of points [N, 3] in camera coordinates with z > 0.

    Formulas: colmap/src/colmap/sensor/models.h. Rare models go through pycolmap, one camera at a time and without
    any file, so that nothing broken reaches its C++.
    """
    model = CAMERA_MODELS.get(camera.model)
    if model is None or len(model.params) != len(camera.params):
        return np.full((len(points), 2), np.nan)
    known = dict(zip(model.params, camera.params, strict=True))
    with np.errstate(all="ignore"):
        uv = points[:, :2] / points[:, 2:]  # [N, 2]
        if camera.model in _RADIAL:
            distorted = _radial(uv, known)
        elif camera.model in _FISHEYE:
            distorted = _fisheye(uv, known)
        else:
            return _by_pycolmap(camera, points)
    return distorted * (camera.fx, camera.fy) + (camera.cx, camera.cy)


_RADIAL = frozenset({"SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "FULL_OPENCV"})
_FISHEYE = frozenset({"SIMPLE_FISHEYE", "FISHEYE", "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE", "OPENCV_FISHEYE"})


def _radial(uv: Floats, known: dict[str, float]) -> Floats:
    k1, k2 = known.get("k", known.get("k1", 0.0)), known.get("k2", 0.0)
    p1, p2 = known.get("p1", 0.0), known.get("p2", 0.0)
    square = (uv**2).sum(axis=1, keepdims=True)  # [N, 1]
    cross = (uv[:, :1] * uv[:, 1:]) * 2
    tangential = cross * (p1, p2) + (square + 2 * uv**2) * (p2, p1)
    k3, k4, k5, k6 = (known.get(name, 0.0) for name in ("k3", "k4", "k5", "k6"))
    numerator = 1 + square * (k1 + square * (k2 + square * k3))
    denominator = 1 + square * (k4 + square * (k5 + square * k6))
    moved: Floats = uv * (numerator / denominator) + tangential
    return moved


def _fisheye(uv: Floats, known: dict[str, float]) -> Floats:
    radius = np.linalg.norm(uv, axis=1, keepdims=True)
    theta = np.arctan(radius)
    factors = [known.get("k", known.get("k1", 0.0)), *(known.get(name, 0.0) for name in ("k2", "k3", "k4"))]
    bent = theta * (1 + sum(factor * theta ** (2 * power) for power, factor in enumerate(factors, start=1)))
    moved: Floats = uv * np.where(radius > 0, bent / np.where(radius > 0, radius, 1.0), 1.0)
    return moved


def _by_pycolmap(camera: Camera, points: Floats) -> Floats:
    import pycolmap

    size = {"width": camera.width, "height": camera.height}
    theirs = pycolmap.Camera({"model": camera.model, **size, "params": np.array(camera.params)})
    pixels = [theirs.img_from_cam(point) for point in points]
    missing = np.full(2, np.nan)
    return np.array([missing if pixel is None else pixel for pixel in pixels], dtype=np.float64).reshape(-1, 2)
