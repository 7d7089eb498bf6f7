"""Georeferences a model by GPS positions of its photographs: to metres east, north and up of the positions' median."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.similarity import Similarity, fitted_similarity

LEAST = 3
"""Fewest GPS positions for a georeference; they must not lie in a line."""
ROUNDS = 30
"""Number of iterations of the robust fit of a model to GPS positions."""
LEAST_TOLERANCE_M = 1.0
"""Least distance in metres between camera and GPS position from which the position counts less in the robust fit."""
FLAT = 0.02
"""Largest ratio of the smaller to the larger horizontal spread of GPS positions that counts as a line.

Positions in a line do not fix how the model is turned about it.
"""
ROUGH = 0.04
"""Largest median distance between camera and GPS position, as a share of the scene's horizontal extent.

With a larger median, GPS is too inaccurate for the up direction.
"""
NADIR = 0.9
"""Length of the mean viewing direction, 0 to 1, above which all photographs are taken to look down."""


@dataclass(frozen=True)
class PosedViews:
    """The cameras of a model that have a GPS position, in the model's coordinates; each field is [n, 3]."""

    centers: Floats
    directions: Floats
    """Viewing directions, of length 1."""
    tops: Floats
    """Directions from the middle of each photograph to its upper edge, of length 1."""


@dataclass(frozen=True)
class Georeference:
    """Transform of a model into metres east, north and up, and how far cameras then are from their GPS positions."""

    similarity: Similarity
    origin: tuple[float, float, float]
    """Latitude and longitude in degrees, and altitude in metres, of the georeferenced model's origin."""
    residuals: Floats  # [n, 3], in metres: east, north, up
    upright_by: str
    """Source of the up direction: "gps", or a phrase that names the photographs' view down or their upper edges."""


def neighbouring(places: Floats) -> Floats:
    """Return positions with longitudes within 180 degrees of the first, so that they do not jump at the date line.

    Args:
        places: latitude, longitude (degrees) and altitude of each, [n, 3]; they stay unchanged.
    """
    turned = places.copy()
    turned[:, 1] -= 360 * np.round((places[:, 1] - places[:1, 1]) / 360)
    return turned


def in_east_north_up(places: Floats) -> tuple[Floats, tuple[float, float, float]]:
    """Return positions in metres east, north and up of their median, [n, 3], and that median.

    The median is latitude and longitude in degrees, from -180 to 180, and altitude in metres.

    Args:
        places: latitude, longitude (degrees, WGS 84) and altitude (metres), [n, 3], at least one.
    """
    import pycolmap

    latitude, longitude, altitude = (float(one) for one in np.median(neighbouring(places), axis=0))
    longitude -= 360 * round(longitude / 360)
    transform = pycolmap.GPSTransform(pycolmap.GPSTransformEllipsoid.WGS84)
    found = np.asarray(transform.ellipsoid_to_enu(places, latitude, longitude, altitude), np.float64)
    return found, (latitude, longitude, altitude)


def georeference(views: PosedViews, places: Floats) -> Georeference | None:
    """Return the georeference of a model; None if there are fewer than LEAST positions, or they lie in a line.

    The transform is a robust fit to the positions. If GPS is too inaccurate for the up direction (ROUGH), the
    photographs give that direction, and GPS gives heading, scale and position.

    Args:
        views: the cameras that have a GPS position, at least one.
        places: latitude, longitude (degrees, WGS 84) and altitude (metres) of each camera, [n, 3].
    """
    where, origin = in_east_north_up(places)
    spread = np.linalg.svd(where[:, :2] - where[:, :2].mean(axis=0), compute_uv=False)
    if len(where) < LEAST or spread[1] <= FLAT * spread[0]:
        return None
    extent = float(np.ptp(where[:, :2], axis=0).max())
    found = _robust(views.centers, where)
    residuals = found.of_points(views.centers) - where
    by = "gps"
    if float(np.median(np.linalg.norm(residuals, axis=1))) > ROUGH * extent:
        found, by = _upright(views, where)
        residuals = found.of_points(views.centers) - where
    return Georeference(found, origin, residuals, by)


def _robust(source: Floats, target: Floats) -> Similarity:
    """Return the similarity from source to target [n, 3], fitted by iteratively reweighted least squares (Huber)."""
    weights = np.ones(len(source))
    for _ in range(ROUNDS):
        found = fitted_similarity(source, target, weights)
        weights = _huber(np.linalg.norm(found.of_points(source) - target, axis=1))
    return found


def _upright(views: PosedViews, where: Floats) -> tuple[Similarity, str]:
    """Return the similarity with the photographs' up direction and GPS's heading, scale and place; and a source.

    The second value says what in the photographs gave the up direction.
    """
    mean = views.directions.mean(axis=0)
    looks_down = float(np.linalg.norm(mean)) > NADIR
    up = -mean if looks_down else views.tops.mean(axis=0)
    turn = _to_z(up / np.linalg.norm(up))
    flat = views.centers @ turn.T
    weights = np.ones(len(flat))
    for _ in range(ROUNDS):
        heading, scale, translation = _about_z(flat, where, weights)
        away = np.linalg.norm((scale * flat @ heading.T + translation - where)[:, :2], axis=1)
        weights = _huber(away)
    rotation = heading @ turn
    height = float(np.median(where[:, 2] - scale * (views.centers @ rotation.T)[:, 2]))
    words = "photographs, which look down" if looks_down else "the upper edges of the photographs"
    return Similarity(rotation, np.array([translation[0], translation[1], height]), scale), words


def _about_z(source: Floats, target: Floats, weights: Floats) -> tuple[Floats, float, Floats]:
    """Return the rotation about z, scale and horizontal shift that fit source to target [n, 3] by least squares."""
    a, b = source[:, 0] + 1j * source[:, 1], target[:, 0] + 1j * target[:, 1]
    a_mean, b_mean = np.average(a, weights=weights), np.average(b, weights=weights)
    factor = np.vdot(weights * (a - a_mean), b - b_mean) / np.vdot(weights * (a - a_mean), a - a_mean)
    cos, sin = factor.real / abs(factor), factor.imag / abs(factor)
    rotation = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
    moved = b_mean - factor * a_mean
    return rotation, float(abs(factor)), np.array([moved.real, moved.imag, 0.0])


def _huber(away: Floats) -> Floats:
    tolerance = max(LEAST_TOLERANCE_M, 1.5 * float(np.median(away)))
    return np.asarray(np.minimum(1.0, tolerance / np.maximum(away, 1e-9)), np.float64)


def _to_z(up: Floats) -> Floats:
    """Return the shortest rotation [3, 3] that takes a direction of length 1 to z (Rodrigues)."""
    axis, cos = np.cross(up, [0.0, 0.0, 1.0]), float(up[2])
    if cos < -0.999999:
        return np.diag([1.0, -1.0, -1.0])
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.asarray(np.eye(3) + cross + cross @ cross / (1 + cos), np.float64)
