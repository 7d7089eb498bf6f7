"""Cuts a scene into patches: as few as the limits allow, with costs as even as possible.

A photograph belongs to a core by what it sees, not by where it was taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from operator import itemgetter

import numpy as np

from splatbatch.errors import ConfigError
from splatbatch.scene.colmap.indexed_model import IndexedModel
from splatbatch.scene.colmap.types import Floats, Mask, finite, triple
from splatbatch.scene.partition.boxes import EVERYWHERE, Box, owners
from splatbatch.scene.partition.record import Axes
from splatbatch.text import plural

SHARE = 0.15
"""A photograph belongs to a core if it sees this share of its points there, however far away it is."""
GROWN_SHARE = 0.25
"""A photograph that is near also belongs if it sees this share of its points in the core with its overlap."""
NEAR = 2.0
"""A photograph is near a core up to this multiple of the median distance at which the core is seen."""
COVER = 0.98
"""Share of a core's points that two of its photographs should see, among points that any two photographs see."""
TAILS = (2.0, 98.0)
"""Percentiles of the points between which the longer side is measured."""
DIGITS = 4
"""Significant digits of a cut, relative to the extent of the points: readable, and equal on every machine."""
EVEN = 1.25
"""Ratio of the dearest to the cheapest part at which cuts are no longer moved."""
ROUNDS, PULL = 8, 0.7
"""Rounds in which cuts are moved, and the exponent: parts dearer than the mean weigh more in the next round."""
MOST_TRIALS = 16
FEWER = 0.95
"""Share of the estimated number of parts that is tried next, since too many cannot be taken back."""
STEADY = 3
"""Search ends at this multiple of the parts of the best layout so far, if none since has smaller parts."""
SENSIBLE = 1.1
"""A layout is sensible up to this multiple of the smallest possible part; smaller ones take many more parts."""
LEAST_PHOTOS, LEAST_POINTS = 3, 20
"""Fewest training photographs of a patch, and fewest points in its core, with which it can be trained."""
EXTENT_TAILS, MARGIN = (0.1, 99.9), 0.05
"""Percentiles of the points that bound a scene, and the margin added on each side, as a share of its width."""
CutInto = Callable[[Floats, Floats], list[Box]]
FLAT = 0.1
"""Spread of the cameras in a direction, relative to their largest, up to which the points decide the direction.

A single strip of flight varies as little across as in height.
"""
FAR = 8
"""Cameras beyond this multiple of the median distance from the middle are ignored as wrongly registered."""
AXIS_DIGITS = 9
"""Decimal digits of a unit vector on which libraries of linear algebra agree."""


@dataclass(frozen=True, eq=False)
class CutRegion:
    """Contents of a patch: photographs, points and core, with their cost."""

    photos: Mask  # [I]
    points: Mask  # [P], those that two of the photographs see
    in_core: Mask  # [P]
    cost: float
    """Share of the scene's work, half of it pixels, half points; the shares of all parts sum to more than 1."""

    @property
    def num_photos(self) -> int:
        """Number of its photographs."""
        return int(self.photos.sum())


class UncuttableBox(Exception):
    """Error: a box cannot be cut, since its points lie in one place."""


def halves(places: Floats, weights: Floats, num_parts: int, box: Box = EVERYWHERE) -> list[Box]:
    """Return a box cut recursively into `num_parts` parts of even weight, in order.

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
    """Return all space cut into shape[0] rows along the first axis, each cut into shape[1] parts; weights are even.

    Raises:
        UncuttableBox: there are too few places for so many parts.
    """
    cells = []
    for row in slices(places, weights, EVERYWHERE, (0, shape[0])):
        inside = row.holds(places)
        cells += slices(places[inside], weights[inside], row, (1, shape[1]))
    return cells


def slices(places: Floats, weights: Floats, box: Box, cut: tuple[int, int]) -> list[Box]:
    """Return a box cut into slices of even weight; `cut` is the axis and the number of slices.

    Raises:
        UncuttableBox: there are too few places for so many slices.
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
    """Return the place with this share of the weight below it: a round number, with values on both sides.

    Raises:
        UncuttableBox: there are fewer than two different values.
    """
    order = np.argsort(values, kind="stable")
    ranked, summed = values[order], np.cumsum(weights[order])
    if not len(ranked) or ranked[0] == ranked[-1]:
        raise UncuttableBox
    index = int(np.searchsorted(summed, share * summed[-1]))
    index = min(max(index, 1), len(ranked) - 1)
    digits = DIGITS - math.floor(math.log10(float(ranked[-1] - ranked[0])))
    at = round(float((ranked[index - 1] + ranked[index]) / 2), digits) + 0.0
    return at if ranked[0] < at <= ranked[-1] else float(ranked[ranked > ranked[0]][0])


def evenness(costs: Sequence[float] | Floats) -> float:
    """Return the ratio of the dearest part to the cheapest; infinite where a part costs nothing."""
    return max(costs) / min(costs) if len(costs) and min(costs) > 0 else math.inf


@dataclass(frozen=True, eq=False)
class CutLayout:
    """Cores with their overlap, bounds and contents."""

    cores: list[Box]
    overlap: list[Box]
    bounds: list[Box]
    parts: list[CutRegion]

    def most(self) -> int:
        """Return the largest number of photographs of a part."""
        return max(part.num_photos for part in self.parts)


@dataclass(frozen=True, eq=False)
class CutContext:
    """Observations of a scene with points and cameras in the axes of the boxes, and the rules by which it is cut."""

    observations: IndexedModel
    axes: Floats  # [3, 3]
    is_test: Mask  # [I]
    overlap: float

    @cached_property
    def places(self) -> Floats:
        """Points in the axes, [P, 3]."""
        return self.observations.points.xyz @ self.axes.T

    @cached_property
    def centers(self) -> Floats:
        """Camera centres in the axes, [I, 3]."""
        return self.observations.centers() @ self.axes.T

    @cached_property
    def totals(self) -> Floats:
        """Number of sightings of each photograph, [I]."""
        return np.bincount(self.observations.photo, minlength=len(self.observations.images)).astype(np.float64)

    @cached_property
    def pixels(self) -> Floats:
        """Number of pixels of each photograph, [I]."""
        cameras = [self.observations.cameras[image.camera_id] for image in self.observations.images]
        return np.array([float(camera.width) * camera.height for camera in cameras])

    def weights(self) -> Floats:
        """Return each point's share of the scene's work, [P]: half by the pixels that see it, half as a point."""
        per_sighting = self.pixels / np.maximum(self.totals, 1) / max(self.pixels.sum(), 1)
        seen = per_sighting[self.observations.photo]
        shares = np.bincount(self.observations.point, seen, minlength=len(self.places))
        return (shares + 1 / len(self.places)) / 2

    def counted(self, points: Mask) -> Floats:
        """Return the number of the given points [P] that each photograph sees, [I]."""
        at, _ = self.observations.of_points(points)
        return np.bincount(self.observations.photo[at], minlength=len(self.totals)).astype(np.float64)

    def distances(self, points: Mask) -> Floats:
        """Return the mean distance of the given points that each photograph sees, [I]; NaN where it sees none."""
        at, point = self.observations.of_points(points)
        photo = self.observations.photo[at]
        away = self.centers[photo] - self.places[point]
        lengths = np.sqrt(np.einsum("ij,ij->i", away, away))
        with np.errstate(invalid="ignore"):
            return np.bincount(photo, lengths, len(self.totals)) / np.bincount(photo, minlength=len(self.totals))

    def _by_sight(self, share: Floats, in_grown: Mask) -> Mask:
        """Return which photographs see enough of a core, or are near and see enough of it with its overlap."""
        belongs = share >= SHARE
        also = self.counted(in_grown) / np.maximum(self.totals, 1) >= GROWN_SHARE
        if not belongs.any() or not (also & ~belongs).any():
            return belongs | also
        away = self.distances(in_grown)
        return belongs | (also & (away <= NEAR * np.nanmedian(away[belongs])))

    def _part(self, photos: Mask, in_core: Mask) -> CutRegion:
        """Return the contents of a core, with photographs added until two see nearly all points; most useful first."""
        photos = photos.copy()
        wanted = in_core & (np.diff(self.observations.starts) >= 2)
        may_lack = (1 - COVER) * wanted.sum()
        points = self.observations.seen_by(photos)
        while (lacking := wanted & ~points).sum() > may_lack:
            gains = np.where(photos, 0, self.counted(lacking))
            if not gains.max() > 0:
                break
            photos[gains >= max(1.0, 0.5 * gains.max())] = True
            points = self.observations.seen_by(photos)
        pixels = self.pixels[photos].sum() / max(self.pixels.sum(), 1)
        return CutRegion(photos, points, in_core, float(pixels + points.sum() / max(len(points), 1)) / 2)

    def lay_out(self, cores: Sequence[Box]) -> CutLayout:
        """Return the layout of given cores.

        A photograph that belongs to no core by its shares goes to the core where it sees most.
        """
        bounds = [_bounds(core, self.places[core.holds(self.places)]) for core in cores]
        steps = [_corner(self.overlap * np.subtract(bound.upper, bound.lower)) for bound in bounds]
        grown = [core.with_overlap(step) for core, step in zip(cores, steps, strict=True)]
        owner = owners(cores, self.places)
        shares = self.observations.shares(owner, len(cores))
        belongs = [self._by_sight(shares[index], box.holds(self.places)) for index, box in enumerate(grown)]
        most = np.where(self.totals > 0, shares.argmax(axis=0), -1)
        lost = ~np.any(belongs, axis=0)
        parts = [self._part(photos | (lost & (most == index)), owner == index) for index, photos in enumerate(belongs)]
        return CutLayout(list(cores), grown, bounds, parts)

    def balanced(self, cut: CutInto, box: Box = EVERYWHERE, others: Sequence[Box] = ()) -> CutLayout:
        """Return the most even layout of a box, beside fixed other cores, over `ROUNDS` rounds of reweighting.

        Args:
            cut: cuts places with weights into boxes.
            box: the box to cut.
            others: cores that stay.

        Raises:
            UncuttableBox: the box cannot be cut.
        """
        inside, tried = box.holds(self.places), list[tuple[float, CutLayout]]()
        places, weights = self.places[inside], self.weights()[inside]
        for _ in range(ROUNDS):
            cores = cut(places, weights)
            found = self.lay_out([*cores, *others])
            costs = np.array([part.cost for part in found.parts[: len(cores)]])
            tried.append((evenness(costs), found))
            if evenness(costs) <= EVEN:
                break
            weights = weights * ((costs / costs.mean()) ** PULL)[owners(cores, places)]
        return min(tried, key=itemgetter(0))[1]

    def lacks(self, layout: CutLayout) -> int | None:
        """Return the index of the first part with too few photographs or points to be trained; None: no such part."""
        for index, part in enumerate(layout.parts):
            if (part.photos & ~self.is_test).sum() < LEAST_PHOTOS or part.in_core.sum() < LEAST_POINTS:
                return index
        return None


def by_size(tried: CutContext, ground: CutContext, most: int) -> CutLayout:
    """Return a layout of few even parts with at most `most` photographs each.

    Args:
        tried: a sample of the points, on which cuts are tried.
        ground: all points, for which the result must hold.
        most: most photographs of a part.

    Raises:
        ConfigError: photographs see too much of the scene for parts so small; the nearest possible limit is named.
    """
    num_photos, least = len(ground.totals), None
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
    """Yield layouts with 1, 2, … even parts, by a quarter more at a time, as long as parts get smaller."""
    count, least, at = 1, math.inf, 1
    while count <= STEADY * at and (found := _tried(tried, partial(halves, num_parts=count), may_lack=count == 1)):
        yield (layout := ground.lay_out(found.cores))
        if layout.most() < least:
            least, at = layout.most(), count
        count += max(1, count // 4)


def _nearest(layouts: Sequence[CutLayout], most: int) -> CutLayout:
    """Return the layout with the fewest parts of at most `most` photographs each.

    The layouts do not depend on the limit, so that the limit named as possible is met when it is given.

    Raises:
        ConfigError: there is none; a limit near the smallest possible is named.
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
    """Return a layout of shape[0] rows with shape[1] parts each.

    Raises:
        ConfigError: some parts could not be trained; the nearest possible grid is named.
    """
    if found := _tried(tried, partial(grid, shape=shape)):
        return ground.lay_out(found.cores)
    rows, columns = shape
    smaller = [(a, b) for a in range(1, min(rows, 40) + 1) for b in range(1, min(columns, 40) + 1) if (a, b) != shape]
    smaller.sort(key=lambda one: (-one[0] * one[1], abs(one[0] / one[1] - rows / columns)))
    fitting = (one for one in smaller if one[0] * one[1] * LEAST_PHOTOS <= len(ground.totals) * 2)
    possible = next((one for one in islice(fitting, 60) if _tried(tried, partial(grid, shape=one))), (1, 1))
    raise ConfigError(
        f"--grid {rows}x{columns}: some of its {rows * columns} patches would have fewer than {LEAST_PHOTOS} "
        f"photographs to train from, or {LEAST_POINTS} points",
        f"Nearest possible: --grid {possible[0]}x{possible[1]}.",
    )


def _tried(ground: CutContext, cut: CutInto, *, may_lack: bool = False) -> CutLayout | None:
    """Return the most even layout; None if it cannot be cut, or a part cannot be trained."""
    try:
        found = ground.balanced(cut)
    except UncuttableBox:
        return None
    return found if may_lack or ground.lacks(found) is None else None


def _bounds(core: Box, places: Floats) -> Box:
    """Return the extent of a core's own points within it; points elsewhere in the scene do not change it."""
    low, high = np.percentile(places, EXTENT_TAILS, axis=0) if len(places) else (np.zeros(3), np.zeros(3))
    lower, upper = np.array(core.lower), np.array(core.upper)
    low, high = np.where(np.isfinite(lower), lower, low), np.where(np.isfinite(upper), upper, high)
    margin = np.maximum(MARGIN * np.abs(high - low), np.spacing(np.maximum(np.abs(low), np.abs(high))) * 1024)
    return Box(_corner(np.minimum(low, high) - margin), _corner(np.maximum(low, high) + margin)).clipped(core)


def _corner(values: Floats) -> tuple[float, float, float]:
    return triple(float(f"{value:.12g}") for value in values)


def principal_axes(centers: Floats, points: Floats, up: tuple[float, float, float] | None = None) -> Axes:
    """Return the axes of a scene as rows: along the longest extent of the cameras [I, 3], across it, and up.

    Up is the given direction, or that in which the cameras vary least, pointing from the points to the cameras.

    Raises:
        ConfigError: the given direction has no length.
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
        if len(cameras) and (np.median(cameras, axis=0) - np.median(points, axis=0)) @ third < 0:
            third = -third
    first = first * (1 if first[np.argmax(np.abs(first))] > 0 else -1)
    rows = np.round([first, np.cross(third, first), third], AXIS_DIGITS) + 0.0  # no -0
    x, y, z = map(triple, rows)
    return (x, y, z)


def _directions(cameras: Floats, points: Floats, known: Floats) -> Floats:
    """Return the directions orthogonal to the known ones [k, 3], by descending spread of the cameras.

    Where the cameras hardly vary, the points decide.
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
    """Return the direction orthogonal to the known ones in which places vary most, and its standard deviation."""
    across = np.eye(3) - known.T @ known
    sound = finite(places)
    spread = np.cov((sound - sound.mean(axis=0)).T) if len(sound) > 1 else np.zeros((3, 3))
    # known directions get a negative eigenvalue, so that they are never the widest
    values, vectors = np.linalg.eigh(across @ spread @ across - known.T @ known)
    direction = across @ vectors[:, -1]
    return direction / np.linalg.norm(direction), float(np.sqrt(max(values[-1], 0.0)))


def _near(centers: Floats) -> Floats:
    if not len(centers):
        return centers
    away = np.linalg.norm(centers - np.median(centers, axis=0), axis=1)
    return centers[away <= FAR * max(float(np.median(away)), 1e-12)] if np.median(away) > 0 else centers
