"""Half-open boxes that tile space, so that each finite place lies in exactly one box."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.types import Floats, triple

Corner = tuple[float, float, float]
NO_BOX = -1
"""Index instead of a box's for a place that lies in no box, as NaN or plus infinity."""


@dataclass(frozen=True)
class Box:
    """A half-open box: lower <= x < upper along each of the partition's axes. Sides may be infinite."""

    lower: Corner
    upper: Corner

    def holds(self, places: Floats) -> NDArray[np.bool_]:
        """Return which places [N, 3], in the axes of the box, lie in the box, [N]; NaN lies in none."""
        inside = np.ones(len(places), dtype=bool)
        for values, low, high in zip(np.asarray(places).T, self.lower, self.upper, strict=True):
            inside &= values >= low
            inside &= values < high
        return inside

    def with_overlap(self, by: Corner) -> Box:
        """Return a box with finite sides moved outwards by `by`, in units of the model along each axis."""
        return Box(triple(np.subtract(self.lower, by)), triple(np.add(self.upper, by)))

    def clipped(self, to: Box) -> Box:
        """Return the intersection with another box; without one, `lower` is not below `upper` on some axis."""
        return Box(triple(map(max, self.lower, to.lower)), triple(map(min, self.upper, to.upper)))

    def cut(self, axis: int, at: float) -> tuple[Box, Box]:
        """Return the two parts of the box below and above a place.

        Args:
            axis: number of the axis that is cut, 0 to 2.
            at: place of the cut on that axis, inside the box.
        """
        below, above = list(self.upper), list(self.lower)
        below[axis] = above[axis] = at
        return Box(self.lower, triple(below)), Box(triple(above), self.upper)

    def meets(self, other: Box) -> bool:
        """Return whether the two boxes have a place in common; boxes that share only a face have none."""
        both = self.clipped(other)
        return all(low < high for low, high in zip(both.lower, both.upper, strict=True))

    def within(self, other: Box) -> bool:
        """Return whether this box lies within the other box, or equals it."""
        return self.clipped(other) == self

    def is_finite(self) -> bool:
        """Return whether no side is infinite."""
        return all(map(math.isfinite, self.lower + self.upper))


EVERYWHERE = Box((-math.inf,) * 3, (math.inf,) * 3)


def owners(boxes: Sequence[Box], places: Floats) -> NDArray[np.intp]:
    """Return the index of the box in which each place lies, [N]; `NO_BOX` (-1) for a place in no box.

    Args:
        boxes: boxes that do not overlap; else the last box that holds a place counts.
        places: places in the axes of the boxes, [N, 3].
    """
    found = np.full(len(places), NO_BOX, dtype=np.intp)
    for index, box in enumerate(boxes):
        found[box.holds(places)] = index
    return found


def first_meeting(boxes: Sequence[Box]) -> tuple[int, int] | None:
    """Return the indices of the first two boxes that have a place in common; None if no two boxes have."""
    return next((pair for pair in combinations(range(len(boxes)), 2) if boxes[pair[0]].meets(boxes[pair[1]])), None)


def tile(boxes: Sequence[Box]) -> bool:
    """Return whether boxes that do not overlap cover all space, without any gap; False for no boxes.

    Volumes are counted in ranks of the sides, which are whole numbers, so that the sum is exact.
    """
    sides = [{side for box in boxes for side in (box.lower[axis], box.upper[axis])} for axis in range(3)]
    ranks = [{side: rank for rank, side in enumerate(sorted(own | {-math.inf, math.inf}))} for own in sides]
    volume = sum(
        math.prod(ranks[axis][box.upper[axis]] - ranks[axis][box.lower[axis]] for axis in range(3)) for box in boxes
    )
    return bool(boxes) and volume == math.prod(len(known) - 1 for known in ranks)


def open_sides(corner: Corner) -> tuple[float | None, ...]:
    """Return a corner of a box as files hold it: None (null) for an infinite side."""
    return tuple(side if math.isfinite(side) else None for side in corner)


def box_between(lower: Sequence[float | None], upper: Sequence[float | None]) -> Box:
    """Return the box between two corners as files hold them; None is minus infinity below, and infinity above."""
    low = (-math.inf if side is None else side for side in lower)
    high = (math.inf if side is None else side for side in upper)
    return Box(triple(low), triple(high))
