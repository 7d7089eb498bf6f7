"""How many patches, and where: as few as keep to the wish, their costs as even as cuts can make them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from splatbatch.errors import ConfigError
from splatbatch.plain_text import counted
from splatbatch.scene.colmap.sightings import Mask
from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.partition.boxes import EVERYWHERE, Box, owners
from splatbatch.scene.partition.cutting.cuts import NoRoom, evenness, grid, halves
from splatbatch.scene.partition.cutting.membership import Part, Seen, parts_of

EVEN = 1.25
"""Ratio of the dearest to the cheapest part at which nothing is moved any more."""
ROUNDS, PULL = 8, 0.7
"""Times that cuts are moved, and how strongly: what costs more than the mean weighs more in the next round."""
MOST_TRIALS = 16
FEWER = 0.95
"""Of the parts that a largest one seems to ask for, tried next: too many cannot be taken back."""
LEAST_PHOTOS, LEAST_POINTS = 3, 20
"""Photographs of a patch that are trained on, and points in its core: below that there is nothing to train."""
TAILS, MARGIN = (0.1, 99.9), 0.05
"""Percent of the points between which a scene lies, and what is added on each side, of its width."""
CutInto = Callable[[Floats, Floats], list[Box]]


@dataclass(frozen=True, eq=False)
class Layout:
    """Cores, with what belongs to them."""

    cores: list[Box]
    grown: list[Box]
    bounds: list[Box]
    parts: list[Part]

    def most(self) -> int:
        """Return the photographs of the part that has most."""
        return max(part.num_photos for part in self.parts)

    def evenness(self) -> float:
        """Return how many times the cheapest part the dearest costs."""
        return evenness([part.cost for part in self.parts])


@dataclass(frozen=True, eq=False)
class Ground:
    """What cuts are tried on."""

    seen: Seen
    is_test: Mask  # [I]
    overlap: float

    def lay_out(self, cores: Sequence[Box]) -> Layout:
        """Return what belongs to cores."""
        bounds = [_bounds(core, self.seen.places[core.holds(self.seen.places)]) for core in cores]
        grown = [core.grown(_steps(bound, self.overlap)) for core, bound in zip(cores, bounds, strict=True)]
        return Layout(list(cores), grown, bounds, parts_of(self.seen, cores, grown))

    def balanced(self, cut: CutInto, box: Box = EVERYWHERE, others: Sequence[Box] = ()) -> Layout:
        """Return the most even of some layouts of a box, with others beside it: dear parts weigh more each time.

        Raises:
            NoRoom: a box cannot be cut any more.
        """
        inside, best, least = box.holds(self.seen.places), None, math.inf
        places, weights = self.seen.places[inside], self.seen.weights()[inside]
        for _ in range(ROUNDS):
            cores = cut(places, weights)
            found = self.lay_out([*cores, *others])
            costs = np.array([part.cost for part in found.parts[: len(cores)]])
            if best is None or evenness(costs) < least:
                best, least = found, evenness(costs)
            if least <= EVEN:
                break
            weights = weights * ((costs / costs.mean()) ** PULL)[owners(cores, places)]
        if best is None:
            raise NoRoom
        return best

    def lacks(self, layout: Layout) -> int | None:
        """Return the first part that cannot be trained: too few photographs, or points; None if all can."""
        for index, part in enumerate(layout.parts):
            if (part.photos & ~self.is_test).sum() < LEAST_PHOTOS or part.in_core.sum() < LEAST_POINTS:
                return index
        return None


def by_size(tried: Ground, ground: Ground, most: int) -> Layout:
    """Return as few even parts as have at most so many photographs each.

    Args:
        tried: some of the points: cuts are tried on them.
        ground: all of them: what was found has to hold there.
        most: photographs of a part.

    Raises:
        ConfigError: photographs see too much of the scene for parts so small; the nearest possible is named.
    """
    num_photos, nearest = len(ground.seen.totals), None
    count = max(1, -(-num_photos // most))
    for _ in range(MOST_TRIALS):
        found = _tried(tried, count)
        if found is None:
            break
        if found.most() <= most:
            found = ground.lay_out(found.cores)
            if found.most() <= most:
                return found
        if nearest is None or found.most() < nearest.most():
            nearest = found
        elif count > 2 * len(nearest.cores) + 4:
            break  # however many there are, they do not get smaller
        count = max(count + 1, int(FEWER * count * found.most() / most))
    possible = ground.lay_out(nearest.cores) if nearest else None
    asked = f"--max-images {most}: cannot be kept to: the photographs see too much of the scene for patches so small"
    if possible is None:
        raise ConfigError(asked, f"Nearest possible: --max-images {num_photos}, one patch.")
    raise ConfigError(
        asked, f"Nearest possible: --max-images {possible.most()}, {counted(len(possible.cores), 'patch', 'es')}."
    )


def _tried(ground: Ground, count: int) -> Layout | None:
    """Return a scene in so many even parts; None if some of them could not be trained."""
    try:
        found = ground.balanced(lambda places, weights: halves(places, weights, count))
    except NoRoom:
        return None
    return found if ground.lacks(found) is None or count == 1 else None


def by_grid(tried: Ground, ground: Ground, shape: tuple[int, int]) -> Layout:
    """Return a scene in so many rows of so many parts each.

    Raises:
        ConfigError: there would be parts that nobody sees; the nearest possible grid is named.
    """
    if found := _gridded(tried, shape):
        return ground.lay_out(found.cores)
    rows, columns = shape
    smaller = [(a, b) for a in range(1, min(rows, 40) + 1) for b in range(1, min(columns, 40) + 1) if (a, b) != shape]
    smaller.sort(key=lambda one: (-one[0] * one[1], abs(one[0] / one[1] - rows / columns)))
    fitting = (one for one in smaller if one[0] * one[1] * LEAST_PHOTOS <= len(ground.seen.totals) * 2)
    possible = next((one for _, one in zip(range(60), fitting, strict=False) if _gridded(tried, one)), (1, 1))
    raise ConfigError(
        f"--grid {rows}x{columns}: some of its {rows * columns} patches would have fewer than {LEAST_PHOTOS} "
        f"photographs to train from, or {LEAST_POINTS} points",
        f"Nearest possible: --grid {possible[0]}x{possible[1]}.",
    )


def _gridded(ground: Ground, shape: tuple[int, int]) -> Layout | None:
    try:
        found = ground.balanced(lambda places, weights: grid(places, weights, shape))
    except NoRoom:
        return None
    return found if ground.lacks(found) is None else None


def _bounds(core: Box, places: Floats) -> Box:
    """Return a core as far as its own points reach: what is added elsewhere to a scene does not move it."""
    low, high = np.percentile(places, TAILS, axis=0) if len(places) else (np.zeros(3), np.zeros(3))
    lower, upper = np.array(core.lower), np.array(core.upper)
    low, high = np.where(np.isfinite(lower), lower, low), np.where(np.isfinite(upper), upper, high)
    margin = np.maximum(MARGIN * np.abs(high - low), np.spacing(np.maximum(np.abs(low), np.abs(high))) * 1024)
    return Box(_corner(np.minimum(low, high) - margin), _corner(np.maximum(low, high) + margin)).clipped(core)


def _steps(bound: Box, overlap: float) -> tuple[float, float, float]:
    return _corner(overlap * np.subtract(bound.upper, bound.lower))


def _corner(values: Floats) -> tuple[float, float, float]:
    x, y, z = (float(f"{value:.12g}") for value in values)
    return (x, y, z)
