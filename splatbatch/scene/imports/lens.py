"""Converts lenses of other programs to COLMAP cameras: the simplest model of the same lens, else a fitted one.

The general lens here is Brown's with a radial polynomial up to r^8 and the terms that Metashape adds (skew B2, P3 and
P4): Agisoft Metashape User Manual, appendix "Camera models". OpenCV's own rational model needs no conversion.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera, Floats, finite
from splatbatch.scene.photos.headers import Size
from splatbatch.scene.photos.undistort import unbent
from splatbatch.scene.reprojection import project

Fitted = tuple[Camera, float]
"""A camera, and its largest difference from the lens in pixels; 0 where it is the same lens."""

_GRID = 25  # pixels along each side of the image
_SMALL = 1e-6
_WIDEST = np.radians(83)
_LARGEST_TERM, _HELD = 0.9, 0.1
_LEAST_SEEN, _LEAST_OF_CIRCLE = 0.999, 0.5
"""Share of the grid that a frame lens must reach, and a fisheye, whose circle may not fill the image."""
_TERMS = slice(4, 12)  # of FULL_OPENCV and OPENCV_FISHEYE: all but focal lengths and principal point


@dataclass(frozen=True)
class Lens:
    """A general lens: focal lengths, principal point in pixels from the top-left corner, and distortion."""

    fx: float
    fy: float
    cx: float
    cy: float
    k: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """Coefficients of the radial polynomial: r^2, r^4, r^6, r^8."""
    p: tuple[float, float] = (0.0, 0.0)
    """Tangential terms in OpenCV's order; Metashape's P1 is OpenCV's p2."""
    p_scale: tuple[float, float] = (0.0, 0.0)
    """Metashape's P3, P4: the tangential terms are multiplied by 1 + P3 r^2 + P4 r^4."""
    skew: float = 0.0
    """Metashape's B2: shift along x in pixels per unit of y."""
    bend: Literal["frame", "equidistant", "equisolid"] = "frame"

    def project(self, rays: Floats) -> Floats:
        """Return the pixels [N, 2] of rays [N, 2] given as x / z, y / z."""
        x, y = self._bent(rays).T
        r2 = x * x + y * y
        k1, k2, k3, k4 = self.k
        radial = 1 + r2 * (k1 + r2 * (k2 + r2 * (k3 + r2 * k4)))
        grown = 1 + r2 * (self.p_scale[0] + r2 * self.p_scale[1])
        p1, p2 = self.p
        x_bent = x * radial + (2 * p1 * x * y + p2 * (r2 + 2 * x * x)) * grown
        y_bent = y * radial + (p1 * (r2 + 2 * y * y) + 2 * p2 * x * y) * grown
        return np.stack([self.fx * x_bent + self.skew * y_bent + self.cx, self.fy * y_bent + self.cy], axis=1)

    def _bent(self, rays: Floats) -> Floats:
        if self.bend == "frame":
            return rays
        r = np.linalg.norm(rays, axis=1, keepdims=True)
        angle = np.arctan(r)
        reach = angle if self.bend == "equidistant" else 2 * np.sin(angle / 2)
        return rays * np.divide(reach, r, out=np.ones_like(r), where=r > 0)


@lru_cache(maxsize=256)
def camera_of(lens: Lens, size: Size) -> Fitted:
    """Return the COLMAP camera of a lens for images of a size, and its largest error in pixels; infinite: none fits."""
    lacks_a_model = bool(lens.k[3]) if lens.bend == "frame" else lens.bend == "equisolid"
    if lens.skew or any(lens.p_scale) or lacks_a_model:
        return _fitted(lens, size)
    return simplified(_start(lens, size)), 0.0


def spell_misfit(off: float) -> str:
    """Return in words how close COLMAP's cameras come to a lens, given the difference in pixels."""
    return "it folds over inside the image" if np.isinf(off) else f"no camera of COLMAP comes closer than {off:.2g} px"


def _fitted(lens: Lens, size: Size) -> Fitted:
    """Return the camera with the closest distortion over the image, by least squares; focal lengths and centre stay."""
    from scipy.optimize import least_squares

    start, rays = _start(lens, size), _rays_inside(lens, size)
    if len(rays) < (_LEAST_SEEN if lens.bend == "frame" else _LEAST_OF_CIRCLE) * _GRID**2:
        return start, float("inf")
    pixels, directions = lens.project(rays), np.concatenate([rays, np.ones((len(rays), 1))], axis=1)

    def missed(terms: Floats) -> Floats:
        apart: Floats = (project(_with(start, terms), directions) - pixels).ravel()
        return np.nan_to_num(apart, nan=1e6, posinf=1e6, neginf=-1e6)

    # large terms that nearly cancel each other would fit as well, but programs reject them
    given = np.array(start.params[_TERMS])
    small = (np.minimum(given, -_LARGEST_TERM) - _SMALL, np.maximum(given, _LARGEST_TERM) + _SMALL)
    found = least_squares(
        lambda terms: np.concatenate([missed(terms), _HELD * (terms - given)]), given, bounds=small, max_nfev=200
    )
    off = np.linalg.norm(missed(found.x).reshape(-1, 2), axis=1)
    return _with(start, found.x), float(off.max(initial=0.0))


def _start(lens: Lens, size: Size) -> Camera:
    pinhole, (k1, k2, k3, k4) = (lens.fx, lens.fy, lens.cx, lens.cy), lens.k
    if lens.bend == "frame":
        return Camera(0, "FULL_OPENCV", *size, (*pinhole, k1, k2, *lens.p, k3, 0.0, 0.0, 0.0))
    if any(lens.p) or lens.skew:
        return Camera(0, "THIN_PRISM_FISHEYE", *size, (*pinhole, k1, k2, *lens.p, k3, k4, 0.0, 0.0))
    return Camera(0, "OPENCV_FISHEYE", *size, (*pinhole, *lens.k))


def _with(camera: Camera, terms: Floats) -> Camera:
    return replace(camera, params=(*camera.params[: _TERMS.start], *map(float, terms)))


def _rays_inside(lens: Lens, size: Size) -> Floats:
    """Return the rays [N, 2] of a grid of pixels; rays that are not found, or beyond the widest angle, are left out."""
    grid = np.meshgrid(*(np.linspace(0, side, _GRID) for side in size))
    pixels = np.stack(grid, axis=-1).reshape(-1, 2)
    start = (pixels - (lens.cx, lens.cy)) / (lens.fx, lens.fy)
    bent = unbent(replace(lens, bend="frame").project, start, pixels)
    bent = finite(bent)
    if lens.bend == "frame":
        return bent
    reach = np.linalg.norm(bent, axis=1)
    with np.errstate(all="ignore"):
        angle = reach if lens.bend == "equidistant" else 2 * np.arcsin(reach / 2)
        rays = bent * np.where(reach > 0, np.tan(angle) / reach, 1.0)[:, None]
    return rays[angle < _WIDEST]


def simplified(camera: Camera) -> Camera:
    """Return the simplest model of the same lens: OPENCV for FULL_OPENCV with last terms 0, PINHOLE if undistorted."""
    params = camera.params
    if camera.model == "FULL_OPENCV" and len(params) == 12 and not any(params[8:]):
        camera = replace(camera, model="OPENCV", params=params[:8])
    if camera.model == "OPENCV" and len(camera.params) == 8 and not any(camera.params[4:]):
        return replace(camera, model="PINHOLE", params=camera.params[:4])
    if camera.model in ("SIMPLE_RADIAL", "RADIAL") and len(params) > 3 and not any(params[3:]):
        return replace(camera, model="SIMPLE_PINHOLE", params=params[:3])
    return camera


def resized(camera: Camera, size: Size) -> Camera:
    """Return the camera of photographs that were resized as a whole; focal lengths and principal point are scaled."""
    if camera.model == "EQUIRECTANGULAR":
        return Camera(camera.id, camera.model, *size, (float(size[0]), float(size[1])))
    ratio, params = (size[0] / camera.width, size[1] / camera.height), list(camera.params)
    if CAMERA_MODELS[camera.model].params[0] == "f":
        params[:3] = [params[0] * (ratio[0] + ratio[1]) / 2, params[1] * ratio[0], params[2] * ratio[1]]
    else:
        params[:4] = [value * ratio[axis % 2] for axis, value in enumerate(params[:4])]
    return Camera(camera.id, camera.model, *size, tuple(params))
