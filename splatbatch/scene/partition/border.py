"""Where patches border on each other: how far each reaches beyond its core, and the seams where two cores meet.

Who has a place: the patch whose core holds it, if it lies within that patch's reach; else the splat behind. So every
place is drawn once, and sky and far field come from behind alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.colmap.types import triple
from splatbatch.scene.partition.boxes import Box, Corner, box_between, open_sides
from splatbatch.scene.partition.record import Axes, Core, Partition

MARGIN = 0.05
"""Of a core's width, by which its patch reaches over a side that another core shares: of a core with neighbours on all
four sides 1 / 1.1^2 = 83 % of the area survives the crop (BlockGaussian 2025 grows its boxes by as much). Photographs
and points overlap by more: what is seen there must be explained, not densified."""
OUTWARD = 0.25
"""Of the scene's widest side in the core, by which it reaches beyond the scene where no other core is: that is kept."""
ACROSS = 0.15
"""Of its points that a photograph sees at least in each of two cores, if it looks across their seam."""
Shares = Mapping[str, NDArray[np.float64]]
"""Of the points that a photograph sees, by its name, how many lie in each core, [P]."""


@dataclass(frozen=True)
class Border:
    """Where a patch is responsible, and how far it reaches."""

    axes: Axes
    """Unit vectors from the world's axes to the boxes'."""
    core: Box
    reach: Box
    """Finite."""

    @property
    def margin(self) -> float:
        """Return the narrowest way from the core to the end of its reach, over sides that other cores share."""
        ways = [
            abs(far - near)
            for name in ("lower", "upper")
            for near, far in zip(getattr(self.core, name), getattr(self.reach, name), strict=True)
            if math.isfinite(near)
        ]
        return min(ways, default=math.inf)

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON, a side that is infinitely far as null."""
        boxes = {name: getattr(self, name) for name in ("core", "reach")}
        sides = {name: [[*open_sides(box.lower)], [*open_sides(box.upper)]] for name, box in boxes.items()}
        return {"axes": [list(axis) for axis in self.axes], **sides}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Border | None:
        """Return what `to_record` wrote; None for an empty record."""
        if not record:
            return None
        x, y, z = map(triple, record["axes"])
        return cls((x, y, z), *(box_between(*record[name]) for name in ("core", "reach")))


def border_of(partition: Partition, name: str) -> Border | None:
    """Return the border of a patch; None if the partition does not know it."""
    core = partition.core(name)
    return Border(partition.axes, core.core, reach_of(core)) if core else None


def reach_of(core: Core) -> Box:
    """Return how far the patch of a core reaches: over its sides by the margin, outwards beyond the scene."""
    widths = [high - low for low, high in zip(core.bounds.lower, core.bounds.upper, strict=True)]
    outwards = OUTWARD * max(widths)

    def ways(sides: Corner) -> list[float]:
        return [MARGIN * width if math.isfinite(side) else outwards for side, width in zip(sides, widths, strict=True)]

    lower = [side - way for side, way in zip(core.bounds.lower, ways(core.core.lower), strict=True)]
    upper = [side + way for side, way in zip(core.bounds.upper, ways(core.core.upper), strict=True)]
    return box_between(lower, upper)


@dataclass(frozen=True)
class Seam:
    """The face that the cores of two patches share."""

    one: Core
    other: Core
    axis: int
    """Of the partition, at right angles to the face."""
    at: float

    @property
    def name(self) -> str:
        """Its name in messages: "p0|p1"."""
        return f"{self.one.name}|{self.other.name}"


def seams_of(partition: Partition) -> tuple[Seam, ...]:
    """Return the seams of a partition, in the order of its cores."""
    found = (_seam(one, other) for one, other in combinations(partition.cores, 2))
    return tuple(seam for seam in found if seam)


def _seam(one: Core, other: Core) -> Seam | None:
    both = one.core.clipped(other.core)
    flat = [axis for axis in range(3) if both.lower[axis] == both.upper[axis]]
    if len(flat) != 1 or any(both.lower[axis] >= both.upper[axis] for axis in range(3) if axis not in flat):
        return None  # they have an edge in common, or nothing
    return Seam(one, other, flat[0], both.lower[flat[0]])


def shares_of(partition: Partition, model: Reconstruction) -> Shares:
    """Return what each photograph of a model, in the world's own frame, sees of each core; tracks are needed."""
    tracks, num = model.points.tracks, len(partition.cores)
    counts = {}
    if tracks is not None and len(model.points):
        owner = partition.owner(partition.in_axes(model.points.xyz))
        of_observation = owner[tracks.points]
        ids, place = np.unique(tracks.image_ids, return_inverse=True)
        is_known = of_observation >= 0
        flat = np.bincount(place[is_known] * num + of_observation[is_known], minlength=len(ids) * num)
        counts = dict(zip(ids.tolist(), flat.reshape(-1, num), strict=True))
    none = np.zeros(num, dtype=np.int64)
    found = {image.name: counts.get(image.id, none) for image in model.images}
    return {name: seen / max(1, int(seen.sum())) for name, seen in found.items()}


def looks_across(share: NDArray[np.float64], one: int, other: int) -> bool:
    """Return whether a photograph that sees such shares of the cores looks across the seam of two of them."""
    return bool(min(share[one], share[other]) >= ACROSS)
