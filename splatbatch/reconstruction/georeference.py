"""Where a model stands on Earth, by the GPS of its photographs: metres, east, north and up about their middle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.similarity import Similarity, fitted_similarity

LEAST = 3
"""Positions, not in a line."""
ROUNDS = 30
LEAST_TOLERANCE_M = 1.0
FLAT = 0.02
"""Of the extent: positions nearer to a line than that fix no frame."""
ROUGH = 0.04
"""Of the extent: positions of which half are further off do not tell what is upright."""
NADIR = 0.9
"""Length of the mean of all viewing directions, from which on the photographs look one way."""


@dataclass(frozen=True)
class PosedViews:
    """The cameras of a model in its own frame, in the order in which they were taken; each [n, 3]."""

    centers: Floats
    directions: Floats
    """They look there."""
    tops: Floats
    """Where the upper edge of the photograph is."""


@dataclass(frozen=True)
class Georeference:
    """How a model's frame becomes metres, and what GPS says against it."""

    similarity: Similarity
    origin: tuple[float, float, float]
    """Latitude, longitude and altitude of the new origin."""
    residuals: Floats  # [n, 3], in metres: east, north, up
    upright_by: str
    """gps, or photographs: those that look down, or their upper edges."""


def neighbouring(places: Floats) -> Floats:
    """Return positions [n, 3] by longitudes within 180 degrees of the first one: those across the date line go on."""
    turned = places.copy()
    turned[:, 1] -= 360 * np.round((places[:, 1] - places[:1, 1]) / 360)
    return turned


def in_east_north_up(places: Floats) -> tuple[Floats, tuple[float, float, float]]:
    """Return positions [n, 3] in metres about the middle of latitudes, longitudes and altitudes, and that middle."""
    import pycolmap

    latitude, longitude, altitude = (float(one) for one in np.median(neighbouring(places), axis=0))
    longitude -= 360 * round(longitude / 360)
    transform = pycolmap.GPSTransform(pycolmap.GPSTransformEllipsoid.WGS84)
    found = np.asarray(transform.ellipsoid_to_enu(places, latitude, longitude, altitude), np.float64)
    return found, (latitude, longitude, altitude)


def georeference(views: PosedViews, places: Floats) -> Georeference | None:
    """Return how a model lies on Earth; None where positions fix no frame.

    By a robust similarity to the positions. Where these are so rough that they do not tell what is upright, the
    photographs do, and GPS tells heading, scale and place.

    Args:
        views: the cameras that have a position.
        places: latitude, longitude and altitude of each, [n, 3].
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
    """Return the similarity that most positions agree on: reweighted by Huber's rule."""
    weights = np.ones(len(source))
    for _ in range(ROUNDS):
        found = fitted_similarity(source, target, weights)
        weights = _huber(np.linalg.norm(found.of_points(source) - target, axis=1))
    return found


def _upright(views: PosedViews, where: Floats) -> tuple[Similarity, str]:
    """Return the similarity whose upright is that of the photographs, by GPS in the plane."""
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
    """Return rotation about z, scale and translation in the plane."""
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
    """Return the rotation [3, 3] that turns a direction upright by the shortest way (Rodrigues)."""
    axis, cos = np.cross(up, [0.0, 0.0, 1.0]), float(up[2])
    if cos < -0.999999:
        return np.diag([1.0, -1.0, -1.0])
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.asarray(np.eye(3) + cross + cross @ cross / (1 + cos), np.float64)
