"""Which Gaussians of a splat belong into the merged one: by where they lie, in the axes of the partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from splatbatch.config import Offset
from splatbatch.scene.partition.boxes import Box
from splatbatch.scene.partition.record import Partition
from splatbatch.splats.ply import FloatArray

Mask = NDArray[np.bool_]


class Region(Protocol):
    """A part of space."""

    def holds(self, means: FloatArray) -> Mask:
        """Return which means [N, 3], in the frame of the splats, lie in it."""
        ...


@dataclass(frozen=True)
class Inside:
    """A box of the partition: half-open, so that a place on a side of two belongs to one of them."""

    partition: Partition
    offset: Offset
    """Of the frame of the splats."""
    box: Box

    def holds(self, means: FloatArray) -> Mask:
        """Return which means [N, 3] lie in the box."""
        return self.box.holds(self.partition.in_axes(means.astype(np.float64), self.offset))


@dataclass(frozen=True)
class Outside:
    """What no box of a list holds."""

    partition: Partition
    offset: Offset
    boxes: tuple[Box, ...]

    def holds(self, means: FloatArray) -> Mask:
        """Return which means [N, 3] lie in none of the boxes."""
        places = self.partition.in_axes(means.astype(np.float64), self.offset)
        outside = np.ones(len(places), dtype=bool)
        for box in self.boxes:
            outside &= ~box.holds(places)
        return outside
