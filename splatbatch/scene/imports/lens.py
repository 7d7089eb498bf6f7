"""Converts lenses of other programs to COLMAP cameras: to the simplest equal camera model, else to a fitted one.

The general lens is Brown's, with a radial polynomial up to r^8 and the terms that Metashape adds (skew B2, P3 and P4):
Agisoft Metashape User Manual, appendix "Camera models". OpenCV's rational model needs no fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera, Floats, finite
from splatbatch.scene.imports.capture import spelt
from splatbatch.scene.photos.headers import Size
from splatbatch.scene.photos.undistort import unbent
from splatbatch.scene.reprojection import project

Bend = Literal["frame", "rational", "equidistant", "equisolid", "panorama"]
BENDS: Mapping[str, Bend] = {
    "EQUIDISTANT_FISHEYE": "equidistant",
    "EQUIRECTANGULAR": "panorama",
    "EQUISOLID_FISHEYE": "equisolid",
    "FISHEYE": "equidistant",
    "FRAME": "frame",
    "FULL_OPENCV": "rational",
    "OPENCV": "frame",
    "OPENCV_FISHEYE": "equidistant",
    "PERSPECTIVE": "frame",
    "PINHOLE": "frame",
    "RADIAL": "frame",
    "RADIAL_FISHEYE": "equidistant",
    "SIMPLE_PINHOLE": "frame",
    "SIMPLE_RADIAL": "frame",
    "SIMPLE_RADIAL_FISHEYE": "equidistant",
    "SPHERICAL": "panorama",
}
"""How a lens projects rays, by its name (in capitals) in a transforms.json or in Metashape's XML.

`frame` is a perspective lens with a radial polynomial, `rational` one with a quotient of two. `equidistant` and
`equisolid` are fisheyes; `panorama` is equirectangular.
"""
OF_METASHAPE = {
    **{key: key for key in ("k1", "k2", "k3", "k4", "p3", "p4", "skew")},
    "p1": "p2",
    "p2": "p1",
    "b2": "skew",
}
"""Parameter of `Lens` by its key in Metashape's XML. Metashape's P1 acts along x: OpenCV calls that p2."""
MOST_OFF_PX = 1.0
"""Largest difference in pixels, anywhere in the image, between a lens and a fitted camera that is accepted."""
_GRID = 25  # pixels along each side of the image
_SMALL = 1e-6
_WIDEST = np.radians(83)
_LARGEST_TERM, _HELD = 0.9, 0.1
_LEAST_SEEN, _LEAST_OF_CIRCLE = 0.999, 0.5
"""Share of the grid that a frame lens must reach, and a fisheye, whose circle may not fill the image."""
_TERMS = slice(4, 12)  # of FULL_OPENCV and the fisheye models: all but focal lengths and principal point


@dataclass(frozen=True)
class Lens:
    """A general lens: focal lengths in pixels, principal point in pixels from the top-left corner, and distortion.

    Coefficients of 0 have no effect.
    """

    fx: float
    fy: float
    cx: float
    cy: float
    k1: float = 0.0
    """With k2, k3 and k4 the coefficients of the radial polynomial: r^2, r^4, r^6 and r^8. In `rational` lenses k4
    belongs to the divisor instead.
    """
    k2: float = 0.0
    k3: float = 0.0
    k4: float = 0.0
    k5: float = 0.0
    """With k4 and k6 the coefficients of the polynomial by which a `rational` lens is divided; unused by others."""
    k6: float = 0.0
    p1: float = 0.0
    """With p2 the tangential coefficients in OpenCV's order."""
    p2: float = 0.0
    p3: float = 0.0
    """With p4 Metashape's P3 and P4: tangential terms are multiplied by 1 + P3 r^2 + P4 r^4."""
    p4: float = 0.0
    skew: float = 0.0
    """Metashape's B2, in pixels: shift along x for each unit of y / z after distortion."""
    bend: Bend = "frame"
    """How the lens projects rays, see `BENDS`."""

    def project(self, rays: Floats) -> Floats:
        """Return the pixels [N, 2] of rays in front of the camera, given as (x / z, y / z), [N, 2].

        Not for panoramas.
        """
        x, y = self._bent(rays).T
        r2 = x * x + y * y
        radial = 1 + r2 * (self.k1 + r2 * (self.k2 + r2 * (self.k3 + r2 * self.k4)))
        if self.bend == "rational":
            over = 1 + r2 * (self.k4 + r2 * (self.k5 + r2 * self.k6))
            radial = (1 + r2 * (self.k1 + r2 * (self.k2 + r2 * self.k3))) / over
        grown = 1 + r2 * (self.p3 + r2 * self.p4)
        p1, p2 = self.p1, self.p2
        x_bent = x * radial + (2 * p1 * x * y + p2 * (r2 + 2 * x * x)) * grown
        y_bent = y * radial + (p1 * (r2 + 2 * y * y) + 2 * p2 * x * y) * grown
        return np.stack([self.fx * x_bent + self.skew * y_bent + self.cx, self.fy * y_bent + self.cy], axis=1)

    def _bent(self, rays: Floats) -> Floats:
        if self.bend in ("frame", "rational"):
            return rays
        r = np.linalg.norm(rays, axis=1, keepdims=True)
        angle = np.arctan(r)
        reach = angle if self.bend == "equidistant" else 2 * np.sin(angle / 2)
        return rays * np.divide(reach, r, out=np.ones_like(r), where=r > 0)


def bend_of(key: str, name: str) -> Bend:
    """Return how a lens projects rays, see `BENDS`.

    Args:
        key: key of the source that holds the name, for the error.
        name: name of the lens; upper and lower case are equal.

    Raises:
        SceneError: the name is not in `BENDS`.
    """
    if (bend := BENDS.get(name.upper())) is None:
        remedy = "If COLMAP has no such lens, undistort the photographs first."
        raise SceneError(f"{key} {spelt(name)} is no known lens (known: {', '.join(BENDS)})", remedy)
    return bend


def panorama(size: Size) -> Camera:
    """Return the EQUIRECTANGULAR camera, with id 0, of panoramas of a width and height in pixels."""
    return Camera(0, "EQUIRECTANGULAR", *size, (float(size[0]), float(size[1])))


def in_colmap(lens: Lens, size: Size, terms: str, refit: str) -> tuple[Camera, str]:
    """Return the COLMAP camera (id 0) of a lens, and a note on how the camera was fitted; empty if nothing was fitted.

    Args:
        lens: lens of the source.
        size: width and height of the images in pixels.
        terms: terms of the lens that COLMAP's models lack, in words, for note and error.
        refit: what to do if no camera comes close enough, for the error.

    Raises:
        SceneError: no camera of COLMAP comes within `MOST_OFF_PX` of the lens.
    """
    camera, off = camera_of(lens, size)
    if off > MOST_OFF_PX:
        close = (
            "the lens folds over inside the image (two rays meet in one pixel)"
            if np.isinf(off)
            else f"no camera of COLMAP comes closer to the lens than {off:.2g} px"
        )
        raise SceneError(f"{terms}: {close}", refit)
    return camera, f"{terms}: fitted as {camera.model}, at most {off:.2g} px off" if off else ""


@lru_cache(maxsize=256)
def camera_of(lens: Lens, size: Size) -> tuple[Camera, float]:
    """Return the COLMAP camera (id 0) of a lens, and the largest distance of their pixels, in pixels.

    0: the camera is the same lens. Infinite: no camera can be fitted, since the lens does not reach the whole image, or
    as a fisheye not half of it.

    Args:
        lens: lens of the source, no panorama.
        size: width and height of the images in pixels.
    """
    lacks_a_model = bool(lens.k4) if lens.bend == "frame" else lens.bend == "equisolid"
    if lens.skew or lens.p3 or lens.p4 or lacks_a_model:
        return _fitted(lens, size)
    return simplified(_start(lens, size)), 0.0


def _fitted(lens: Lens, size: Size) -> tuple[Camera, float]:
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
    pinhole, tangential = (lens.fx, lens.fy, lens.cx, lens.cy), (lens.p1, lens.p2)
    if lens.bend in ("frame", "rational"):
        over = (lens.k4, lens.k5, lens.k6) if lens.bend == "rational" else (0.0, 0.0, 0.0)
        return Camera(0, "FULL_OPENCV", *size, (*pinhole, lens.k1, lens.k2, *tangential, lens.k3, *over))
    if any(tangential) or lens.skew:
        params = (*pinhole, lens.k1, lens.k2, *tangential, lens.k3, lens.k4, 0.0, 0.0)
        return Camera(0, "THIN_PRISM_FISHEYE", *size, params)
    return Camera(0, "OPENCV_FISHEYE", *size, (*pinhole, lens.k1, lens.k2, lens.k3, lens.k4))


def _with(camera: Camera, terms: Floats) -> Camera:
    return replace(camera, params=(*camera.params[: _TERMS.start], *map(float, terms)))


def _rays_inside(lens: Lens, size: Size) -> Floats:
    """Return the rays [N, 2] of a grid of pixels; rays that are not found, or beyond the widest angle, are left out."""
    grid = np.meshgrid(*(np.linspace(0, side, _GRID) for side in size))
    pixels = np.stack(grid, axis=-1).reshape(-1, 2)
    start = (pixels - (lens.cx, lens.cy)) / (lens.fx, lens.fy)
    bent = finite(unbent(replace(lens, bend="frame").project, start, pixels))
    if lens.bend == "frame":
        return bent
    reach = np.linalg.norm(bent, axis=1)
    with np.errstate(all="ignore"):
        angle = reach if lens.bend == "equidistant" else 2 * np.arcsin(reach / 2)
        rays = bent * np.where(reach > 0, np.tan(angle) / reach, 1.0)[:, None]
    return rays[angle < _WIDEST]


def simplified(camera: Camera) -> Camera:
    """Return a camera with the simplest model of the same lens; the same object if no simpler model is known.

    FULL_OPENCV whose last four terms are 0 becomes OPENCV, and OPENCV without distortion PINHOLE. SIMPLE_RADIAL and
    RADIAL without distortion become SIMPLE_PINHOLE.
    """
    params = camera.params
    if camera.model == "FULL_OPENCV" and len(params) == 12 and not any(params[8:]):
        camera = replace(camera, model="OPENCV", params=params[:8])
    if camera.model == "OPENCV" and len(camera.params) == 8 and not any(camera.params[4:]):
        return replace(camera, model="PINHOLE", params=camera.params[:4])
    if camera.model in ("SIMPLE_RADIAL", "RADIAL") and len(params) > 3 and not any(params[3:]):
        return replace(camera, model="SIMPLE_PINHOLE", params=params[:3])
    return camera


def resized(camera: Camera, size: Size) -> Camera:
    """Return the camera, with the same id, of photographs that were resized as a whole.

    Focal lengths and principal point are scaled, distortion stays. A single focal length gets the mean of both factors.

    Args:
        camera: the camera before, of a known camera model.
        size: width and height of the resized photographs in pixels.
    """
    if camera.model == "EQUIRECTANGULAR":
        return replace(panorama(size), id=camera.id)
    ratio, params = (size[0] / camera.width, size[1] / camera.height), list(camera.params)
    if CAMERA_MODELS[camera.model].params[0] == "f":
        params[:3] = [params[0] * (ratio[0] + ratio[1]) / 2, params[1] * ratio[0], params[2] * ratio[1]]
    else:
        params[:4] = [value * ratio[axis % 2] for axis, value in enumerate(params[:4])]
    return Camera(camera.id, camera.model, *size, tuple(params))
