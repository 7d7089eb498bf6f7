"""The tones of photographs from the colours of their tracks: one sparse linear system in logarithms, made robust.

log(colour of point p in photograph i) = log(colour of p) + gain of i + v1 r^2 + v2 r^4 of i's camera. The colours of
the points are eliminated first (Schur complement), so that photographs alone are unknown. All channels share the
weights: what is wrong in one (an occlusion, a highlight) is wrong in all, and one matrix serves them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.types import Floats, Ints

ROUNDS = 6
"""Of reweighting; gains move by less than 0.1 % after five."""
SOFT = 1.5
"""Times the median residual: there an observation counts half (Cauchy's weights)."""
LEAST_SPREAD = 0.002
"""Residuals below are rounding: no weight depends on them."""
LEAST_FALLOFF = 0.01
"""Vignetting that changes less than this between centre and corner is none."""
LEAST_FALL = 0.003
"""Share by which the residual of a camera's photographs must fall for its vignetting to be believed."""
DENSE = 3000
"""Up to so many photographs the system is solved as a dense matrix."""
TINY = 1e-9  # of the mean of the diagonal: what fixes the gauge


@dataclass(frozen=True, eq=False)
class Observations:
    """What is seen: one row for each keypoint that counts."""

    photo: Ints  # [O], 0 to num_photos - 1
    point: Ints  # [O], 0 to num_points - 1
    color: Floats  # [O, 3], logarithms of 0 to 1
    radius: Floats  # [O], r^2: squared distance from the principal point / half the diagonal
    camera: Ints  # [num_photos], 0 to num_cameras - 1

    def only(self, which: NDArray[np.bool_]) -> Observations:
        """Return some of them."""
        parts = {name: getattr(self, name)[which] for name in ("photo", "point", "color", "radius")}
        return replace(self, **parts)


@dataclass(frozen=True, eq=False)
class Solution:
    """What fits the observations."""

    gains: Floats  # [num_photos, 3], logarithms; mean 0
    vignetting: Floats  # [num_cameras, 2], 0 where a camera has none worth the name
    weights: Floats  # [O]
    before: float = 0.0
    """Residual without gains, standard deviation in logarithms; outliers weigh as little as in the end."""
    after: float = 0.0


def solve(seen: Observations) -> Solution:
    """Return gains and vignetting of photographs that are linked with each other."""
    num_cameras = int(seen.camera.max()) + 1
    none = np.zeros((num_cameras, 2))
    plain = _reweighted(seen, np.zeros(num_cameras, bool), np.ones(len(seen.photo)))
    bent = _reweighted(seen, np.ones(num_cameras, bool), plain.weights, ROUNDS // 2)
    pays = _pays(seen, plain, bent)
    if not pays.any():
        found = replace(plain, vignetting=none)
    else:
        found = bent if pays.all() else _reweighted(seen, pays, bent.weights, ROUNDS // 2)
    as_is = replace(found, gains=np.zeros_like(found.gains), vignetting=none)
    return replace(found, before=_spread(residuals_of(seen, as_is, found.weights), found.weights))


def _reweighted(seen: Observations, bends: NDArray[np.bool_], weights: Floats, rounds: int = ROUNDS) -> Solution:
    """Solve again and again; what fits badly counts less each time."""
    design = _Design(seen, bends)
    for _ in range(rounds):
        gains, vignetting = design.fit(weights)
        found = Solution(gains, vignetting, weights)
        weights = _cauchy(np.sqrt((residuals_of(seen, found, weights) ** 2).mean(axis=1)))
    return replace(found, weights=weights, after=_spread(residuals_of(seen, found, weights), weights))


def _cauchy(size: Floats) -> Floats:
    """Return weights of residuals [O] of this size."""
    soft = max(SOFT * float(np.median(size)), LEAST_SPREAD)
    weights: Floats = 1 / (1 + (size / soft) ** 2)
    return weights


class _Design:
    """Which unknown each observation knows of; made once, weighted many times."""

    def __init__(self, seen: Observations, bends: NDArray[np.bool_]) -> None:
        from scipy.sparse import csr_matrix

        self._seen, self._bends = seen, bends
        self._num_photos = len(seen.camera)
        number = np.cumsum(bends) - 1  # of the cameras that bend
        camera = seen.camera[seen.photo]
        row = np.flatnonzero(bends[camera])
        column = self._num_photos + 2 * number[camera[row]]
        rows = np.concatenate([np.arange(len(seen.photo)), row, row])
        columns = np.concatenate([seen.photo, column, column + 1])
        square = seen.radius[row]
        values = np.concatenate([np.ones(len(seen.photo)), square, square**2])
        shape = (len(seen.photo), self._num_photos + 2 * int(bends.sum()))
        self._design = csr_matrix((values, (rows, columns)), shape)
        ones = np.ones(len(seen.photo))
        self._tracks = csr_matrix((ones, (seen.point, np.arange(len(ones)))))  # [points, O]

    def fit(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return gains and vignetting at these weights.

        Vignetting is the same in all channels, so that only their mean tells of it, and it can be solved with that
        alone.
        """
        seen, num = self._seen, self._num_photos
        weighted = self._design.multiply(weights[:, None]).tocsr()
        matrix, rest = self._reduced(weighted, weights)
        vignetting = np.zeros((len(self._bends), 2))
        mean = seen.color.mean(axis=1, keepdims=True)
        if self._bends.any():
            found = _solved(matrix, rest(mean))[:, 0]
            vignetting[self._bends] = found[num:].reshape(-1, 2)
        evened = seen.color - _falloff(seen, vignetting)[:, None]
        gains = _solved(matrix[:num, :num], rest(evened)[:num])
        return gains - gains.mean(axis=0), vignetting

    def _reduced(self, weighted: Any, weights: Floats) -> tuple[Any, Any]:
        """Return the matrix of photographs and cameras without the points, and what makes its right-hand sides."""
        from scipy.sparse import diags

        per_point = 1 / np.maximum(self._tracks @ weights, 1e-12)
        links = self._tracks @ weighted  # [points, unknowns]
        matrix = self._design.T @ weighted - links.T @ (diags(per_point) @ links)

        def rest(color: Floats) -> Floats:
            means = per_point[:, None] * (self._tracks @ (weights[:, None] * color))
            right: Floats = weighted.T @ color - links.T @ means
            return right

        return matrix.tocsc(), rest


def _solved(matrix: Any, right: Floats) -> Floats:
    """Return the solution of a matrix that knows its unknowns up to a constant."""
    from scipy.sparse import identity
    from scipy.sparse.linalg import splu

    size = matrix.shape[0]
    tiny = TINY * float(matrix.diagonal().mean()) + 1e-12
    if size <= DENSE:
        found: Floats = np.linalg.solve(matrix.toarray() + tiny * np.eye(size), right)
        return found
    solved: Floats = splu(matrix + tiny * identity(size, format="csc")).solve(right)
    return solved


def _falloff(seen: Observations, vignetting: Floats) -> Floats:
    """Return the logarithm of the falloff at each observation."""
    if not vignetting.any():
        return np.zeros(len(seen.photo))
    one = vignetting[seen.camera[seen.photo]]
    bent: Floats = seen.radius * (one[:, 0] + seen.radius * one[:, 1])
    return bent


def _evened(seen: Observations, found: Solution) -> Floats:
    """Return the colours divided by the tones of their photographs, in logarithms."""
    evened: Floats = seen.color - found.gains[seen.photo] - _falloff(seen, found.vignetting)[:, None]
    return evened


def point_colors(seen: Observations, found: Solution, weights: Floats, num_points: int) -> Floats:
    """Return the colours of the points [num_points, 3]; NaN where nobody sees one."""
    total = np.bincount(seen.point, weights, num_points)
    evened = _evened(seen, found)
    sums = np.stack([np.bincount(seen.point, weights * evened[:, one], num_points) for one in range(3)], axis=1)
    colors: Floats = np.full_like(sums, np.nan)
    np.divide(sums, total[:, None], out=colors, where=total[:, None] > 0)
    return colors


def residuals_of(seen: Observations, found: Solution, weights: Floats) -> Floats:
    """Return how far each colour is from that of its point, [O, 3], once all are divided by their tones."""
    colors = point_colors(seen, found, weights, int(seen.point.max()) + 1)
    rest: Floats = _evened(seen, found) - colors[seen.point]
    return rest


def _spread(residuals: Floats, weights: Floats) -> float:
    return float(np.sqrt(np.average((residuals**2).mean(axis=1), weights=weights)))


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
    """Return the solution with gains of photographs that had no part in it, and which have one now.

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
        size = np.sqrt(((_evened(known, found) - colors[known.point]) ** 2).mean(axis=1))
        weights = _cauchy(size)
    gains, has_gain = found.gains.copy(), is_in.copy()
    rest = _evened(every, replace(found, gains=np.zeros_like(gains))) - colors[every.point]
    for photo in np.flatnonzero(~is_in):
        own = rest[(every.photo == photo) & ~np.isnan(rest[:, 0])]
        if len(own) >= least:
            gains[photo], has_gain[photo] = _robust_mean(own), True
    return replace(found, gains=gains), has_gain


def _robust_mean(values: Floats) -> Floats:
    """Return the mean of values [N, 3]; the farther off they are, the less they count."""
    mean: Floats = np.median(values, axis=0)
    for _ in range(ROUNDS):
        mean = np.average(values, axis=0, weights=_cauchy(np.sqrt(((values - mean) ** 2).mean(axis=1))))
    return mean
