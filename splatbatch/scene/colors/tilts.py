"""Light that varies over a photograph, as where the sun comes through clouds: a plane in logarithms, where it pays."""

from __future__ import annotations

import numpy as np

from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.colors.residuals import NONE, Observations, Solution, own_weights, point_colors, rest_of

LEAST_FALL = 0.05
"""Share by which a plane, fitted to half of a photograph's tracks, must lower the residual of the other half. On
caliterra that holds for photographs that the sun broke into, 7 with the size below, and no others; the mean residual
of their strip falls from 6.2 to 4.7 %."""
LEAST_TILT, MOST_TILT = 0.06, 0.6
"""Logarithm per half diagonal: less is 4 % at an edge, more is no light."""
RIDGE = 0.001
"""Of the sum of the weights: keypoints that lie on a line tell of no plane."""


def find_tilts(seen: Observations, found: Solution) -> Floats:
    """Return a tilt for each photograph [num_photos, 2], 0 where none pays, given all else that was found."""
    colors = point_colors(seen, found, found.weights, int(seen.point.max()) + 1)
    return paying_tilts(seen, rest_of(seen, found, colors), own_weights(seen, found, colors))


def paying_tilts(seen: Observations, rest: Floats, weights: Floats) -> Floats:
    """Return tilts for what is left of each observation [O] once the colour of its point is taken off."""
    tilts = _planes(seen, rest, weights)[:, 1:]
    size = np.hypot(*tilts.T)
    pays = (size >= LEAST_TILT) & (size <= MOST_TILT) & (_fall(seen, rest, weights) >= LEAST_FALL)
    chosen: Floats = np.where(pays[:, None], tilts, 0.0)
    return chosen if pays.any() else NONE


def _planes(seen: Observations, rest: Floats, weights: Floats) -> Floats:
    """Return what fits the observations of each photograph best, [num_photos, 3]: height at the middle, tilt."""
    num = len(seen.camera)
    columns = (np.ones(len(rest)), *seen.place.T)
    matrix, right = np.zeros((num, 3, 3)), np.zeros((num, 3, 1))
    for i, one in enumerate(columns):
        weighted = weights * one
        right[:, i, 0] = np.bincount(seen.photo, weighted * rest, num)
        for j in range(i + 1):
            matrix[:, i, j] = matrix[:, j, i] = np.bincount(seen.photo, weighted * columns[j], num)
    ridge = RIDGE * matrix[:, 0, 0]
    matrix += ridge[:, None, None] * np.diag([0.0, 1, 1]) + 1e-12 * np.eye(3)
    return np.asarray(np.linalg.solve(matrix, right)[:, :, 0], np.float64)


def _fall(seen: Observations, rest: Floats, weights: Floats) -> Floats:
    """Return by which share a plane lowers the residual of tracks that had no part in its fit, [num_photos]."""
    num, is_odd = len(seen.camera), seen.point % 2 == 1
    flat, plane = np.zeros(num), np.zeros(num)
    for half in (is_odd, ~is_odd):
        known = np.where(half, weights, 0.0)
        others = weights - known
        total = np.bincount(seen.photo, known, num)
        level = np.bincount(seen.photo, known * rest, num) / np.maximum(total, 1e-12)
        flat += np.bincount(seen.photo, others * np.abs(rest - level[seen.photo]), num)
        planes = _planes(seen, rest, known)
        fitted = planes[seen.photo, 0] + (seen.place * planes[seen.photo, 1:]).sum(axis=1)
        plane += np.bincount(seen.photo, others * np.abs(rest - fitted), num)
    fall: Floats = 1 - plane / np.maximum(flat, 1e-12)
    return fall
