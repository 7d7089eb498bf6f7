"""Cuts that share a scene's work evenly: recursive, across the longer side, at a place between two points."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.partition.boxes import EVERYWHERE, Box

TAILS = (2.0, 98.0)
"""Percent of the points between which the longer side is measured."""
DIGITS = 4
"""Of a cut, relative to how far the scene reaches: what a person can read, and every machine agrees on."""


class NoRoom(Exception):
    """A box cannot be cut any more: its points lie in one place."""


def halves(places: Floats, weights: Floats, num_parts: int, box: Box = EVERYWHERE) -> list[Box]:
    """Return a box cut into so many parts of even weight, from one end to the other.

    Raises:
        NoRoom: there are too few places for so many parts.
    """
    if num_parts == 1:
        return [box]
    low, high = np.percentile(places[:, :2], TAILS, axis=0) if len(places) else (np.zeros(2), np.zeros(2))
    axis = int(np.argmax(high - low))
    lesser = num_parts // 2
    at = _place_at(places[:, axis], weights, lesser / num_parts)
    below, above = box.cut(axis, at)
    is_below = places[:, axis] < at
    return [
        *halves(places[is_below], weights[is_below], lesser, below),
        *halves(places[~is_below], weights[~is_below], num_parts - lesser, above),
    ]


def grid(places: Floats, weights: Floats, shape: tuple[int, int]) -> list[Box]:
    """Return all space as rows of boxes: so many of even weight along the first axis, each cut so often across.

    Raises:
        NoRoom: there are too few places for so many parts.
    """
    cells = []
    for row in slices(places, weights, EVERYWHERE, (0, shape[0])):
        inside = row.holds(places)
        cells += slices(places[inside], weights[inside], row, (1, shape[1]))
    return cells


def slices(places: Floats, weights: Floats, box: Box, cut: tuple[int, int]) -> list[Box]:
    """Return a box in slices of even weight: across which axis, and how many.

    Raises:
        NoRoom: there are too few places for so many.
    """
    axis, count = cut
    found = []
    for left in range(count, 1, -1):
        at = _place_at(places[:, axis], weights, 1 / left)
        below, box = box.cut(axis, at)
        rest = places[:, axis] >= at
        places, weights = places[rest], weights[rest]
        found.append(below)
    return [*found, box]


def _place_at(values: Floats, weights: Floats, share: float) -> float:
    """Return the place below which so much of the weight lies: a round number with values on both sides."""
    order = np.argsort(values, kind="stable")
    ranked, summed = values[order], np.cumsum(weights[order])
    if not len(ranked) or ranked[0] == ranked[-1]:
        raise NoRoom
    index = int(np.searchsorted(summed, share * summed[-1]))
    index = min(max(index, 1), len(ranked) - 1)
    at = _rounded((ranked[index - 1] + ranked[index]) / 2, float(ranked[-1] - ranked[0]))
    return at if ranked[0] < at <= ranked[-1] else float(ranked[ranked > ranked[0]][0])


def _rounded(value: float, reach: float) -> float:
    return round(float(value), DIGITS - math.floor(math.log10(reach))) + 0.0


def evenness(costs: Sequence[float] | Floats) -> float:
    """Return how many times the cheapest part the dearest costs."""
    return max(costs) / min(costs) if len(costs) and min(costs) > 0 else math.inf
