"""Cuts a scene into few patches that keep to the limits, with costs about as even as cuts can make them.

A photograph belongs to a core by what the photograph shows, not by where it was taken. All places are in the axes of
the partition, whose third axis is up.
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
"""Least share of its points inside a core with which a photograph belongs to the core, from any distance."""
GROWN_SHARE = 0.25
"""Least share of its points inside a core and its overlap with which a photograph that is near belongs to the core."""
NEAR = 2.0
"""A photograph is near a core up to this multiple of the median distance at which the core's photographs see it."""
COVER = 0.98
"""Share of a core's points that its patch should see in two photographs, of those seen by any two photographs.

More photographs are added to the patch until that share is reached.
"""
TAILS = (2.0, 98.0)
"""Percentiles of the points between which the sides of a box are compared, to cut the longer side."""
DIGITS = 4
"""Significant digits of a cut, relative to the extent of the points: readable, and equal on every machine."""
EVEN = 1.25
"""Cuts are moved until the ratio of the highest to the lowest cost of the parts is at most this."""
ROUNDS, PULL = 8, 0.7
"""Most rounds in which cuts are moved, and strength of a move.

After each round the points of a part weigh more by its cost over the mean cost, to the power `PULL`.
"""
MOST_TRIALS = 16
FEWER = 0.95
"""Share of the estimated number of parts that is tried next: the search adds parts and never takes any back."""
STEADY = 3
"""The search ends at this multiple of the number of parts of the best layout, if no later layout has smaller parts."""
SENSIBLE = 1.1
"""The limit that an error proposes is at most this multiple of the smallest possible: smaller takes many more parts."""
LEAST_PHOTOS, LEAST_POINTS = 3, 20
"""Fewest training photographs of a patch, and fewest points in its core, with which the patch can be trained."""
EXTENT_TAILS, MARGIN = (0.1, 99.9), 0.05
"""Percentiles of its points between which the extent of a core is measured, and the margin beyond on each side.

The margin is a share of the width between both.
"""
CutInto = Callable[[Floats, Floats], list[Box]]
FLAT = 0.1
"""Largest spread of cameras in a direction, as a share of their largest spread, at which the points decide instead.

The cameras of a single flight line vary as little across the line as in height.
"""
FAR = 8
"""Cameras farther from the middle than this multiple of the median distance are ignored as wrongly registered."""
AXIS_DIGITS = 9
"""Decimal digits to which axes are rounded, so that different libraries of linear algebra give equal axes."""


@dataclass(frozen=True, eq=False)
class CutRegion:
    """A planned patch: its boxes, its contents as masks over photographs [I] and points [P] of the scene, and its cost.

    `grown` is the core with the overlap around it, and `bounds` the finite part of the core that the scene fills.
    `in_core` are the points whose place is in the core, whether the patch has them or not.
    """

    core: Box
    grown: Box
    bounds: Box
    photos: Mask  # [I]
    points: Mask  # [P], those that two of the photographs see
    in_core: Mask  # [P]
    cost: float
    """Share of the scene's training work, the mean of its shares of pixels and points.

    The shares of all parts may sum to more than 1, as patches overlap.
    """

    @property
    def num_photos(self) -> int:
        """Number of the patch's photographs."""
        return int(self.photos.sum())


class UncuttableBox(Exception):
    """Error: a box cannot be cut, since it has fewer than two points with different places along the axis."""


def halves(places: Floats, weights: Floats, num_parts: int, box: Box = EVERYWHERE) -> list[Box]:
    """Return a box cut into parts of even weight, by halving along the longer horizontal side again and again.

    Args:
        places: points inside the box, [n, 3].
        weights: weight of each point, [n].
        num_parts: number of parts, at least 1; odd numbers are cut in proportion.
        box: the box to cut.

    Raises:
        UncuttableBox: there are too few different places for so many parts.
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
    """Return all space cut into a grid of boxes, row by row, each row and part with an even share of the weight.

    Args:
        places: points, [n, 3].
        weights: weight of each point, [n].
        shape: number of rows along the first axis, and of parts of each row along the second.

    Raises:
        UncuttableBox: there are too few different places for so many parts.
    """
    cells = []
    for row in slices(places, weights, EVERYWHERE, (0, shape[0])):
        inside = row.holds(places)
        cells += slices(places[inside], weights[inside], row, (1, shape[1]))
    return cells


def slices(places: Floats, weights: Floats, box: Box, cut: tuple[int, int]) -> list[Box]:
    """Return a box cut into slices of even weight, in the order of their places along the axis.

    Args:
        places: points inside the box, [n, 3].
        weights: weight of each point, [n].
        box: the box to cut.
        cut: axis to cut, 0 to 2, and number of slices, at least 1.

    Raises:
        UncuttableBox: there are too few different places for so many slices.
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
    """Return the ratio of the highest to the lowest cost; infinite if there is no cost, or one of 0."""
    return max(costs) / min(costs) if len(costs) and min(costs) > 0 else math.inf


CutLayout = list[CutRegion]
"""All patches of a scene, in the order in which their cores were cut or given."""


def most_photos(layout: CutLayout) -> int:
    """Return the largest number of photographs of a patch."""
    return max(part.num_photos for part in layout)


@dataclass(frozen=True, eq=False)
class CutContext:
    """A scene that is to be cut, in the axes of the partition.

    `axes` has the axes of the partition as unit vectors in world coordinates, one a row. `is_test` says which
    photographs are held out. `overlap` is the overlap around a core, as a share of its width.
    """

    observations: IndexedModel
    axes: Floats  # [3, 3]
    is_test: Mask  # [I]
    overlap: float

    @cached_property
    def places(self) -> Floats:
        """Points of the scene in the axes of the partition, [P, 3]."""
        return self.observations.points.xyz @ self.axes.T

    @cached_property
    def centers(self) -> Floats:
        """Camera centres in the axes of the partition, [I, 3]; NaN for images without a finite pose."""
        return self.observations.centers() @ self.axes.T

    @cached_property
    def totals(self) -> Floats:
        """Number of points that each photograph sees, [I]."""
        return np.bincount(self.observations.photo, minlength=len(self.observations.images)).astype(np.float64)

    @cached_property
    def pixels(self) -> Floats:
        """Number of pixels of each photograph, by the size of its camera, [I]."""
        cameras = [self.observations.cameras[image.camera_id] for image in self.observations.images]
        return np.array([float(camera.width) * camera.height for camera in cameras])

    def weights(self) -> Floats:
        """Return each point's share of the scene's training work, [P]; the shares sum to about 1.

        Half of the work is shared out alike to all points. The other half is that of pixels: each photograph shares out
        its pixels to the points that it sees.
        """
        per_sighting = self.pixels / np.maximum(self.totals, 1) / max(self.pixels.sum(), 1)
        seen = per_sighting[self.observations.photo]
        shares = np.bincount(self.observations.point, seen, minlength=len(self.places))
        return (shares + 1 / len(self.places)) / 2

    def counted(self, points: Mask) -> Floats:
        """Return how many of the chosen points each photograph sees, [I].

        Args:
            points: which points of the scene are chosen, [P].
        """
        at, _ = self.observations.of_points(points)
        return np.bincount(self.observations.photo[at], minlength=len(self.totals)).astype(np.float64)

    def distances(self, points: Mask) -> Floats:
        """Return the mean distance of each photograph from the chosen points that it sees, [I], in units of the model.

        NaN for a photograph that sees none of these points, or has no finite pose.

        Args:
            points: which points of the scene are chosen, [P].
        """
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

    def _part(self, boxes: tuple[Box, Box, Box], photos: Mask, in_core: Mask) -> CutRegion:
        """Return the patch of a core, with photographs added until two see nearly all points; most useful first."""
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
        return CutRegion(*boxes, photos, points, in_core, float(pixels + points.sum() / max(len(points), 1)) / 2)

    def lay_out(self, cores: Sequence[Box]) -> CutLayout:
        """Return the layout of given cores, with the photographs and points of each patch.

        A photograph that belongs to no core by `SHARE` or `GROWN_SHARE` goes to the core where it sees most points. A
        photograph that sees no point is in no patch. Further photographs are added to a patch as `COVER` demands.
        """
        bounds = [_bounds(core, self.places[core.holds(self.places)]) for core in cores]
        steps = [_corner(self.overlap * np.subtract(bound.upper, bound.lower)) for bound in bounds]
        grown = [core.with_overlap(step) for core, step in zip(cores, steps, strict=True)]
        owner = owners(cores, self.places)
        shares = self.observations.shares(owner, len(cores))
        belongs = [self._by_sight(shares[index], box.holds(self.places)) for index, box in enumerate(grown)]
        most = np.where(self.totals > 0, shares.argmax(axis=0), -1)
        lost = ~np.any(belongs, axis=0)
        return [
            self._part(boxes, photos | (lost & (most == index)), owner == index)
            for index, (photos, boxes) in enumerate(zip(belongs, zip(cores, grown, bounds, strict=True), strict=True))
        ]

    def balanced(self, cut: CutInto, box: Box = EVERYWHERE, others: Sequence[Box] = ()) -> CutLayout:
        """Return the layout of a box with the most even costs of at most `ROUNDS` trials, which move the cuts.

        Trials end early when the costs are as even as `EVEN` demands.

        Args:
            cut: function that cuts places [n, 3] with weights [n] into boxes.
            box: the box to cut.
            others: cores outside the box, which stay as they are; they come last in the layout.

        Raises:
            UncuttableBox: the box cannot be cut.
        """
        inside, tried = box.holds(self.places), list[tuple[float, CutLayout]]()
        places, weights = self.places[inside], self.weights()[inside]
        for _ in range(ROUNDS):
            cores = cut(places, weights)
            found = self.lay_out([*cores, *others])
            costs = np.array([part.cost for part in found[: len(cores)]])
            tried.append((evenness(costs), found))
            if evenness(costs) <= EVEN:
                break
            weights = weights * ((costs / costs.mean()) ** PULL)[owners(cores, places)]
        return min(tried, key=itemgetter(0))[1]

    def can_train(self, part: CutRegion) -> bool:
        """Return whether a patch has enough photographs and points to be trained.

        Needed are `LEAST_PHOTOS` photographs that are not held out, and `LEAST_POINTS` points in the core.
        """
        return bool((part.photos & ~self.is_test).sum() >= LEAST_PHOTOS and part.in_core.sum() >= LEAST_POINTS)


def by_size(tried: CutContext, ground: CutContext, most: int) -> CutLayout:
    """Return a layout of few patches with even costs and at most `most` photographs each.

    Args:
        tried: the scene with a sample of its points, on which cuts are tried.
        ground: the scene with all points, for which the result must hold.
        most: most photographs of a patch (--max-images).

    Raises:
        ConfigError: photographs see too much of the scene for patches so small; a limit that is possible is named.
    """
    num_photos, least = len(ground.totals), None
    count = max(1, -(-num_photos // most))
    for _ in range(MOST_TRIALS):
        found = _tried(tried, partial(halves, num_parts=count), may_lack=count == 1)
        if found is None:
            break
        if most_photos(found) <= most:
            found = ground.lay_out([part.core for part in found])
            if most_photos(found) <= most:
                return found
        if least is None or most_photos(found) < most_photos(least):
            least = found
        elif count > STEADY * len(least):
            break  # however many there are, they do not get smaller
        count = max(count + 1, int(FEWER * count * most_photos(found) / most))
    return _nearest(list(_every_size(tried, ground)), most)


def _every_size(tried: CutContext, ground: CutContext) -> Iterator[CutLayout]:
    """Yield layouts with 1, 2, … even parts, by a quarter more at a time, as long as parts get smaller."""
    count, least, at = 1, math.inf, 1
    while count <= STEADY * at and (found := _tried(tried, partial(halves, num_parts=count), may_lack=count == 1)):
        yield (layout := ground.lay_out([part.core for part in found]))
        if most_photos(layout) < least:
            least, at = most_photos(layout), count
        count += max(1, count // 4)


def _nearest(layouts: Sequence[CutLayout], most: int) -> CutLayout:
    """Return the layout with the fewest parts of at most `most` photographs each.

    The layouts do not depend on the limit, so that the limit named as possible is met when it is given.

    Raises:
        ConfigError: there is none; a limit near the smallest possible is named.
    """
    asked = f"--max-images {most}: not possible: the photographs see too much of the scene for patches so small"
    if not layouts:
        raise ConfigError(asked, "Nearest possible: leave --max-images out.")

    def first(limit: float) -> CutLayout | None:
        return next((one for one in layouts if most_photos(one) <= limit), None)

    if found := first(most):
        return found
    near = first(SENSIBLE * min(map(most_photos, layouts))) or layouts[-1]
    least = f"--max-images {most_photos(near)}, {plural(len(near), 'patch', 'es')}"
    raise ConfigError(asked, f"Nearest possible: {least}.")


def by_grid(tried: CutContext, ground: CutContext, shape: tuple[int, int]) -> CutLayout:
    """Return a layout whose cores form a grid, row by row, with the most even costs of a few trials.

    Args:
        tried: the scene with a sample of its points, on which cuts are tried.
        ground: the scene with all points, for which the result is laid out.
        shape: number of rows along the first axis, and of patches in each row (--grid).

    Raises:
        ConfigError: some patches would have too little to be trained; a smaller grid is named.
    """
    if found := _tried(tried, partial(grid, shape=shape)):
        return ground.lay_out([part.core for part in found])
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
    return found if may_lack or all(map(ground.can_train, found)) else None


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
    """Return the axes of a scene as three unit vectors: along the longest extent of the cameras, across, and up.

    Args:
        centers: camera centres, [I, 3]; those that are not finite or far from the middle are ignored.
        points: points of the scene, [P, 3], which decide the directions in which the cameras hardly vary.
        up: the up direction (--axis), of any length; None: the direction in which the cameras vary least, pointing from
            the points to the cameras.

    Raises:
        ConfigError: the length of `up` is 0 or not finite.
    """
    cameras = _near(finite(centers))
    if up is not None:
        length = float(np.linalg.norm(up))
        if not 0 < length < np.inf:
            raise ConfigError(
                f"--axis {','.join(map(str, up))}: the length of this direction is 0 or not finite",
                "Name a direction, as --axis 0,0,1.",
            )
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
    return centers[away <= FAR * np.median(away)] if np.median(away) > 0 else centers
