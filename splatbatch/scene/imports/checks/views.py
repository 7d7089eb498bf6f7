"""Where points lie in the photographs, by poses and lenses alone: the first thing that a wrong world gets wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from splatbatch.scene.colmap.types import CAMERA_MODELS, Floats
from splatbatch.scene.imports.capture import Shot
from splatbatch.scene.reprojection import project

_SHOTS, _POINTS = 24, 200_000  # sampled, evenly
_LEAST_SEEN = 5


def share_that_see(shots: Sequence[Shot], points: Floats) -> float:
    """Return the share of photographs that have some of the points [P, 3] in view."""
    some_points, some_shots = points[:: len(points) // _POINTS or 1], shots[:: len(shots) // _SHOTS or 1]
    seen = [int(in_view(shot, some_points)[0].sum()) for shot in some_shots]
    return float(np.mean(np.array(seen) >= min(_LEAST_SEEN, max(1, len(points))))) if seen else 0.0


def in_view(shot: Shot, points: Floats) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], Floats, Floats]:
    """Return which points [P, 3] a photograph shows, with their pixels [P, 2] and depths [P]."""
    camera = shot.camera
    local = (points - shot.center) @ shot.rotation.T
    if "cx" not in CAMERA_MODELS[camera.model].params:  # a panorama sees all
        return np.ones(len(points), bool), np.zeros((len(points), 2)), np.linalg.norm(local, axis=1)
    pixels = project(camera, local)
    with np.errstate(invalid="ignore"):
        inside = ((pixels >= 0) & (pixels < (camera.width, camera.height))).all(axis=1) & (local[:, 2] > 0)
    return inside, pixels, local[:, 2]
