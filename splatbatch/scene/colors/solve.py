"""Solves the colour corrections of photographs from the colours of their tracks: a sparse linear system, reweighted.

In logarithms: log(colour of point p in photograph i) = log(colour of p) + gain of i + v1 r^2 + v2 r^4 of i's camera.
Here r is the distance from the principal point over half the diagonal. The colours of the points are eliminated first
(Schur complement), so that only photographs and cameras are unknown. All channels share the weights: an occlusion or a
highlight in one channel is an error in all, and one matrix serves all channels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.types import Floats, Ints
from splatbatch.scene.colors.correction import NODES
from splatbatch.scene.colors.shading_grid import LEAST_FALL as LEAST_FIELD_FALL
from splatbatch.scene.colors.shading_grid import ShadingResidual, field_at_each, paying_fields, tint_of
from splatbatch.scene.colors.shared_illumination import (
    LEAST_SPREAD,
    SOFT,
    SharedIllumination,
    cauchy,
    find_sun_side,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

DENSE = 3000
"""Most unknowns (photographs, and two per camera with vignetting) for which the system is solved as a dense matrix."""
TINY = 1e-9  # of the mean of the diagonal: what fixes the gauge
CANDIDATE_FALL = LEAST_FIELD_FALL / 2
"""A photograph is tried again in the next round if a shading grid explains more than this share of its residual."""
ROUNDS = 6
"""Rounds of reweighting; gains move by less than 0.1 % after five."""
LAST_ROUNDS = 2
MOST_RISE = 0.03
"""Largest share by which a light common to all photographs may raise the residual of the tracks; more is no light.

In three flights such light raises the residual by 0.5 % at most. Exposures of the flight quarry that drift by a fifth,
taken for light, raise the residual by 20 %.
"""
LEAST_FALLOFF = 0.01
"""Vignetting that changes brightness by less than this from centre to corner (logarithm) is taken as none."""
LEAST_FALL = 0.003
"""Share by which vignetting must lower the residual of a camera's photographs to be accepted."""


@dataclass(frozen=True, eq=False)
class ColorObservations:
    """Observed colours of points in photographs: O rows, one per keypoint that is used."""

    photo: Ints  # [O], 0 to num_photos - 1
    point: Ints  # [O], 0 to num_points - 1
    color: Floats  # [O, 3], logarithms of 0 to 1; [O, 1]: their means
    place: Floats  # [O, 2], from the principal point / half the diagonal
    radius: Floats  # [O], r^2: its squared length
    camera: Ints  # [num_photos], 0 to num_cameras - 1
    axes: Floats  # [num_photos, 3], where each looks in the world
    slopes: Floats  # [num_photos, 2, 3], by how much that turns per unit of place; both 0 where unknown
    exposures: Floats  # [num_photos], logarithms of what EXIF says; NaN where it says nothing

    def only(self, which: NDArray[np.bool_]) -> ColorObservations:
        """Return a copy with the chosen observations alone; photographs, points and cameras keep their numbers.

        Args:
            which: mask of the observations, [O].
        """
        parts = {name: getattr(self, name)[which] for name in ("photo", "point", "color", "place", "radius")}
        return replace(self, **parts)


@dataclass(frozen=True, eq=False)
class Solution:
    """Colour corrections that fit the observations, with the residual before and after."""

    gains: Floats  # [num_photos, 3], logarithms at the principal point; mean 0
    vignetting: Floats  # [num_cameras, 2], 0 where it is not accepted
    weights: Floats  # [O], 0 to 1, by how well each observation fits
    tilts: Floats  # [num_photos, 2], of shared light; 0 without
    fields: Floats  # [num_photos, NODES^2], 0 for most
    tints: Floats  # [num_photos, 3], of the fields; 1 for most
    drift: SharedIllumination | None = None
    """Drift of the gains, and the light that explains it; None: no certain and visible drift, or too few photographs.

    If the tracks do not fit with that light, it is not removed: `tilts` are 0.
    """
    before: float = 0.0
    """Residual without correction: weighted standard deviation of a track's colours, in logarithms.

    0 until the system is solved. `after` is the residual with correction.
    """
    after: float = 0.0


def falloff_of(seen: ColorObservations, vignetting: Floats) -> Floats:
    """Return the logarithm of the vignetting at each observation, [O].

    Args:
        seen: the observations.
        vignetting: coefficients v1, v2 of each camera, [num_cameras, 2].
    """
    one = vignetting.T[:, seen.camera[seen.photo]]
    return seen.radius * (one[0] + seen.radius * one[1])


def shading_of(seen: ColorObservations, tilts: Floats) -> Floats:
    """Return the logarithm of the shading gradient at each observation, [O]: light that is a plane over a photograph.

    Args:
        seen: the observations.
        tilts: slopes of that plane in x and y, [num_photos, 2].
    """
    return (seen.place.T * tilts.T[:, seen.photo]).sum(axis=0)


def own_light(seen: ColorObservations, found: Solution) -> Floats:
    """Return the logarithm of each photograph's own shading grid at each observation, [O], without tint.

    0 for photographs without a grid.
    """
    light = np.zeros(len(seen.photo))
    if found.fields.any():
        rows = np.flatnonzero(np.any(found.fields, axis=1)[seen.photo])
        light[rows] = field_at_each(seen.place[rows], found.fields, seen.photo[rows])
    return light


def light_of(seen: ColorObservations, found: Solution) -> Floats:
    """Return the logarithm of shading gradients and shading grids at each observation.

    The shape is [O, 1] if `seen` holds mean colours, else [O, 3], with the tints of the grids.
    """
    own = own_light(seen, found)[:, None]
    tinted = own * found.tints[seen.photo] if seen.color.shape[1] > 1 else own
    return shading_of(seen, found.tilts)[:, None] + tinted


def evened_of(seen: ColorObservations, found: Solution) -> Floats:
    """Return the observed colours with the corrections of their photographs removed, in logarithms, [O, 3 or 1]."""
    return seen.color - found.gains[seen.photo] - falloff_of(seen, found.vignetting)[:, None] - light_of(seen, found)


def point_colors(point: Ints, colors: Floats, weights: Floats) -> Floats:
    """Return the weighted mean colours of the points in logarithms, [num_points, 3 or 1].

    NaN where no photograph sees the point.

    Args:
        point: point of each observation, [O].
        colors: colour of each observation, corrected or not, [O, 3 or 1].
        weights: weight of each observation, [O].
    """
    total = np.bincount(point, weights)
    sums = np.stack([np.bincount(point, weights * one) for one in colors.T], axis=1)
    with np.errstate(invalid="ignore"):
        return sums / total[:, None]


def residuals_of(point: Ints, colors: Floats, weights: Floats) -> Floats:
    """Return the difference of each colour from the mean colour of its point, [O, 3 or 1], in logarithms.

    The arguments are those of `point_colors`.
    """
    return colors - point_colors(point, colors, weights)[point]


def rest_of(seen: ColorObservations, found: Solution) -> Floats:
    """Return the mean over channels of each observation, without the point's colour and the vignetting, [O].

    What is left, in logarithms, is the gain and light of the photograph.
    """
    colors = point_colors(seen.point, evened_of(seen, found), found.weights)
    return (seen.color - colors[seen.point]).mean(axis=1) - falloff_of(seen, found.vignetting)


def own_weights(seen: ColorObservations, found: Solution, rest: Floats) -> Floats:
    """Return weights [O], 0 to 1, that fall with the residual relative to the usual residual of the photograph.

    So where half of a photograph lies in the sun, that half keeps its weight. `rest` is that of `rest_of`.
    """
    num = len(seen.camera)
    level = found.gains.mean(axis=1)[seen.photo] + shading_of(seen, found.tilts) + own_light(seen, found)
    off = np.abs(rest - level)
    usual = np.bincount(seen.photo, off, num) / np.maximum(np.bincount(seen.photo, minlength=num), 1)
    return 1 / (1 + (off / (SOFT * np.maximum(usual, LEAST_SPREAD)[seen.photo])) ** 2)


def spread(point: Ints, colors: Floats, weights: Floats) -> float:
    """Return the weighted standard deviation of the residuals, in logarithms.

    The arguments are those of `point_colors`. Raises ZeroDivisionError if the weights sum to 0.
    """
    return float(np.sqrt(np.average(_squares(residuals_of(point, colors, weights)), weights=weights)))


def _squares(residuals: Floats) -> Floats:
    """Return the mean square over the channels, [O]."""
    return np.asarray(np.einsum("oc,oc->o", residuals, residuals) / residuals.shape[1], np.float64)


class DesignMatrix:
    """Design matrix: which gains and vignetting coefficients each observation depends on.

    It is built once and then solved with changing weights.

    Args:
        seen: the observations.
        bends: cameras whose vignetting is solved, [num_cameras].
    """

    def __init__(self, seen: ColorObservations, bends: NDArray[np.bool_]) -> None:
        from scipy.sparse import csr_matrix

        self._bends = bends
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

    def fit(self, seen: ColorObservations, weights: Floats, color: Floats) -> tuple[Floats, Floats]:
        """Return the gains [num_photos, 3 or 1] and vignetting [num_cameras, 2] that fit best; gains have mean 0.

        Vignetting is the same in all channels, and is solved from their mean. It is 0 for cameras not in `bends`.

        Args:
            seen: the observations that the matrix was built from; their colours are not used.
            weights: weight of each observation, [O].
            color: logarithms of the colours to fit, without any light, [O, 3 or 1].

        Raises:
            numpy.linalg.LinAlgError: the system cannot be solved.
            RuntimeError: the same, for a system of more than `DENSE` unknowns.
        """
        num = self._num_photos
        matrix, rest = self._reduced(weights)
        vignetting = np.zeros((len(self._bends), 2))
        mean = color.mean(axis=1, keepdims=True)
        if self._bends.any():
            found = _solved(matrix, rest(mean))[:, 0]
            vignetting[self._bends] = found[num:].reshape(-1, 2)
        evened = color - falloff_of(seen, vignetting)[:, None]
        gains = _solved(matrix[:num, :num], rest(evened)[:num])
        return gains - gains.mean(axis=0), vignetting

    def feigned(self, weights: Floats, columns: Floats) -> tuple[Floats, Floats]:
        """Return the gains [num_photos, K] and vignetting [num_cameras, 2, K] that fit K columns [O, K] best.

        So one learns for which gains a light would be mistaken. `weights` are those of the observations, [O]. Raises
        the errors of `fit`.
        """
        matrix, rest = self._reduced(weights)
        found = _solved(matrix, rest(columns))
        gains, vignetting = found[: self._num_photos], np.zeros((*self._bends.shape, 2, columns.shape[1]))
        vignetting[self._bends] = found[self._num_photos :].reshape(-1, *vignetting.shape[1:])
        return gains - gains.mean(axis=0), vignetting

    def _reduced(self, weights: Floats) -> tuple[Any, Any]:
        """Return the matrix of photographs and cameras without the points, and a function for its right-hand sides."""
        weighted = _scaled(self._design, weights)
        per_point = 1 / np.maximum(self._tracks @ weights, 1e-12)
        links = self._tracks @ weighted  # [points, unknowns]
        matrix = self._design.T @ weighted - links.T @ _scaled(links, per_point)

        def rest(color: Floats) -> Floats:
            means = per_point[:, None] * (self._tracks @ (weights[:, None] * color))
            return weighted.T @ color - links.T @ means

        return matrix.tocsc(), rest


def _scaled(matrix: csr_matrix, by: Floats) -> csr_matrix:
    """Return a copy of a matrix, each row multiplied by its factor."""
    scaled = matrix.copy()
    scaled.data *= np.repeat(by, np.diff(scaled.indptr))
    return scaled


def _solved(matrix: Any, right: Floats) -> Floats:
    """Return the solution of a system that fixes its unknowns only up to a constant."""
    from scipy.sparse import identity
    from scipy.sparse.linalg import splu

    size = matrix.shape[0]
    tiny = TINY * float(matrix.diagonal().mean()) + 1e-12
    if size <= DENSE:
        return np.linalg.solve(matrix.toarray() + tiny * np.eye(size), right)
    return splu(matrix + tiny * identity(size, format="csc")).solve(right)


def solve(seen: ColorObservations, group: Ints) -> Solution:
    """Return the colour corrections of all photographs: gains, vignetting, shared light and shading grids.

    Gains have mean 0 over all photographs. All rounds but the last two (four with shading grids) use the mean of the
    channels, which takes a third of the time.

    Args:
        seen: the observations.
        group: group of linked photographs that each belongs to, [num_photos]; -1: none.

    Raises:
        ArithmeticError, ValueError, RuntimeError: the system cannot be solved.
    """
    grey, num_cameras = replace(seen, color=seen.color.mean(axis=1, keepdims=True)), int(seen.camera.max()) + 1
    num = len(seen.camera)
    unknown = Solution(
        gains=np.zeros((num, 1)),
        vignetting=np.zeros((num_cameras, 2)),
        weights=np.ones(len(seen.photo)),
        tilts=np.zeros((num, 2)),
        fields=np.zeros((num, NODES * NODES)),
        tints=np.ones((num, 3)),
    )
    plain = _reweighted(grey, DesignMatrix(grey, np.zeros(num_cameras, bool)), unknown)
    bent = _reweighted(grey, DesignMatrix(grey, np.ones(num_cameras, bool)), plain, ROUNDS // 2)
    bends = _pays(grey, plain, bent)
    design = DesignMatrix(grey, bends)
    lit = _in_own_light(grey, _lit(grey, bent if bends.any() else plain, design, group), design)
    found = _reweighted(seen, design, lit, LAST_ROUNDS)
    if found.fields.any():
        found = _reweighted(seen, design, _tinted(seen, found), LAST_ROUNDS)
    before, after = (spread(seen.point, one, found.weights) for one in (seen.color, evened_of(seen, found)))
    return replace(found, before=before, after=after)


def _lit(grey: ColorObservations, found: Solution, design: DesignMatrix, group: Ints) -> Solution:
    """Add the light common to all photographs, if gains drift without it and the tracks fit as well with it."""
    # by how much each point's direction deviates from the axis of its photograph, in the world, [O, 3]
    right, down = (grey.place[:, one, None] * grey.slopes[grey.photo, one] for one in (0, 1))
    gains, vignetting = design.feigned(found.weights, right + down)
    kinds = np.where(group < 0, -1, group * len(found.vignetting) + grey.camera)
    drift = find_sun_side(found.gains[:, 0], gains + grey.axes, grey.exposures, kinds)
    if drift is None:
        return found
    lit = replace(
        found,
        gains=found.gains - gains @ drift.light[:, None],
        vignetting=found.vignetting - vignetting @ drift.light,
        tilts=grey.slopes @ drift.light,
    )
    before, after = (spread(grey.point, evened_of(grey, one), found.weights) for one in (found, lit))
    if after > (1 + MOST_RISE) * before:
        return replace(found, drift=drift)
    return replace(lit, drift=drift)


def _in_own_light(grey: ColorObservations, found: Solution, design: DesignMatrix) -> Solution:
    """Add shading grids where they explain enough, and solve again with them, in turn."""
    which = np.ones(len(grey.camera), bool)
    for _ in range(ROUNDS):
        rest = rest_of(grey, found)
        unlit = rest - shading_of(grey, found.tilts)
        unexplained = ShadingResidual(grey.point, grey.place, unlit, own_weights(grey, found, rest))
        fields, falls = paying_fields(grey.photo, unexplained, which)
        if not fields.any():
            return replace(found, fields=fields)
        which = falls > CANDIDATE_FALL
        found = _reweighted(grey, design, replace(found, fields=fields), 1)
    return found


def _tinted(seen: ColorObservations, found: Solution) -> Solution:
    """Add the tints of the shading grids."""
    light, tints = own_light(seen, found), found.tints.copy()
    rest = residuals_of(seen.point, evened_of(seen, found), found.weights) + light[:, None]
    for photo in np.flatnonzero(found.fields.any(axis=1)):
        rows = seen.photo == photo
        tints[photo] = tint_of(light[rows], rest[rows], found.weights[rows])
    return replace(found, tints=tints)


def _reweighted(seen: ColorObservations, design: DesignMatrix, found: Solution, rounds: int = ROUNDS) -> Solution:
    """Solve repeatedly with the light found so far; observations that fit badly lose weight each time."""
    unlit = seen.color - light_of(seen, found)
    for _ in range(rounds):
        gains, vignetting = design.fit(seen, found.weights, unlit)
        evened = unlit - gains[seen.photo] - falloff_of(seen, vignetting)[:, None]
        off = residuals_of(seen.point, evened, found.weights)
        found = replace(found, gains=gains, vignetting=vignetting, weights=cauchy(np.sqrt(_squares(off))))
    return found


def _pays(seen: ColorObservations, plain: Solution, bent: Solution) -> NDArray[np.bool_]:
    """Return the cameras whose vignetting explains enough to be accepted, [num_cameras]."""
    camera, num = seen.camera[seen.photo], len(bent.vignetting)
    residuals = (residuals_of(seen.point, evened_of(seen, found), bent.weights) for found in (plain, bent))
    before, after = (np.sqrt(np.bincount(camera, bent.weights * _squares(one), num)) for one in residuals)
    farthest = np.array(
        [np.percentile(seen.radius[camera == one], 99) if (camera == one).any() else 0 for one in range(num)]
    )
    corner = farthest * (bent.vignetting[:, 0] + farthest * bent.vignetting[:, 1])
    return (after < (1 - LEAST_FALL) * before) & (np.abs(corner) > LEAST_FALLOFF)
