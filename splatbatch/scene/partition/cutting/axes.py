"""The cameras' principal frame: along their longest way, across it, and up; no ground plane is taken for granted."""

from __future__ import annotations

import numpy as np

from splatbatch.errors import ConfigError
from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.partition.record import Axes

FLAT = 0.1
"""Spread of cameras, against their longest, below which a direction is told by the points: a single strip of flight
varies as little across as in height."""
FAR = 8
"""Times the median distance from the middle beyond which a camera was registered wrongly."""
DIGITS = 9
"""Of a unit vector: what libraries of linear algebra agree on."""


def principal_axes(centers: Floats, points: Floats, up: tuple[float, float, float] | None = None) -> Axes:
    """Return unit vectors along the longest way of the cameras [I, 3], across it, and up, as rows.

    Up is where the cameras vary least, or as given, and points from what they see to them.

    Raises:
        ConfigError: the given direction is none.
    """
    cameras = _near(centers[np.isfinite(centers).all(axis=1)])
    if up is not None:
        length = float(np.linalg.norm(up))
        if not 0 < length < np.inf:
            raise ConfigError(f"--axis {','.join(map(str, up))}: no direction", "Name one, as --axis 0,0,1.")
        third = np.array(up) / length
        first = _directions(cameras, points, third[None])[0]
    else:
        first, _, third = _directions(cameras, points, np.zeros((0, 3)))
        third = third * _side(third, cameras, points)
    first = first * (1 if first[np.argmax(np.abs(first))] > 0 else -1)
    rows = np.round([first, np.cross(third, first), third], DIGITS) + 0.0  # no -0
    x, y, z = ((float(row[0]), float(row[1]), float(row[2])) for row in rows)
    return (x, y, z)


def _directions(cameras: Floats, points: Floats, known: Floats) -> Floats:
    """Return directions across the known ones [k, 3], the one with the largest spread first; the last is fixed by them.

    Where the cameras hardly vary, the points do.
    """
    found = known
    longest = 0.0
    while len(found) < 3:
        direction, spread = _widest(cameras, found)
        longest = max(longest, spread)
        if spread <= FLAT * longest or spread == 0:
            direction, _ = _widest(points, found)
        found = np.concatenate([found, direction[None]])
    return found[len(known) :]


def _widest(places: Floats, known: Floats) -> tuple[Floats, float]:
    """Return the direction across known ones in which places vary most, and by how much."""
    across = np.eye(3) - known.T @ known
    sound = places[np.isfinite(places).all(axis=1)]
    spread = np.cov((sound - sound.mean(axis=0)).T) if len(sound) > 1 else np.zeros((3, 3))
    # what is known gets less than nothing, so that it is never the widest
    values, vectors = np.linalg.eigh(across @ spread @ across - known.T @ known)
    direction = across @ vectors[:, -1]
    return direction / np.linalg.norm(direction), float(np.sqrt(max(values[-1], 0.0)))


def _near(centers: Floats) -> Floats:
    if not len(centers):
        return centers
    away = np.linalg.norm(centers - np.median(centers, axis=0), axis=1)
    return centers[away <= FAR * max(float(np.median(away)), 1e-12)] if np.median(away) > 0 else centers


def _side(up: Floats, cameras: Floats, points: Floats) -> float:
    """Return the sign that lets a direction point from the points to the cameras."""
    height = float((np.median(cameras, axis=0) - np.median(points, axis=0)) @ up) if len(cameras) else 0.0
    return float(np.sign(height)) or 1.0
