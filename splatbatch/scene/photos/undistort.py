"""Undistortion of photographs: the pinhole camera of the undistorted photograph, and the source of each of its pixels.

The distortion is pycolmap's (`reprojection.project`). Its inverse is computed here, because pycolmap's `cam_from_img`
does not say where a lens folds over (maps two rays to one pixel). As in COLMAP's own undistorter, focal lengths stay,
so that a pixel in the middle of the photograph keeps its size. A pinhole stretches the margin of a fisheye's view by
1 / cos^2 of the angle to the axis, which is 4 at 60 degrees; the view is cut at that angle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from splatbatch.errors import SceneError
from splatbatch.scene.colmap.files import load_pycolmap
from splatbatch.scene.colmap.types import CAMERA_MODELS, PINHOLE_MODELS, Camera, Floats
from splatbatch.scene.reprojection import project

_FISHEYES = frozenset(name for name in CAMERA_MODELS if name.endswith("FISHEYE"))
UNDISTORTED_MODELS = _FISHEYES | {"SIMPLE_RADIAL", "RADIAL", "OPENCV", "FULL_OPENCV"}
UNDISTORT = "colmap image_undistorter --image_path images --input_path sparse/0 --output_path undistorted"
_PER_EDGE = 65  # places looked at along each edge: both ends and the middle, where extremes lie, among them
_NEWTON_STEPS = 30
_SMALL = 1e-6  # in units of the focal length
_SOLVED_PX = 1e-4
_MOST_GROWTH, _LEAST_LEFT = 0.5, 0.5  # of a side: beyond it, a lens is no business of a pinhole
_WIDEST = np.tan(np.deg2rad(60))  # of a fisheye, to each side of its axis


def is_distorted(camera: Camera) -> bool:
    """Return whether a camera distorts, so that its photographs must be undistorted.

    False for pinhole models, and for perspective models whose distortion coefficients are all 0. True for all fisheyes,
    and for models that cannot be undistorted.
    """
    if camera.model in PINHOLE_MODELS:
        return False
    first = 4 if camera.model in {"OPENCV", "FULL_OPENCV"} else 3
    return camera.model in _FISHEYES or camera.model not in UNDISTORTED_MODELS or any(camera.params[first:])


def load_lenses(cameras: Iterable[Camera]) -> None:
    """Import pycolmap if any camera is distorted; to be called once, before threads start to undistort."""
    if any(map(is_distorted, cameras)):
        load_pycolmap()


@lru_cache(maxsize=4096)
def undistorted_camera(camera: Camera) -> Camera:
    """Return the PINHOLE camera, with the same id, of the undistorted photograph: the largest without black borders.

    Focal lengths stay; width, height and principal point change. The view of a fisheye is cut to 120 degrees in width
    and height; no view reaches more than half a side beyond an edge. Without distortion the size stays, too.

    Raises:
        SceneError: the camera model is not supported, the distortion is too strong for a pinhole, or the lens folds
            over inside the photograph. Or a fisheye's photograph shows 180 degrees or more, or the camera has another
            number of parameters than its model.
    """
    if camera.model not in UNDISTORTED_MODELS | PINHOLE_MODELS:
        raise _refused(camera, "not supported")
    pinhole = camera.pinhole
    if not is_distorted(camera):
        return Camera(camera.id, "PINHOLE", *camera.size, pinhole)
    left, top, right, bottom = _box(camera)
    if right - left < _LEAST_LEFT * camera.width or bottom - top < _LEAST_LEFT * camera.height:
        raise _refused(camera, "the distortion is too strong")
    params = (camera.fx, camera.fy, camera.cx - left, camera.cy - top)
    return Camera(camera.id, "PINHOLE", right - left, bottom - top, params)


def sources(camera: Camera, straight: Camera) -> NDArray[np.float32]:
    """Return where each pixel of an undistorted photograph lies in the distorted one, [2, H, W]: row, then column.

    Both are fractional indices: 0 is the middle of the first pixel.

    Args:
        camera: camera of the distorted photograph.
        straight: pinhole camera of the undistorted photograph, of H rows and W columns, from `undistorted_camera`.
    """
    places = np.empty((2, straight.height, straight.width), np.float32)
    x = (np.arange(straight.width) + 0.5 - straight.cx) / straight.fx
    for row in range(straight.height):
        y = (row + 0.5 - straight.cy) / straight.fy
        places[:, row] = project(camera, np.stack([x, np.full_like(x, y), np.ones_like(x)], axis=1)).T[::-1] - 0.5
    return places


def undistorted_rays(camera: Camera, pixels: Floats) -> Floats:
    """Return the rays (x / z, y / z) of a camera's pixels, [N, 2]; NaN for pixels without a ray.

    Such pixels lie where the lens folds over.

    Args:
        camera: a camera with two focal lengths or one, and a model in `UNDISTORTED_MODELS` or a pinhole.
        pixels: x and y, [N, 2].
    """
    start = (pixels - (camera.cx, camera.cy)) / (camera.fx, camera.fy)  # the pinhole's
    if camera.model in _FISHEYES:
        angles = unbent(partial(_at_angles, camera), start, pixels)
        size = np.linalg.norm(angles, axis=1, keepdims=True)
        return angles * np.sinc(size / np.pi) / np.cos(size)
    return unbent(lambda rays: project(camera, np.concatenate([rays, np.ones((len(rays), 1))], axis=1)), start, pixels)


def _at_angles(camera: Camera, angles: Floats) -> Floats:
    """Return the pixels [N, 2] of rays given by their angles from the axis along x and y, in radians, [N, 2]."""
    size = np.linalg.norm(angles, axis=1, keepdims=True)
    return project(camera, np.concatenate([angles * np.sinc(size / np.pi), np.cos(size)], axis=1))


@np.errstate(all="ignore")
def unbent(bend: Callable[[Floats], Floats], rays: Floats, pixels: Floats) -> Floats:
    """Return the rays [N, 2] that a lens maps to given pixels, by Newton's method; NaN for pixels without a ray.

    A ray is accepted only if it meets its pixel within 1e-4 px. Between the axis and the ray the lens must not fold
    over.

    Args:
        bend: function of the lens, from rays [N, 2] to pixels [N, 2].
        rays: start values, [N, 2].
        pixels: the pixels, [N, 2].
    """
    for _ in range(_NEWTON_STEPS):
        missing = pixels - bend(rays)
        if np.abs(missing).max(initial=0.0) < _SOLVED_PX / 100:
            break
        (a, b), (c, d) = _jacobian(bend, rays).transpose(1, 2, 0)
        x, y = missing.T
        step = np.stack([d * x - b * y, a * y - c * x], axis=1) / (a * d - b * c)[:, None]  # Cramer's rule
        rays = rays + np.clip(np.nan_to_num(step, posinf=0.0, neginf=0.0), -0.5, 0.5)
    is_solved = np.linalg.norm(bend(rays) - pixels, axis=1) < _SOLVED_PX
    for share in np.linspace(0, 1, 9):
        is_solved &= np.linalg.det(_jacobian(bend, share * rays)) > 0
    return np.where(is_solved[:, None], rays, np.nan)


def _box(camera: Camera) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of the undistorted photograph, in whole pixels of the pinhole."""
    size, share = camera.size, np.linspace(0, 1, _PER_EDGE)
    near, far = np.zeros(_PER_EDGE), np.ones(_PER_EDGE)
    shares = [(near, share), (share, near), (far, share), (share, far)]
    pixels = np.stack([np.stack(edge, axis=1) for edge in shares]) * size  # [4, n, 2]
    rays = undistorted_rays(camera, pixels.reshape(-1, 2)).reshape(pixels.shape)
    if np.isnan(rays).any():
        if camera.model in _FISHEYES:
            raise _refused(camera, "the photograph shows 180 degrees or more, or the lens folds over inside it")
        raise _refused(camera, "the distortion folds over inside the photograph")
    widest = _WIDEST if camera.model in _FISHEYES else np.inf
    reached = np.clip(rays, -widest, widest) * (camera.fx, camera.fy) + (camera.cx, camera.cy)
    starts = [np.ceil(reached[axis, :, axis].max() - _SOLVED_PX) for axis in (0, 1)]
    ends = [np.floor(reached[axis + 2, :, axis].min() + _SOLVED_PX) for axis in (0, 1)]
    left, top = (max(int(starts[axis]), round(-_MOST_GROWTH * size[axis])) for axis in (0, 1))
    right, bottom = (min(int(ends[axis]), round((1 + _MOST_GROWTH) * size[axis])) for axis in (0, 1))
    return left, top, right, bottom


def _jacobian(bend: Callable[[Floats], Floats], rays: Floats) -> Floats:
    """Return d pixel / d ray [N, 2, 2] by central differences."""
    columns = [bend(rays + shift) - bend(rays - shift) for shift in np.eye(2) * _SMALL]
    return np.nan_to_num(np.stack(columns, axis=2) / (2 * _SMALL), posinf=0.0, neginf=0.0)


def _refused(camera: Camera, why: str) -> SceneError:
    return SceneError(
        f"camera {camera.id}: camera model {camera.model}: {why}: undistort the photographs first",
        f"Undistort photographs and model together: {UNDISTORT}",
    )
