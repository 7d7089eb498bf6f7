"""A patch as a tree of tiles: leaves hold its Gaussians, each tile above half of what its two children hold.

Levels of detail: half as many Gaussians each, until a tile holds all that are left.

The most important quarter stays as it is; of the others, the faintest first, two neighbours become one with their
common mass, mean, covariance and colour, weighed by importance: opacity times area. Of the trained quarry that leaves
39 dB from where the level changes, 4 dB more than merging all alike. A tile is refined while its usual Gaussian is some
pixels wide; CesiumJS leaves out what is narrower than 1.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from splatbatch.publish.tiles.glb import glb
from splatbatch.splats.ply import FloatArray, Gaussians, covariances

Rows = npt.NDArray[np.intp]
KEPT_AS_IT_IS = 0.25
"""Of all Gaussians, that are in the next level as they are. From 0.15 to 0.45 the trained quarry looks alike."""
FAR_COEFFICIENTS = 3
"""Of the colour's direction that far levels keep: degree 1."""
FAINTEST, FULLEST = 1e-4, 0.999
"""Opacities that a merged Gaussian may have."""
LARGEST_LOG, SMALLEST_LOG = 30.0, -30.0
CELLS = 1 << 10
"""Along each axis, of the curve that neighbours are taken from."""
MOST_PER_TILE = 60_000
FARTHEST = 4096.0
"""Units from the middle: what lies farther out has tiles of its own, or 24 bits would tell all places coarsely."""
KEPT = 0.999
"""Of the importance of a tile that its box holds: stray Gaussians make none larger."""
USUAL_ERROR_PX, REFINED_AT_PX = 16.0, 2.0
"""What viewers allow a tile to be wrong by, and how wide its usual Gaussian is when it is refined."""
Box = tuple[FloatArray, FloatArray]
"""Its lower and upper corner."""
Write = Callable[[str, bytes], object]
"""Takes the name of a file and its content."""


def some(gaussians: Gaussians, rows: Rows | slice) -> Gaussians:
    """Return some Gaussians."""
    return Gaussians(**{name: values[rows] for name, values in vars(gaussians).items()})


def joined(one: Gaussians, other: Gaussians) -> Gaussians:
    """Return the Gaussians of both."""
    return Gaussians(**{name: np.concatenate([values, vars(other)[name]]) for name, values in vars(one).items()})


def importance(gaussians: Gaussians) -> FloatArray:
    """Return opacity times area of each, [N]: what it can cover of a picture."""
    found: FloatArray = _opacities(gaussians.opacities) * _areas(gaussians.scales)
    return found


def usual_size(gaussians: Gaussians) -> float:
    """Return the size of the Gaussian in the middle of all importance: its standard deviation, across."""
    weights, sizes = importance(gaussians), np.sqrt(_areas(gaussians.scales))
    order = np.argsort(sizes)
    so_far = np.cumsum(weights[order].astype(np.float64))
    return float(sizes[order][np.searchsorted(so_far, so_far[-1] / 2)])


def halved(gaussians: Gaussians) -> Gaussians:
    """Return half as many Gaussians: the most important as they are, of the faintest one in place of two neighbours.

    Their colours hardly change with direction.
    """
    goal, kept = (len(gaussians) + 1) // 2, int(KEPT_AS_IT_IS * len(gaussians))
    order = np.argsort(-importance(gaussians))
    left = some(gaussians, order[kept:])
    while len(left) > goal - kept:
        num = min(len(left) - (goal - kept), len(left) // 2)
        faintest_first = np.argsort(importance(left))
        left = joined(_paired(some(left, faintest_first[: 2 * num])), some(left, faintest_first[2 * num :]))
    return _far_colours(joined(some(gaussians, order[:kept]), left))


def _paired(gaussians: Gaussians) -> Gaussians:
    """Return one Gaussian in place of two neighbours each, of an even number."""
    ordered = some(gaussians, along_curve(gaussians.means))
    return _merged(some(ordered, slice(0, None, 2)), some(ordered, slice(1, None, 2)))


def along_curve(means: FloatArray) -> Rows:
    """Return the order of places [N, 3] along Morton's curve: who stands side by side lies side by side."""
    low, high = np.percentile(means, (1, 99), axis=0)
    inside = np.clip((means - low) / np.maximum(high - low, 1e-12).max(), 0, 1)
    cells = (inside * (CELLS - 1)).astype(np.uint32)
    code = _spread(cells[:, 0]) | _spread(cells[:, 1]) << np.uint32(1) | _spread(cells[:, 2]) << np.uint32(2)
    return np.argsort(code, kind="stable")


def _spread(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return 10 bits with two zeros between each."""
    for shift, mask in ((16, 0x030000FF), (8, 0x0300F00F), (4, 0x030C30C3), (2, 0x09249249)):
        values = (values | values << np.uint32(shift)) & np.uint32(mask)
    return values


def _merged(one: Gaussians, other: Gaussians) -> Gaussians:
    """Return one Gaussian for each pair, with the moments of both."""
    weights = np.stack([importance(one), importance(other)]).astype(np.float64)
    total = np.maximum(weights.sum(axis=0), 1e-30)
    share = (weights / total).astype(np.float32)

    def mean(first: FloatArray, second: FloatArray) -> FloatArray:
        shape = (-1, *[1] * (first.ndim - 1))
        found: FloatArray = share[0].reshape(shape) * first + share[1].reshape(shape) * second
        return found

    apart = one.means - other.means
    spread = (share[0] * share[1])[:, None, None] * apart[:, :, None] * apart[:, None, :]
    common = mean(covariances(one.scales, one.quats), covariances(other.scales, other.quats)) + spread
    variances, axes = np.linalg.eigh(common.astype(np.float64))
    scales = (0.5 * np.log(np.maximum(variances, 1e-24))).astype(np.float32)
    opacities = np.clip(total / _areas(scales), FAINTEST, FULLEST)
    return Gaussians(
        means=mean(one.means, other.means),
        scales=scales,
        quats=turns(axes),
        opacities=np.log(opacities / (1 - opacities)).astype(np.float32),
        sh0=mean(one.sh0, other.sh0),
        shN=mean(one.shN, other.shN),
    )


def _far_colours(gaussians: Gaussians) -> Gaussians:
    """Return Gaussians with the higher harmonics left blank: readers want the same number in all tiles."""
    blank = gaussians.shN.copy()
    blank[:, FAR_COEFFICIENTS:] = 0
    return replace(gaussians, shN=blank)


def turns(axes: npt.NDArray[np.float64]) -> FloatArray:
    """Return the rotations w x y z [N, 4] of orthonormal axes [N, 3, 3], columns; left-handed ones have one turned."""
    rotation = axes.copy()
    rotation[np.linalg.det(rotation) < 0, :, 0] *= -1
    x, y, z = rotation[:, 0, 0], rotation[:, 1, 1], rotation[:, 2, 2]
    squares = np.stack([1 + x + y + z, 1 + x - y - z, 1 - x + y - z, 1 - x - y + z], axis=1)
    parts = np.sqrt(np.maximum(squares, 0)) / 2  # sizes of w x y z
    signs = np.ones_like(parts)
    odd = rotation - rotation.transpose(0, 2, 1)
    even = rotation + rotation.transpose(0, 2, 1)
    with_w = np.stack([np.ones(len(x)), odd[:, 2, 1], odd[:, 0, 2], odd[:, 1, 0]], axis=1)
    with_x = np.stack([odd[:, 2, 1], np.ones(len(x)), even[:, 0, 1], even[:, 0, 2]], axis=1)
    with_y = np.stack([odd[:, 0, 2], even[:, 0, 1], np.ones(len(x)), even[:, 1, 2]], axis=1)
    with_z = np.stack([odd[:, 1, 0], even[:, 0, 2], even[:, 1, 2], np.ones(len(x))], axis=1)
    largest = parts.argmax(axis=1)
    signs = np.stack([with_w, with_x, with_y, with_z], axis=1)[np.arange(len(x)), largest]
    found: FloatArray = (parts * np.where(signs < 0, -1, 1)).astype(np.float32)
    return found


def _opacities(logits: FloatArray) -> FloatArray:
    found: FloatArray = np.reciprocal(1 + np.exp(-np.clip(logits, -30, 30)))
    return found


def _areas(scales: FloatArray) -> FloatArray:
    """Return the product of the two largest standard deviations, [N]."""
    found: FloatArray = np.exp(np.clip(scales.sum(axis=1) - scales.min(axis=1), SMALLEST_LOG, LARGEST_LOG))
    return found


@dataclass(frozen=True)
class Tile:
    """A tile as it was written, in the frame of its patch."""

    uri: str
    box: Box
    error: float
    """How wrong its Gaussians are, in the patch's unit."""
    num_gaussians: int
    num_bytes: int
    children: tuple[Tile, ...] = ()

    def every(self) -> Iterator[Tile]:
        """Yield the tile and all below it."""
        yield self
        for child in self.children:
            yield from child.every()

    def to_record(self, scale: float) -> dict[str, Any]:
        """Return the tile as a tileset has it; a unit of the patch is so many metres."""
        record: dict[str, Any] = {
            "boundingVolume": {"box": as_box(self.box)},
            "geometricError": scale * self.error,
            "refine": "REPLACE",
            "content": {"uri": self.uri},
        }
        return record | ({"children": [child.to_record(scale) for child in self.children]} if self.children else {})


Written = tuple[Tile, Gaussians]


@dataclass
class Tiling:
    """Cuts a patch into tiles and writes them, the smallest first."""

    gaussians: Gaussians
    write: Write
    most: int = MOST_PER_TILE
    is_antialiased: bool = False
    done: Callable[[int], None] = field(default=lambda _: None)
    """Told how many Gaussians of the patch have been written."""

    def tiles(self) -> Tile:
        """Write all tiles; return the one above all others.

        Raises:
            ValueError: a Gaussian lies too far out for any tile.
        """
        rows = np.arange(len(self.gaussians))
        is_far = np.abs(self.gaussians.means).max(axis=1) > FARTHEST
        if is_far.any() and not is_far.all():
            return self._above(
                "t", [self._tile(part, f"t{i}") for i, part in enumerate((rows[~is_far], rows[is_far]))]
            )[0]
        return self._tile(rows, "t")[0]

    def _tile(self, rows: Rows, name: str) -> Written:
        """Write a tile and those below it; return it with the Gaussians that it has."""
        if len(rows) <= self.most:
            content = some(self.gaussians, rows)
            tile = self._written(content, name, 0.0, ())
            self.done(len(rows))
            return tile, content
        halves = _halves(self.gaussians.means, rows)
        return self._above(name, [self._tile(half, f"{name}{i}") for i, half in enumerate(halves)])

    def _above(self, name: str, below: Sequence[Written]) -> Written:
        """Write the tile above two others."""
        (one, first), (other, second) = below
        content = halved(joined(first, second))
        least = 1.01 * max(one.error, other.error)
        error = max(usual_size(content) * USUAL_ERROR_PX / REFINED_AT_PX, least)
        return self._written(content, name, error, (one, other)), content

    def _written(self, content: Gaussians, name: str, error: float, children: tuple[Tile, ...]) -> Tile:
        packed = glb(content, is_antialiased=self.is_antialiased)
        self.write(f"{name}.glb", packed)
        boxes = [box_of(content), *(child.box for child in children)]
        box = (np.min([low for low, _ in boxes], axis=0), np.max([high for _, high in boxes], axis=0))
        return Tile(f"{name}.glb", box, error, len(content), len(packed), children)


def _halves(means: FloatArray, rows: Rows) -> tuple[Rows, Rows]:
    """Return rows in two halves, cut across the longer way."""
    places = means[rows]
    low, high = np.percentile(places[:: max(1, len(rows) // 20_000)], (2, 98), axis=0)
    order = np.argpartition(places[:, int((high - low).argmax())], len(rows) // 2)
    return np.sort(rows[order[: len(rows) // 2]]), np.sort(rows[order[len(rows) // 2 :]])


def box_of(gaussians: Gaussians) -> Box:
    """Return the box that holds what matters of some Gaussians: all but a thousandth of their importance."""
    weights = importance(gaussians).astype(np.float64)
    sizes = np.exp(np.clip(gaussians.scales.max(axis=1), -30, 30))
    corners = []
    for axis in range(3):
        order = np.argsort(gaussians.means[:, axis])
        so_far = np.cumsum(weights[order]) / max(float(weights.sum()), 1e-30)
        ends = np.searchsorted(so_far, ((1 - KEPT) / 6, 1 - (1 - KEPT) / 6)).clip(0, len(order) - 1)
        corners.append(gaussians.means[order[ends], axis])
    around = float(np.median(sizes))
    low, high = np.array(corners, dtype=np.float32).T
    return low - around, high + around


def as_box(box: Box) -> list[float]:
    """Return a box of a patch's frame as 3D Tiles write it: its middle and half axes, z up as readers turn contents."""
    middle, half = (box[0] + box[1]) / 2, (box[1] - box[0]) / 2
    axes: npt.NDArray[np.float64] = np.diag(half[[0, 2, 1]])
    return [float(value) for value in (middle[0], -middle[2], middle[1], *axes.ravel())]
