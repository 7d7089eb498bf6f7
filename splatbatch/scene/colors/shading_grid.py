"""Shading grids: light that varies over one photograph, as where the sun comes through clouds.

A grid holds logarithms of brightness over a photograph, bilinear between its nodes. It is multiplied by a tint, as the
sun is yellower than the sky. A grid is fitted to the residual of the photograph's tracks. A photograph gets a grid only
if a grid fitted to half of the tracks explains the other half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.types import Floats, Ints
from splatbatch.scene.colors.correction import NODES

LEAST_FALL = 0.05
"""Share by which a grid fitted to half of a photograph's tracks must lower the residual of the other half.

Of the flight caliterra, 11 of 75 photographs have such a grid: those into which the sun broke. The grids explain 52 to
84 % of their residual. No photograph of the flights quarry and copr has a grid.
"""
LEAST_SIZE, MOST_SIZE = 0.06, 1.2
"""Range of accepted contrast of a grid: logarithm of the brightest over the darkest twentieth of the tracks.

A smaller contrast is hardly visible; a larger one is not light.
"""
SMOOTH = 1.0
"""Weight of the squared difference of neighbouring nodes, relative to one observation."""
TO_ZERO = 1e-3
"""Weight of the squared value of each node, relative to one observation: nodes without observations stay near 0."""
LEAST_TINT, MOST_TINT = 0.2, 2.5
"""Range of a channel's tint, relative to the mean of all channels; a tint outside is not a colour of light."""


def corners_of(place: Floats) -> tuple[Ints, Floats]:
    """Return the indices of the four nodes around each place, and their bilinear weights, [N, 4] each.

    Args:
        place: places relative to the principal point, in half diagonals, [N, 2]; beyond -1 to 1 the edge is taken.
    """
    at = (np.clip(place, -1, 1) + 1) / 2 * (NODES - 1)
    low = np.minimum(at.astype(np.int64), NODES - 2)
    (x, y), (right, down) = low.T, (at - low).T
    first = y * NODES + x
    nodes = np.stack([first, first + 1, first + NODES, first + NODES + 1], axis=1)
    shares = np.stack([(1 - right) * (1 - down), right * (1 - down), (1 - right) * down, right * down], axis=1)
    return nodes, shares


def field_at(place: Floats, grid: Floats) -> Floats:
    """Return the values of one grid [NODES^2], without its tint, at places [N, 2]: logarithms, [N]."""
    return field_at_each(place, grid[None], np.zeros(len(place), np.int64))


def field_at_each(place: Floats, fields: Floats, which: Ints) -> Floats:
    """Return the value of a grid at each place: logarithms, [N].

    Args:
        place: places relative to the principal point, in half diagonals, [N, 2].
        fields: the grids, [F, NODES^2].
        which: index of the grid to take at each place, [N].
    """
    nodes, shares = corners_of(place)
    return np.asarray((shares * fields[which[:, None], nodes]).sum(axis=1), np.float64)


def shares_along(places: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the linear weight of each node for places [N] along one axis, [N, NODES].

    Places are in half diagonals from the principal point; beyond -1 to 1 the edge is taken.
    """
    at = (np.clip(places, -1, 1) + 1) / 2 * (NODES - 1)
    return np.maximum(1 - np.abs(at[:, None] - np.arange(NODES, dtype=np.float32)), 0)


@dataclass(frozen=True, eq=False)
class ShadingResidual:
    """Residuals of observations to which shading grids are fitted: what is left after all other corrections."""

    point: Ints  # [N]; those of odd numbers are one half of the tracks
    place: Floats  # [N, 2]
    rest: Floats  # [N], logarithms
    weights: Floats  # [N]

    def only(self, which: NDArray[Any]) -> ShadingResidual:
        """Return a copy with the chosen observations alone.

        Args:
            which: a mask [N], or indices of observations.
        """
        return ShadingResidual(self.point[which], self.place[which], self.rest[which], self.weights[which])

    def fitted(self) -> Floats:
        """Return the smooth grid [NODES^2], in logarithms, that fits the residuals best in weighted least squares."""
        num, (nodes, shares) = NODES * NODES, corners_of(self.place)
        weighted = self.weights[:, None] * shares
        pairs = (nodes[:, :, None] * num + nodes[:, None, :]).ravel()
        products = (weighted[:, :, None] * shares[:, None, :]).ravel()
        matrix = np.bincount(pairs, products, num * num).reshape(num, num) + _SMOOTHNESS
        right = np.bincount(nodes.ravel(), (weighted * self.rest[:, None]).ravel(), num)
        return np.asarray(np.linalg.solve(matrix, right), np.float64)

    def off(self, told: Floats | float) -> float:
        """Return the weighted sum of absolute differences of the residuals from a prediction.

        Args:
            told: the prediction: one value, or one per observation [N].
        """
        return float(self.weights @ np.abs(self.rest - told))

    def fall(self) -> float:
        """Return the share by which a grid lowers the residual of the half of the tracks that it was not fitted to.

        0 if one half is empty; negative if the grid makes the residual larger.
        """
        is_odd = self.point % 2 == 1
        halves = self.only(is_odd), self.only(~is_odd)
        if not all(half.weights.sum() > 0 for half in halves):
            return 0.0
        flat = bent = 0.0
        for known, other in (halves, halves[::-1]):
            flat += other.off(float(np.average(known.rest, weights=known.weights)))
            bent += other.off(field_at(other.place, known.fitted()))
        return 1 - bent / max(flat, 1e-12)


def paying_fields(photo: Ints, seen: ShadingResidual, which: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return the accepted grids [num_photos, NODES^2], and the share of the residual that each removes [num_photos].

    A grid is 0 where none is accepted. A share is 0 for photographs that were not tried; for the others `fall` gives
    it, accepted or not.

    Args:
        photo: photograph of each observation, [N].
        seen: residuals of the observations.
        which: photographs to try, [num_photos].
    """
    fields, falls = np.zeros((len(which), NODES * NODES)), np.zeros(len(which))
    order = np.argsort(photo, kind="stable")
    ends = np.searchsorted(photo[order], np.arange(len(which) + 1))
    for one in np.flatnonzero(which):
        own = seen.only(order[ends[one] : ends[one + 1]])
        falls[one] = own.fall()
        if falls[one] >= LEAST_FALL:
            field = own.fitted()
            light = field_at(own.place, field)
            dark, bright = np.percentile(light, [5, 95])
            if LEAST_SIZE <= bright - dark <= MOST_SIZE:
                fields[one] = field - np.average(light, weights=own.weights)
    return fields, falls


def tint_of(field: Floats, rest: Floats, weights: Floats) -> Floats:
    """Return the tint of a grid: factors by which the channels follow it, with mean 1, [C].

    All are 1 if a factor is outside `LEAST_TINT` to `MOST_TINT`.

    Args:
        field: values of the grid at observations, [N].
        rest: residuals of the channels, [N, C].
        weights: weights of the observations, [N].
    """
    size = float(weights @ field**2)
    tint = (weights * field) @ rest / max(size, 1e-12)
    tint = tint / max(float(tint.mean()), 1e-12)
    is_light = (tint >= LEAST_TINT).all() and (tint <= MOST_TINT).all()
    return tint if is_light else np.ones(len(tint))


def _smoothness() -> Floats:
    """Return the matrix of squared differences of neighbouring nodes, with a small weight on each node."""
    number = np.arange(NODES * NODES).reshape(NODES, NODES)
    matrix = TO_ZERO * np.eye(NODES * NODES)
    for first, second in ((number[:, :-1], number[:, 1:]), (number[:-1], number[1:])):
        for a, b in zip(first.ravel(), second.ravel(), strict=True):
            matrix[[a, b, a, b], [a, b, b, a]] += SMOOTH * np.array([1, 1, -1, -1])
    return matrix


_SMOOTHNESS = _smoothness()
