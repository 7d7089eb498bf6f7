"""Cameras that render contrast otherwise than the others: no gain can even their photographs, but it can be said."""

from __future__ import annotations

import numpy as np

from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.colors.residuals import Observations, Solution, cauchy, point_colors, rest_of, shading_of

LEAST_OTHER = 0.1
"""Share by which the power of a response must differ from the others' before it is worth a word."""
ROUNDS = 4
LEAST_SHARED = 200
"""Observations of points that other cameras see, too, from which a power can be told."""


def odd_responses(seen: Observations, found: Solution) -> dict[int, float]:
    """Return the cameras of another response, by number: to which power of the others' colours theirs go.

    The camera of most photographs is the measure, and none that could be odd.
    """
    num = len(found.vignetting)
    used = np.bincount(seen.camera[np.unique(seen.photo)], minlength=num)
    others = [int(one) for one in np.flatnonzero(used) if one != used.argmax()]
    powers = {one: _power(seen, found, one) for one in others}
    return {one: power for one, power in powers.items() if abs(np.log(max(power, 1e-3))) > LEAST_OTHER}


def _power(seen: Observations, found: Solution, camera: int) -> float:
    """Return how much farther a camera's logarithms spread within photographs than those of its points elsewhere."""
    is_own = seen.camera[seen.photo] == camera
    colors = point_colors(seen.only(~is_own), found, found.weights[~is_own], int(seen.point.max()) + 1)
    own = seen.only(is_own & ~np.isnan(colors[seen.point, 0]))
    if len(own.photo) < LEAST_SHARED:
        return 1.0
    brightness, rest = colors.mean(axis=1)[own.point], rest_of(own, found, colors) - shading_of(own, found.tilts)
    weights, power = np.ones(len(rest)), 1.0
    for _ in range(ROUNDS):
        theirs, others = (_off_the_mean(own, one, weights) for one in (brightness, rest))
        sizes = [float((weights * one**2).sum()) for one in (theirs + others, theirs)]
        power = (
            sizes[0] / max(sizes[1], 1e-12)
        ) ** 0.5  # noise in both flattens a least-squares slope, and not this one
        weights = cauchy(np.abs(others - (power - 1) * theirs))
    return power


def _off_the_mean(seen: Observations, values: Floats, weights: Floats) -> Floats:
    """Return values [O] less their mean in each photograph."""
    sums, total = (np.bincount(seen.photo, weights * one, len(seen.camera)) for one in (values, np.ones(len(values))))
    off: Floats = values - (sums / np.maximum(total, 1e-12))[seen.photo]
    return off
