"""Levels of detail of a patch as a tree of tiles: leaves hold its Gaussians, a parent half as many as its two children.

The most important quarter is kept unchanged. Of the others, the faintest first, two neighbours become one with their
common mass, mean, covariance and colour, weighted by importance: opacity times area. On the trained quarry that leaves
39 dB at the distance where the level changes, 4 dB more than merging all alike. A tile is refined while its median
Gaussian is some pixels wide; CesiumJS leaves out Gaussians narrower than 1.4 pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from splatbatch.publish.tiles.glb import glb
from splatbatch.scene.rotations import to_quats
from splatbatch.splats.ply import FloatArray, Gaussians, areas, covariances, importance_of

Rows = npt.NDArray[np.intp]
KEPT_AS_IT_IS = 0.25
"""Share of the Gaussians that the next coarser level of detail keeps unchanged, the most important ones.

Shares from 0.15 to 0.45 look alike on a trained scene of a quarry.
"""
FAR_COEFFICIENTS = 3
"""Number of view-dependent colour coefficients that coarser levels of detail keep: those of degree 1."""
FAINTEST, FULLEST = 1e-4, 0.999
"""Least and largest opacity, 0 to 1, of a Gaussian merged from two."""
CELLS = 1 << 10
"""Number of cells along each axis of the Morton curve that finds neighbours."""
MOST_PER_TILE = 60_000
FARTHEST = 4096.0
"""Distance from the middle along an axis, in units, beyond which Gaussians get separate tiles.

The 24 bits of a coordinate then resolve the other positions.
"""
KEPT = 0.999
"""Share of the importance of a tile's Gaussians that lies in its box, so that stray Gaussians do not enlarge it."""
USUAL_ERROR_PX, REFINED_AT_PX = 16.0, 2.0
"""Screen-space error that viewers usually allow, and width of a tile's median Gaussian at which the tile is refined.

Both are in pixels.
"""
Box = tuple[FloatArray, FloatArray]
"""A box as its lower and upper corner, [3] each, in units of the scene."""


def some(gaussians: Gaussians, rows: Rows | slice) -> Gaussians:
    """Return the Gaussians with the indices `rows`, in the order of `rows`."""
    return Gaussians(**{name: values[rows] for name, values in vars(gaussians).items()})


def joined(one: Gaussians, other: Gaussians) -> Gaussians:
    """Return the Gaussians of `one`, followed by those of `other`.

    Raises:
        ValueError: their view-dependent colours have different degrees.
    """
    return Gaussians(**{name: np.concatenate([values, vars(other)[name]]) for name, values in vars(one).items()})


def importance(gaussians: Gaussians) -> FloatArray:
    """Return the importance of each Gaussian, [N]: its opacity times its area."""
    return importance_of(gaussians.scales, gaussians.opacities)


def usual_size(gaussians: Gaussians) -> float:
    """Return the median size of Gaussians in units, weighted by importance, for a tile's geometric error.

    The size of a Gaussian is the root of its area: of the product of its two largest standard deviations.

    Args:
        gaussians: at least one Gaussian.
    """
    weights, sizes = importance(gaussians), np.sqrt(areas(gaussians.scales))
    order = np.argsort(sizes)
    so_far = np.cumsum(weights[order].astype(np.float64))
    return float(sizes[order][np.searchsorted(so_far, so_far[-1] / 2)])


def halved(gaussians: Gaussians) -> Gaussians:
    """Return the next coarser level of detail, with half as many Gaussians, rounded up.

    The share KEPT_AS_IT_IS, the most important ones, is unchanged. Of the rest, the faintest neighbours merge in pairs.
    View-dependent colour coefficients beyond the first FAR_COEFFICIENTS become zero in all.
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
    """Return an even number of Gaussians with each pair of neighbours on the Morton curve merged into one."""
    ordered = some(gaussians, along_curve(gaussians.means))
    return _merged(some(ordered, slice(0, None, 2)), some(ordered, slice(1, None, 2)))


def along_curve(means: FloatArray) -> Rows:
    """Return the indices of positions in the order of Morton's curve, [N], in which neighbours in space mostly follow.

    Args:
        means: positions [N, 3], at least one.
    """
    low, high = np.percentile(means, (1, 99), axis=0)
    inside = np.clip((means - low) / np.maximum(high - low, 1e-12).max(), 0, 1)
    cells = (inside * (CELLS - 1)).astype(np.uint32)
    code = _spread(cells[:, 0]) | _spread(cells[:, 1]) << np.uint32(1) | _spread(cells[:, 2]) << np.uint32(2)
    return np.argsort(code, kind="stable")


def _spread(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return 10-bit numbers with two zero bits inserted between their bits."""
    for shift, mask in ((16, 0x030000FF), (8, 0x0300F00F), (4, 0x030C30C3), (2, 0x09249249)):
        values = (values | values << np.uint32(shift)) & np.uint32(mask)
    return values


def _merged(one: Gaussians, other: Gaussians) -> Gaussians:
    """Return one Gaussian for each pair, with the mean and covariance of both, weighted by importance."""
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
    opacities = np.clip(total / areas(scales), FAINTEST, FULLEST)
    return Gaussians(
        means=mean(one.means, other.means),
        scales=scales,
        quats=to_quats(axes),
        opacities=np.log(opacities / (1 - opacities)).astype(np.float32),
        sh0=mean(one.sh0, other.sh0),
        shN=mean(one.shN, other.shN),
    )


def _far_colours(gaussians: Gaussians) -> Gaussians:
    """Return Gaussians with coefficients above FAR_COEFFICIENTS set to zero: all tiles must have the same number."""
    blank = gaussians.shN.copy()
    blank[:, FAR_COEFFICIENTS:] = 0
    return replace(gaussians, shN=blank)


@dataclass(frozen=True)
class Tile:
    """A tile that was written, with its children, in coordinates relative to the middle of its patch."""

    uri: str
    """Name of the tile's file in the patch's folder, as "t01.glb"."""
    box: Box
    """Box around the Gaussians of the tile and of all tiles below."""
    error: float
    """Geometric error of the tile's Gaussians, in units of the scene; 0 for a leaf."""
    num_gaussians: int
    num_bytes: int
    children: tuple[Tile, ...] = ()

    def every(self) -> Iterator[Tile]:
        """Yield the tile and then all tiles below, each parent before its children."""
        yield self
        for child in self.children:
            yield from child.every()

    def to_record(self, scale: float) -> dict[str, Any]:
        """Return the tile and all tiles below as an object of tileset.json.

        Args:
            scale: metres per unit of the scene.
        """
        record: dict[str, Any] = {
            "boundingVolume": {"box": as_box(self.box)},
            "geometricError": scale * self.error,
            "refine": "REPLACE",
            "content": {"uri": self.uri},
        }
        return record | ({"children": [child.to_record(scale) for child in self.children]} if self.children else {})


Written = tuple[Tile, Gaussians]
"""A tile that was written, and its own Gaussians."""


@dataclass
class Tiling:
    """Cuts a patch into a tree of tiles and writes each as a .glb file into `folder`, leaves first.

    `gaussians`, at least one, are relative to the middle of the patch; a leaf holds at most `most` of them. The files
    tell readers by `is_antialiased` whether the splat is to be drawn antialiased.
    """

    gaussians: Gaussians
    folder: Path
    most: int = MOST_PER_TILE
    is_antialiased: bool = False
    done: Callable[[int], None] = field(default=lambda _: None)
    """Function that is called after each leaf with the number of Gaussians in leaves so far; by default nothing."""
    num_done: int = 0

    def tiles(self) -> Tile:
        """Write all tiles into the folder, which must exist; return the root of the tree.

        Raises:
            ValueError: a Gaussian lies too far from the middle for a tile.
            OSError: a tile cannot be written.
        """
        rows = np.arange(len(self.gaussians))
        is_far = np.abs(self.gaussians.means).max(axis=1) > FARTHEST
        if is_far.any() and not is_far.all():
            return self._above(
                "t", [self._tile(part, f"t{i}") for i, part in enumerate((rows[~is_far], rows[is_far]))]
            )[0]
        return self._tile(rows, "t")[0]

    def _tile(self, rows: Rows, name: str) -> Written:
        """Write the tile of these rows and its descendants; return the tile with its Gaussians."""
        if len(rows) <= self.most:
            content = some(self.gaussians, rows)
            tile = self._written(content, name, 0.0, ())
            self.num_done += len(rows)
            self.done(self.num_done)
            return tile, content
        halves = _halves(self.gaussians.means, rows)
        return self._above(name, [self._tile(half, f"{name}{i}") for i, half in enumerate(halves)])

    def _above(self, name: str, below: Sequence[Written]) -> Written:
        """Write the parent of two tiles; return it with its Gaussians."""
        (one, first), (other, second) = below
        content = halved(joined(first, second))
        error = max(usual_size(content) * USUAL_ERROR_PX / REFINED_AT_PX, 1.01 * max(one.error, other.error))
        return self._written(content, name, error, (one, other)), content

    def _written(self, content: Gaussians, name: str, error: float, children: tuple[Tile, ...]) -> Tile:
        packed = glb(content, is_antialiased=self.is_antialiased)
        (self.folder / f"{name}.glb").write_bytes(packed)
        boxes = [box_of(content), *(child.box for child in children)]
        box = (np.min([low for low, _ in boxes], axis=0), np.max([high for _, high in boxes], axis=0))
        return Tile(f"{name}.glb", box, error, len(content), len(packed), children)


def _halves(means: FloatArray, rows: Rows) -> tuple[Rows, Rows]:
    """Return rows in two halves of equal number, split along the longest axis."""
    places = means[rows]
    low, high = np.percentile(places[:: max(1, len(rows) // 20_000)], (2, 98), axis=0)
    order = np.argpartition(places[:, int((high - low).argmax())], len(rows) // 2)
    return np.sort(rows[order[: len(rows) // 2]]), np.sort(rows[order[len(rows) // 2 :]])


def box_of(gaussians: Gaussians) -> Box:
    """Return the box around Gaussians, extended by the median of their largest standard deviations.

    The outermost Gaussians on each side are left out, together at most a thousandth (1 - KEPT) of all importance.

    Args:
        gaussians: at least one Gaussian.
    """
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
    """Return a box as 3D Tiles write it: its centre, then its half axes, 12 numbers, with z up.

    The axes are changed as by the inverse of TO_CONTENT: (x, y, z) becomes (x, -z, y).
    """
    middle, half = (box[0] + box[1]) / 2, (box[1] - box[0]) / 2
    axes: npt.NDArray[np.float64] = np.diag(half[[0, 2, 1]])
    return [float(value) for value in (middle[0], -middle[2], middle[1], *axes.ravel())]
