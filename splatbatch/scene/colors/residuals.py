"""What is seen of the points in photographs, and how far that is from what a solution says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.types import Floats, Ints

SOFT = 1.5
"""Times the median residual: there an observation counts half (Cauchy's weights)."""
LEAST_SPREAD = 0.002
"""Residuals below are rounding: no weight depends on them."""

NONE: Floats = np.zeros((0, 2))


@dataclass(frozen=True, eq=False)
class Observations:
    """What is seen: one row for each keypoint that counts."""

    photo: Ints  # [O], 0 to num_photos - 1
    point: Ints  # [O], 0 to num_points - 1
    color: Floats  # [O, 3], logarithms of 0 to 1; [O, 1]: their means
    place: Floats  # [O, 2], from the principal point / half the diagonal
    radius: Floats  # [O], r^2: its squared length
    camera: Ints  # [num_photos], 0 to num_cameras - 1

    def only(self, which: NDArray[np.bool_]) -> Observations:
        """Return some of them."""
        parts = {name: getattr(self, name)[which] for name in ("photo", "point", "color", "place", "radius")}
        return replace(self, **parts)

    def grey(self) -> Observations:
        """Return them with the mean of the channels alone."""
        return replace(self, color=self.color.mean(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Solution:
    """What fits the observations."""

    gains: Floats  # [num_photos, 3], logarithms at the principal point; mean 0
    vignetting: Floats  # [num_cameras, 2], 0 where a camera has none worth the name
    weights: Floats  # [O]
    tilts: Floats = field(
        default_factory=lambda: NONE
    )  # [num_photos, 2], logarithms per half diagonal, 0 for most; or none at all
    before: float = 0.0
    """Residual without gains, standard deviation in logarithms; outliers weigh as little as in the end."""
    after: float = 0.0


def falloff_of(seen: Observations, vignetting: Floats) -> Floats:
    """Return the logarithm of the falloff at each observation."""
    if not vignetting.any():
        return np.zeros(len(seen.photo))
    one = vignetting[seen.camera[seen.photo]]
    return seen.radius * (one[:, 0] + seen.radius * one[:, 1])


def shading_of(seen: Observations, tilts: Floats) -> Floats:
    """Return the logarithm of what a photograph's tilt makes of each observation."""
    if not tilts.any():
        return np.zeros(len(seen.photo))
    return (seen.place * tilts[seen.photo]).sum(axis=1)


def evened_of(seen: Observations, found: Solution) -> Floats:
    """Return the colours divided by the tones of their photographs, in logarithms."""
    bent = falloff_of(seen, found.vignetting) + shading_of(seen, found.tilts)
    return seen.color - found.gains[seen.photo] - bent[:, None]


def point_colors(seen: Observations, found: Solution, weights: Floats, num_points: int) -> Floats:
    """Return the colours of the points, [num_points, 3] or [num_points, 1]; NaN where nobody sees one."""
    total = np.bincount(seen.point, weights, num_points)
    evened = evened_of(seen, found)
    sums = np.stack([np.bincount(seen.point, weights * one, num_points) for one in evened.T], axis=1)
    colors: Floats = np.full_like(sums, np.nan)
    np.divide(sums, total[:, None], out=colors, where=total[:, None] > 0)
    return colors


def residuals_of(seen: Observations, found: Solution, weights: Floats) -> Floats:
    """Return how far each colour is from that of its point, [O, 3], once all are divided by their tones."""
    colors = point_colors(seen, found, weights, int(seen.point.max()) + 1)
    return evened_of(seen, found) - colors[seen.point]


def rest_of(seen: Observations, found: Solution, colors: Floats) -> Floats:
    """Return what is left of each observation [O] without the colour of its point and the falloff of its lens."""
    return (seen.color - colors[seen.point]).mean(axis=1) - falloff_of(seen, found.vignetting)


def own_weights(seen: Observations, found: Solution, colors: Floats) -> Floats:
    """Return weights [O] by what is usual in each photograph: where half of one is in the sun, that half counts."""
    num = len(seen.camera)
    level = found.gains.mean(axis=1)[seen.photo] + shading_of(seen, found.tilts)
    off = np.abs(rest_of(seen, found, colors) - level)
    usual = np.bincount(seen.photo, off, num) / np.maximum(np.bincount(seen.photo, minlength=num), 1)
    return 1 / (1 + (off / (SOFT * np.maximum(usual, LEAST_SPREAD)[seen.photo])) ** 2)


def spread(residuals: Floats, weights: Floats) -> float:
    """Return the standard deviation of residuals [O, 3]."""
    return float(np.sqrt(np.average((residuals**2).mean(axis=1), weights=weights)))


def cauchy(size: Floats) -> Floats:
    """Return weights of residuals [O] of this size."""
    soft = max(SOFT * float(np.median(size)), LEAST_SPREAD)
    return 1 / (1 + (size / soft) ** 2)
