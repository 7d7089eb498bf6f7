"""How many patches, and where: as few as keep to what was asked, their costs as even as cuts can make them.

A photograph belongs to a core by what it sees, not by where it stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from splatbatch.errors import ConfigError
from splatbatch.scene.colmap.indexed_model import IndexedModel, Indices
from splatbatch.scene.colmap.types import Floats, Mask, finite, triple
from splatbatch.scene.partition.boxes import EVERYWHERE, Box, owners
from splatbatch.scene.partition.record import Axes
from splatbatch.text import plural

SHARE = 0.15
"""Of a photograph's points: who sees so much of a core belongs to it, however far away."""
GROWN_SHARE = 0.25
"""The same for a core with its overlap, of photographs that are near."""
NEAR = 2.0
"""Times the median distance at which a core is seen beyond which a photograph shows little of it."""
COVER = 0.98
"""Of a core's points should be seen by two of its photographs, if two photographs see them at all."""
TAILS = (2.0, 98.0)
"""Percent of the points between which the longer side is measured."""
DIGITS = 4
"""Of a cut, relative to how far the scene reaches: what a person can read, and every machine agrees on."""
EVEN = 1.25
"""Ratio of the dearest to the cheapest part at which nothing is moved any more."""
ROUNDS, PULL = 8, 0.7
"""Times that cuts are moved, and how strongly: what costs more than the mean weighs more in the next round."""
MOST_TRIALS = 16
FEWER = 0.95
"""Of the parts that a largest one seems to ask for, tried next: too many cannot be taken back."""
STEADY = 3
"""Times as many parts, none of them smaller: more would not be, either."""
SENSIBLE = 1.1
"""Times the smallest possible size of a part: what is smaller takes many more parts, which all see the same."""
LEAST_PHOTOS, LEAST_POINTS = 3, 20
"""Photographs of a patch that are trained on, and points in its core: below that there is nothing to train."""
EXTENT_TAILS, MARGIN = (0.1, 99.9), 0.05
"""Percent of the points between which a scene lies, and what is added on each side, of its width."""
CutInto = Callable[[Floats, Floats], list[Box]]
FLAT = 0.1
"""Spread of cameras, against their longest, below which a direction is told by the points: a single strip of flight
varies as little across as in height."""
FAR = 8
"""Times the median distance from the middle beyond which a camera was registered wrongly."""
AXIS_DIGITS = 9
"""Of a unit vector: what libraries of linear algebra agree on."""


@dataclass(frozen=True, eq=False)
class CutRegion:
    """What a patch is made of, and what that costs."""

    photos: Mask  # [I]
    points: Mask  # [P], those that two of the photographs see
    in_core: Mask  # [P]
    cost: float
    """Share of the scene's work: half of it the pixels, half the points; all parts together make more than 1."""

    @property
    def num_photos(self) -> int:
        """Number of its photographs."""
        return int(self.photos.sum())


@dataclass(frozen=True, eq=False)
class PartObservations:
    """The sightings of a scene, with where its points lie in the axes of the boxes."""

    observations: IndexedModel
    places: Floats  # [P, 3]
    point: Indices  # [n]
    totals: Floats  # [I], sightings of each photograph
    centers: Floats  # [I, 3], in the axes
    pixels: Floats  # [I]

    def weights(self) -> Floats:
        """Return each point's share of the scene's work, [P]: of the pixels that see it, and as a point."""
        per_sighting = self.pixels / np.maximum(self.totals, 1) / max(self.pixels.sum(), 1)
        seen = per_sighting[self.observations.photo]
        shares = np.bincount(self.point, seen, minlength=len(self.places))
        return (shares + 1 / len(self.places)) / 2

    def counted(self, points: Mask) -> Floats:
        """Return how many of some points [P] each photograph sees, [I]."""
        at, _ = self.observations.of_points(points)
        return np.bincount(self.observations.photo[at], minlength=len(self.totals)).astype(np.float64)

    def shares(self, owner: NDArray[np.intp], count: int) -> Floats:
        """Return which share of its points each photograph sees in each of so many cores, [count, I]."""
        pairs = self.observations.photo.astype(np.int64)
        pairs *= count + 1
        pairs += owner[self.point] + 1  # those in no box come first
        table = np.bincount(pairs, minlength=len(self.totals) * (count + 1)).reshape(-1, count + 1)
        return table[:, 1:].T / np.maximum(self.totals, 1)

    def distances(self, points: Mask) -> Floats:
        """Return how far those of some points are that each photograph sees, in the mean; NaN for none, [I]."""
        at, point = self.observations.of_points(points)
        photo = self.observations.photo[at]
        away = self.centers[photo] - self.places[point]
        lengths = np.sqrt(np.einsum("ij,ij->i", away, away))
        with np.errstate(invalid="ignore"):
            mean: Floats = np.bincount(photo, lengths, len(self.totals)) / np.bincount(
                photo, minlength=len(self.totals)
            )
        return mean


def seen_along(sightings: IndexedModel, axes: Floats) -> PartObservations:
    """Return the sightings of a scene in the axes of boxes."""
    totals = np.bincount(sightings.photo, minlength=len(sightings.images)).astype(np.float64)
    places, centers = sightings.points.xyz @ axes.T, sightings.centers() @ axes.T
    return PartObservations(sightings, places, sightings.point, totals, centers, sightings.pixels())


def parts_of(seen: PartObservations, cores: Sequence[Box], grown: Sequence[Box]) -> list[CutRegion]:
    """Return what belongs to each core.

    A photograph that belongs nowhere by its shares goes where it sees most.
    """
    owner = owners(cores, seen.places)
    shares = seen.shares(owner, len(cores))
    belongs = [_by_sight(seen, shares[index], box.holds(seen.places)) for index, box in enumerate(grown)]
    most = np.where(seen.totals > 0, shares.argmax(axis=0), -1)
    lost = ~np.any(belongs, axis=0)
    return [_part(seen, photos | (lost & (most == index)), owner == index) for index, photos in enumerate(belongs)]


def _by_sight(seen: PartObservations, share: Floats, in_grown: Mask) -> Mask:
    """Return which photographs see enough of a core, or of it and its overlap from near enough."""
    belongs = share >= SHARE
    also = seen.counted(in_grown) / np.maximum(seen.totals, 1) >= GROWN_SHARE
    if not belongs.any() or not (also & ~belongs).any():
        return belongs | also
    away = seen.distances(in_grown)
    return belongs | (also & (away <= NEAR * np.nanmedian(away[belongs])))


def _part(seen: PartObservations, photos: Mask, in_core: Mask) -> CutRegion:
    """Return a part, its photographs completed: by those, most useful first, that give more of its core depth."""
    photos = photos.copy()
    wanted = in_core & (np.diff(seen.observations.starts) >= 2)
    may_lack = (1 - COVER) * wanted.sum()
    points = seen.observations.seen_by(photos)
    while (lacking := wanted & ~points).sum() > may_lack:
        gains = np.where(photos, 0, seen.counted(lacking))
        if not gains.max() > 0:
            break
        photos[gains >= max(1.0, 0.5 * gains.max())] = True
        points = seen.observations.seen_by(photos)
    pixels = seen.pixels[photos].sum() / max(seen.pixels.sum(), 1)
    return CutRegion(photos, points, in_core, float(pixels + points.sum() / max(len(points), 1)) / 2)


class UncuttableBox(Exception):
    """A box cannot be cut any more: its points lie in one place."""


def halves(places: Floats, weights: Floats, num_parts: int, box: Box = EVERYWHERE) -> list[Box]:
    """Return a box cut into so many parts of even weight, from one end to the other.

    Raises:
        UncuttableBox: there are too few places for so many parts.
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
        UncuttableBox: there are too few places for so many parts.
    """
    cells = []
    for row in slices(places, weights, EVERYWHERE, (0, shape[0])):
        inside = row.holds(places)
        cells += slices(places[inside], weights[inside], row, (1, shape[1]))
    return cells


def slices(places: Floats, weights: Floats, box: Box, cut: tuple[int, int]) -> list[Box]:
    """Return a box in slices of even weight: across which axis, and how many.

    Raises:
        UncuttableBox: there are too few places for so many.
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
        raise UncuttableBox
    index = int(np.searchsorted(summed, share * summed[-1]))
    index = min(max(index, 1), len(ranked) - 1)
    at = _rounded((ranked[index - 1] + ranked[index]) / 2, float(ranked[-1] - ranked[0]))
    return at if ranked[0] < at <= ranked[-1] else float(ranked[ranked > ranked[0]][0])


def _rounded(value: float, reach: float) -> float:
    return round(float(value), DIGITS - math.floor(math.log10(reach))) + 0.0


def evenness(costs: Sequence[float] | Floats) -> float:
    """Return how many times the cheapest part the dearest costs."""
    return max(costs) / min(costs) if len(costs) and min(costs) > 0 else math.inf


@dataclass(frozen=True, eq=False)
class CutLayout:
    """Cores, with what belongs to them."""

    cores: list[Box]
    overlap: list[Box]
    bounds: list[Box]
    parts: list[CutRegion]

    def most(self) -> int:
        """Return the photographs of the part that has most."""
        return max(part.num_photos for part in self.parts)


@dataclass(frozen=True, eq=False)
class CutContext:
    """What cuts are tried on."""

    seen: PartObservations
    is_test: Mask  # [I]
    overlap: float

    def lay_out(self, cores: Sequence[Box]) -> CutLayout:
        """Return what belongs to cores."""
        bounds = [_bounds(core, self.seen.places[core.holds(self.seen.places)]) for core in cores]
        steps = [_corner(self.overlap * np.subtract(bound.upper, bound.lower)) for bound in bounds]
        grown = [core.with_overlap(step) for core, step in zip(cores, steps, strict=True)]
        return CutLayout(list(cores), grown, bounds, parts_of(self.seen, cores, grown))

    def balanced(self, cut: CutInto, box: Box = EVERYWHERE, others: Sequence[Box] = ()) -> CutLayout:
        """Return the most even of some layouts of a box, with others beside it: dear parts weigh more each time.

        Raises:
            UncuttableBox: a box cannot be cut any more.
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
            raise UncuttableBox
        return best

    def lacks(self, layout: CutLayout) -> int | None:
        """Return the first part that cannot be trained: too few photographs, or points; None if all can."""
        for index, part in enumerate(layout.parts):
            if (part.photos & ~self.is_test).sum() < LEAST_PHOTOS or part.in_core.sum() < LEAST_POINTS:
                return index
        return None


def by_size(tried: CutContext, ground: CutContext, most: int) -> CutLayout:
    """Return as few even parts as have at most so many photographs each.

    Args:
        tried: some of the points: cuts are tried on them.
        ground: all of them: what was found has to hold there.
        most: photographs of a part.

    Raises:
        ConfigError: photographs see too much of the scene for parts so small; the nearest possible is named.
    """
    num_photos, least = len(ground.seen.totals), None
    count = max(1, -(-num_photos // most))
    for _ in range(MOST_TRIALS):
        found = _tried(tried, partial(halves, num_parts=count), may_lack=count == 1)
        if found is None:
            break
        if found.most() <= most:
            found = ground.lay_out(found.cores)
            if found.most() <= most:
                return found
        if least is None or found.most() < least.most():
            least = found
        elif count > STEADY * len(least.cores):
            break  # however many there are, they do not get smaller
        count = max(count + 1, int(FEWER * count * found.most() / most))
    return _nearest(list(_every_size(tried, ground)), most)


def _every_size(tried: CutContext, ground: CutContext) -> Iterator[CutLayout]:
    """Yield a scene in one even part, in two, … in more, by a quarter at a time, for as long as parts get smaller."""
    count, least, at = 1, math.inf, 1
    while count <= STEADY * at and (found := _tried(tried, partial(halves, num_parts=count), may_lack=count == 1)):
        yield (layout := ground.lay_out(found.cores))
        if layout.most() < least:
            least, at = layout.most(), count
        count += max(1, count // 4)


def _nearest(layouts: Sequence[CutLayout], most: int) -> CutLayout:
    """Return the layout of fewest parts that have at most so many photographs each.

    The same layouts whatever was asked for: so what is named as possible is found when it is asked for.

    Raises:
        ConfigError: none has; one that many more parts would hardly make smaller is named.
    """
    asked = f"--max-images {most}: cannot be kept to: the photographs see too much of the scene for patches so small"
    if not layouts:
        raise ConfigError(asked, "Nearest possible: leave --max-images out.")

    def first(limit: float) -> CutLayout | None:
        return next((one for one in layouts if one.most() <= limit), None)

    if found := first(most):
        return found
    near = first(SENSIBLE * min(one.most() for one in layouts)) or layouts[-1]
    raise ConfigError(asked, f"Nearest possible: --max-images {near.most()}, {plural(len(near.cores), 'patch', 'es')}.")


def by_grid(tried: CutContext, ground: CutContext, shape: tuple[int, int]) -> CutLayout:
    """Return a scene in so many rows of so many parts each.

    Raises:
        ConfigError: there would be parts that no photograph sees; the nearest possible grid is named.
    """
    if found := _tried(tried, partial(grid, shape=shape)):
        return ground.lay_out(found.cores)
    rows, columns = shape
    smaller = [(a, b) for a in range(1, min(rows, 40) + 1) for b in range(1, min(columns, 40) + 1) if (a, b) != shape]
    smaller.sort(key=lambda one: (-one[0] * one[1], abs(one[0] / one[1] - rows / columns)))
    fitting = (one for one in smaller if one[0] * one[1] * LEAST_PHOTOS <= len(ground.seen.totals) * 2)
    possible = next((one for one in islice(fitting, 60) if _tried(tried, partial(grid, shape=one))), (1, 1))
    raise ConfigError(
        f"--grid {rows}x{columns}: some of its {rows * columns} patches would have fewer than {LEAST_PHOTOS} "
        f"photographs to train from, or {LEAST_POINTS} points",
        f"Nearest possible: --grid {possible[0]}x{possible[1]}.",
    )


def _tried(ground: CutContext, cut: CutInto, *, may_lack: bool = False) -> CutLayout | None:
    """Return a scene in parts that are as even as can be; None if some of them could not be trained."""
    try:
        found = ground.balanced(cut)
    except UncuttableBox:
        return None
    return found if may_lack or ground.lacks(found) is None else None


def _bounds(core: Box, places: Floats) -> Box:
    """Return a core as far as its own points reach: what is added elsewhere to a scene does not move it."""
    low, high = np.percentile(places, EXTENT_TAILS, axis=0) if len(places) else (np.zeros(3), np.zeros(3))
    lower, upper = np.array(core.lower), np.array(core.upper)
    low, high = np.where(np.isfinite(lower), lower, low), np.where(np.isfinite(upper), upper, high)
    margin = np.maximum(MARGIN * np.abs(high - low), np.spacing(np.maximum(np.abs(low), np.abs(high))) * 1024)
    return Box(_corner(np.minimum(low, high) - margin), _corner(np.maximum(low, high) + margin)).clipped(core)


def _corner(values: Floats) -> tuple[float, float, float]:
    return triple(float(f"{value:.12g}") for value in values)


def principal_axes(centers: Floats, points: Floats, up: tuple[float, float, float] | None = None) -> Axes:
    """Return unit vectors along the longest way of the cameras [I, 3], across it, and up, as rows.

    Up is where the cameras vary least, or as given, and points from what they see to them.

    Raises:
        ConfigError: the given direction is none.
    """
    cameras = _near(finite(centers))
    if up is not None:
        length = float(np.linalg.norm(up))
        if not 0 < length < np.inf:
            raise ConfigError(f"--axis {','.join(map(str, up))}: no direction", "Name one, as --axis 0,0,1.")
        third = np.array(up) / length
        first = _directions(cameras, points, third[None])[0]
    else:
        first, _, third = _directions(cameras, points, np.zeros((0, 3)))
        third = third * _side(third, cameras, points)
    first = first * (1 if first[np.argmax(np.abs(first))] > 0 else -1)
    rows = np.round([first, np.cross(third, first), third], AXIS_DIGITS) + 0.0  # no -0
    x, y, z = map(triple, rows)
    return (x, y, z)


def _directions(cameras: Floats, points: Floats, known: Floats) -> Floats:
    """Return directions across the known ones [k, 3], the one with the largest spread first; the last is fixed by them.

    Where the cameras hardly vary, the points do.
    """
    found = known
    longest = 0.0
    while len(found) < 3:
        direction, spread = _widest(cameras, found)
        longest = max(longest, spread)
        if spread <= FLAT * longest or spread == 0:
            direction, _ = _widest(points, found)
        found = np.concatenate([found, direction[None]])
    return found[len(known) :]


def _widest(places: Floats, known: Floats) -> tuple[Floats, float]:
    """Return the direction across known ones in which places vary most, and by how much."""
    across = np.eye(3) - known.T @ known
    sound = finite(places)
    spread = np.cov((sound - sound.mean(axis=0)).T) if len(sound) > 1 else np.zeros((3, 3))
    # what is known gets less than nothing, so that it is never the widest
    values, vectors = np.linalg.eigh(across @ spread @ across - known.T @ known)
    direction = across @ vectors[:, -1]
    return direction / np.linalg.norm(direction), float(np.sqrt(max(values[-1], 0.0)))


def _near(centers: Floats) -> Floats:
    if not len(centers):
        return centers
    away = np.linalg.norm(centers - np.median(centers, axis=0), axis=1)
    return centers[away <= FAR * max(float(np.median(away)), 1e-12)] if np.median(away) > 0 else centers


def _side(up: Floats, cameras: Floats, points: Floats) -> float:
    """Return the sign that lets a direction point from the points to the cameras."""
    height = float((np.median(cameras, axis=0) - np.median(points, axis=0)) @ up) if len(cameras) else 0.0
    return float(np.sign(height)) or 1.0
