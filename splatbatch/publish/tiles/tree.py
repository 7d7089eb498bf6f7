"""A patch as a tree of tiles: leaves hold its Gaussians, each tile above half of what its two children hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from splatbatch.publish.tiles.glb import glb
from splatbatch.publish.tiles.levels import Rows, halved, importance, joined, some, usual_size
from splatbatch.splats.ply import FloatArray, Gaussians

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
        packed = glb(content)
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
