"""The tones of photographs from the colours of their tracks: one sparse linear system in logarithms, made robust.

log(colour of point p in photograph i) = log(colour of p) + gain of i + v1 r^2 + v2 r^4 of i's camera. The colours of
the points are eliminated first (Schur complement), so that photographs alone are unknown. All channels share the
weights: what is wrong in one (an occlusion, a highlight) is wrong in all, and one matrix serves them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.colors.design import Design
from splatbatch.scene.colors.residuals import (
    NONE,
    Observations,
    Solution,
    cauchy,
    evened_of,
    own_weights,
    point_colors,
    residuals_of,
    rest_of,
    spread,
)
from splatbatch.scene.colors.tilts import find_tilts, paying_tilts

ROUNDS = 6
"""Of reweighting; gains move by less than 0.1 % after five."""
LAST_ROUNDS = 2
LEAST_FALLOFF = 0.01
"""Vignetting that changes less than this between centre and corner is none."""
LEAST_FALL = 0.003
"""Share by which the residual of a camera's photographs must fall for its vignetting to be believed."""


def solve(seen: Observations) -> Solution:
    """Return gains, vignetting and tilts of photographs that are linked with each other.

    The mean of the channels tells of nearly all that is wrong with an observation, in a third of the time; in the last
    rounds all channels do.
    """
    grey, num_cameras = seen.grey(), int(seen.camera.max()) + 1
    none = np.zeros((num_cameras, 2))
    plain = _reweighted(grey, np.zeros(num_cameras, bool), np.ones(len(seen.photo)))
    bent = _reweighted(grey, np.ones(num_cameras, bool), plain.weights, ROUNDS // 2)
    bends = _pays(grey, plain, bent)
    tilted = _tilted(grey, bent if bends.any() else plain, bends)
    found = _reweighted(seen, bends, tilted.weights, LAST_ROUNDS, tilted.tilts)
    as_is = replace(found, gains=np.zeros_like(found.gains), vignetting=none, tilts=NONE)
    return replace(found, before=spread(residuals_of(seen, as_is, found.weights), found.weights))


def _tilted(grey: Observations, found: Solution, bends: NDArray[np.bool_]) -> Solution:
    """Let photographs have tilts that pay, and solve again with them, in turn."""
    for _ in range(ROUNDS):
        tilts = find_tilts(grey, found)
        if not tilts.any():
            return replace(found, tilts=NONE)
        found = _reweighted(grey, bends, found.weights, 1, tilts)
    return found


def _reweighted(
    seen: Observations, bends: NDArray[np.bool_], weights: Floats, rounds: int = ROUNDS, tilts: Floats = NONE
) -> Solution:
    """Solve again and again; what fits badly counts less each time."""
    design = Design(seen, bends)
    for _ in range(rounds):
        gains, vignetting = design.fit(weights, tilts)
        found = Solution(gains, vignetting, weights, tilts)
        weights = cauchy(np.sqrt((residuals_of(seen, found, weights) ** 2).mean(axis=1)))
    return replace(found, weights=weights, after=spread(residuals_of(seen, found, weights), weights))


def _pays(seen: Observations, plain: Solution, bent: Solution) -> NDArray[np.bool_]:
    """Return for which cameras vignetting explains so much that it is believed."""
    camera, num = seen.camera[seen.photo], len(bent.vignetting)
    sizes = []
    for found in (plain, bent):
        residuals = residuals_of(seen, found, bent.weights)
        squares = bent.weights * (residuals**2).mean(axis=1)
        sizes.append(np.sqrt(np.bincount(camera, squares, num)))
    farthest = np.array(
        [np.percentile(seen.radius[camera == one], 99) if (camera == one).any() else 0 for one in range(num)]
    )
    corner = farthest * (bent.vignetting[:, 0] + farthest * bent.vignetting[:, 1])
    pays: NDArray[np.bool_] = (sizes[1] < (1 - LEAST_FALL) * sizes[0]) & (np.abs(corner) > LEAST_FALLOFF)
    return pays


def settle_later(
    every: Observations, found: Solution, is_in: NDArray[np.bool_], least: int
) -> tuple[Solution, NDArray[np.bool_]]:
    """Return the solution with gains and tilts of photographs that had no part in it, and which have one now.

    They come from the points that the others have settled, and change nothing of those.

    Args:
        every: all observations, of those photographs too.
        found: the solution.
        is_in: photographs that had a part in it.
        least: observations of settled points that a gain needs.
    """
    known = every.only(is_in[every.photo])
    num = int(every.point.max()) + 1
    weights = np.ones(len(known.photo))
    for _ in range(2):
        colors = point_colors(known, found, weights, num)
        weights = cauchy(np.sqrt(((evened_of(known, found) - colors[known.point]) ** 2).mean(axis=1)))
    later = every.only(~is_in[every.photo] & ~np.isnan(colors[every.point, 0]))
    is_later = np.bincount(later.photo, minlength=len(is_in)) >= least
    flat = _with_gains(later, found, colors, is_later)
    tilts = paying_tilts(later, rest_of(later, flat, colors), own_weights(later, flat, colors))
    if tilts.any():
        others = found.tilts if len(found.tilts) else np.zeros_like(tilts)
        flat = _with_gains(later, replace(found, tilts=np.where(is_later[:, None], tilts, others)), colors, is_later)
    return flat, is_in | is_later


def _with_gains(later: Observations, found: Solution, colors: Floats, which: NDArray[np.bool_]) -> Solution:
    """Return the solution with gains of these photographs, given the colours of the points."""
    gains = found.gains.copy()
    rest = evened_of(later, replace(found, gains=np.zeros_like(gains))) - colors[later.point]
    for photo in np.flatnonzero(which):
        gains[photo] = _robust_mean(rest[later.photo == photo])
    return replace(found, gains=gains)


def _robust_mean(values: Floats) -> Floats:
    """Return the mean of values [N, 3]; the farther off they are, the less they count."""
    mean: Floats = np.median(values, axis=0)
    for _ in range(ROUNDS):
        mean = np.average(values, axis=0, weights=cauchy(np.sqrt(((values - mean) ** 2).mean(axis=1))))
    return mean
