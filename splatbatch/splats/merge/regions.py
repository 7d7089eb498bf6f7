"""Which Gaussians of a splat belong into the merged one: by where they lie, in the axes of the partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from splatbatch.config import Offset
from splatbatch.scene.partition.boxes import Box
from splatbatch.scene.partition.record import Core, Partition
from splatbatch.splats.ply import FloatArray

Mask = NDArray[np.bool_]


class Region(Protocol):
    """A part of space."""

    def holds(self, means: FloatArray) -> Mask:
        """Return which means [N, 3], in the frame of the splats, lie in it."""
        ...


@dataclass(frozen=True)
class InCore:
    """The core of a patch: half-open, so that each place belongs to one patch."""

    partition: Partition
    offset: Offset
    core: Box

    def holds(self, means: FloatArray) -> Mask:
        """Return which means [N, 3] lie in the core."""
        return self.core.holds(self.partition.in_axes(means.astype(np.float64), self.offset))


@dataclass(frozen=True)
class BehindAll:
    """Where the backdrop shows: outside of what any merged patch was trained for, and in the cores of missing ones."""

    partition: Partition
    offset: Offset
    merged: tuple[Core, ...]

    def holds(self, means: FloatArray) -> Mask:
        """Return which means [N, 3] lie there."""
        places = self.partition.in_axes(means.astype(np.float64), self.offset)
        here = ~self._any([core.core for core in self.merged], places)
        return here | ~self._any([trained_box(core, self.partition.overlap) for core in self.merged], places)

    def _any(self, boxes: list[Box], places: NDArray[np.float64]) -> Mask:
        inside = np.zeros(len(places), dtype=bool)
        for box in boxes:
            inside |= box.holds(places)
        return inside


def trained_box(core: Core, overlap: float) -> Box:
    """Return where a patch puts its Gaussians: its core with the overlap, as far as the scene reaches."""
    low, high = np.array(core.bounds.lower), np.array(core.bounds.upper)
    x, y, z = (overlap * (high - low)).tolist()
    return core.grown.clipped(core.bounds.grown((x, y, z)))
