"""The border of a patch: the box that it spends its Gaussians in, around the core that is cut out of its splat.

Who has a place: the patch whose core holds it, if it lies within that patch's reach; else the splat behind. So every
place is drawn once, and sky and far field come from behind alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from splatbatch.scene.partition.boxes import Box, Corner, box_between, open_sides
from splatbatch.scene.partition.record import Axes, Core, Partition

MARGIN = 0.05
"""Of a core's width, by which its patch reaches over a side that another core shares: of a core with neighbours on all
four sides 1 / 1.1^2 = 83 % of the area survives the crop (BlockGaussian 2025 grows its boxes by as much). Photographs
and points overlap by more: what is seen there must be explained, not densified."""
OUTWARD = 0.25
"""Of the scene's widest side in the core, by which it reaches beyond the scene where no other core is: that is kept."""


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
        x, y, z = ((float(one[0]), float(one[1]), float(one[2])) for one in record["axes"])
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
