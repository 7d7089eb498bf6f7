"""A smooth way through the cameras of a model: past some of them, from one end of the scene to the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.interpolate import CubicSpline

from splatbatch.scene.colmap.types import Floats, Image
from splatbatch.training.spread import spread

MOST_KEYS = 12
"""Cameras that the way leads past."""
Pose = tuple[Floats, Floats]
"""Where a camera stands, [3], and its rotation from the world, [3, 3]: rows right, down, forward."""


def fly(images: Sequence[Image], num_frames: int) -> list[Pose]:
    """Return the poses of a flight, at even distances; of fewer than two places one that stands still."""
    keys = _in_order(images)
    centers = np.array([image.center() for image in keys])
    rotations = np.array([image.rotation() for image in keys])
    steps = np.linalg.norm(np.diff(centers, axis=0), axis=1)
    kept = np.concatenate([[True], steps > 1e-9 * max(float(steps.sum()), 1e-300)])  # a rig's cameras may share a place
    centers, rotations = centers[kept], rotations[kept]
    if len(centers) < 2:
        return [(centers[0], rotations[0])] * num_frames
    way = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(centers, axis=0), axis=1))])
    at = np.linspace(0, way[-1], num_frames)
    places = CubicSpline(way, centers)(at)
    turned = CubicSpline(way, rotations.reshape(-1, 9))(at).reshape(-1, 3, 3)
    return [(place, upright(one)) for place, one in zip(places, turned, strict=True)]


def upright(rotation: Floats) -> Floats:
    """Return the rotation whose forward is a matrix's, and whose down is as near to its down as can be."""
    forward = rotation[2] / max(float(np.linalg.norm(rotation[2])), 1e-12)
    right = np.cross(rotation[1], forward)
    right /= max(float(np.linalg.norm(right)), 1e-12)
    return np.stack([right, np.cross(forward, right), forward])


def _in_order(images: Sequence[Image]) -> list[Image]:
    """Return some cameras, spread over all, each followed by the nearest that is left; the first stands at an end."""
    sound = [image for image in images if np.isfinite(image.center()).all() and np.isfinite(image.rotation()).all()]
    named = sorted(sound, key=lambda image: image.name)
    left = list(spread(named, MOST_KEYS))
    centers = np.array([image.center() for image in left])
    middle = centers - centers.mean(axis=0)
    longest = np.linalg.svd(middle, full_matrices=False)[2][0]
    found = [left.pop(int((middle @ longest).argmin()))]
    while left:
        away = [float(np.linalg.norm(image.center() - found[-1].center())) for image in left]
        found.append(left.pop(int(np.argmin(away))))
    return found
