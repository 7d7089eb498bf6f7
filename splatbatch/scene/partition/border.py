"""Borders of patches: how far the Gaussians of a patch may lie beyond its core, and the seams where two cores meet.

A place belongs to the patch whose core holds the place, if the place lies within that patch's reach; otherwise to the
backdrop. So every place is drawn once, and sky and far field come from the backdrop alone.
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
from splatbatch.scene.colmap.types import NONE, places_in, triple
from splatbatch.scene.partition.boxes import Box, Corner, box_between, open_sides
from splatbatch.scene.partition.record import Axes, Core, Partition

MARGIN = 0.05
"""Share of a core's width by which its patch reaches over a side where another core begins.

If a patch has neighbours on all four sides, cropping it to its core keeps 1 / 1.1^2 = 83 % of the trained area.
BlockGaussian (2025) grows its boxes by as much. Photographs and points overlap by more than the Gaussians: what
the photographs show there must be explained.
"""
OUTWARD = 0.25
"""Share of the widest side of a core's bounds by which its patch reaches outwards, where no other core is."""
ACROSS = 0.15
"""Least share of its points in each of two cores with which a photograph looks across their seam."""
Shares = Mapping[str, NDArray[np.float64]]
"""Share (0 to 1) of a photograph's points in each core, [P] in the order of the partition's cores, by image name."""


@dataclass(frozen=True)
class Border:
    """Core of a patch, and the box that its Gaussians may fill (its reach), for training and merging."""

    axes: Axes
    """Unit vectors of the boxes' axes in world coordinates (without an offset), one a row."""
    core: Box
    """Box that the patch answers for; outer sides may be infinite."""
    reach: Box
    """Box around the part of the core that points fill, with finite sides; Gaussians trained with a border stay in it.

    Those trained without one (`training.border`, no backdrop, or another trainer) may lie anywhere.
    """

    @property
    def margin(self) -> float:
        """Smallest distance from a finite side of the core to the end of the reach, in units of the model.

        Infinite if the core has no finite side.
        """
        sides = zip(self.core.lower + self.core.upper, self.reach.lower + self.reach.upper, strict=True)
        return min((abs(far - near) for near, far in sides if math.isfinite(near)), default=math.inf)

    def to_record(self) -> dict[str, Any]:
        """Return the record for JSON: `axes`, and both corners of `core` and of `reach`; null: an infinite side."""
        boxes = {name: getattr(self, name) for name in ("core", "reach")}
        sides = {name: [[*open_sides(box.lower)], [*open_sides(box.upper)]] for name, box in boxes.items()}
        return {"axes": [list(axis) for axis in self.axes], **sides}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Border | None:
        """Return the border that `to_record` wrote; None for an empty record (the patch has no core).

        Raises:
            KeyError: the record lacks a key.
        """
        if not record:
            return None
        x, y, z = map(triple, record["axes"])
        return cls((x, y, z), *(box_between(*record[name]) for name in ("core", "reach")))


def border_of(partition: Partition, name: str) -> Border | None:
    """Return the border of a patch by its name; None if the partition has no such patch."""
    core = partition.core(name)
    return Border(partition.axes, core.core, reach_of(core)) if core else None


def reach_of(core: Core) -> Box:
    """Return the reach of a core, a finite box around its bounds.

    It is wider than the bounds by `MARGIN` where another core begins, and by `OUTWARD` where none does.
    """
    widths = [high - low for low, high in zip(core.bounds.lower, core.bounds.upper, strict=True)]
    outwards = OUTWARD * max(widths)

    def ways(sides: Corner) -> list[float]:
        return [MARGIN * width if math.isfinite(side) else outwards for side, width in zip(sides, widths, strict=True)]

    lower = [side - way for side, way in zip(core.bounds.lower, ways(core.core.lower), strict=True)]
    upper = [side + way for side, way in zip(core.bounds.upper, ways(core.core.upper), strict=True)]
    return box_between(lower, upper)


@dataclass(frozen=True)
class Seam:
    """The face that the cores of two patches share. `at` is its place along `axis`, in the axes of the partition."""

    one: Core
    other: Core
    axis: int
    """Number (0 to 2) of the partition's axis at right angles to the face."""
    at: float

    @property
    def name(self) -> str:
        """Name of the seam in messages and files: "p0|p1"."""
        return f"{self.one.name}|{self.other.name}"


def seams_of(partition: Partition) -> tuple[Seam, ...]:
    """Return the seams of a partition, in the order of its cores, each pair once; none if there is one core.

    Cores that share no more than an edge have no seam.
    """
    seams = []
    for one, other in combinations(partition.cores, 2):
        both = one.core.clipped(other.core)
        flat = [axis for axis in range(3) if both.lower[axis] == both.upper[axis]]
        if len(flat) == 1 and all(both.lower[axis] < both.upper[axis] for axis in {0, 1, 2} - set(flat)):
            seams.append(Seam(one, other, flat[0], both.lower[flat[0]]))  # else they share an edge, or nothing
    return tuple(seams)


def shares_of(partition: Partition, model: Reconstruction) -> Shares:
    """Return the share of its points that each photograph of a model sees in each core.

    Args:
        partition: partition of the scene.
        model: model of the scene or a patch, in the coordinates of its files, read with its tracks. Photographs without
            tracks get shares of 0.
    """
    tracks, num = model.points.tracks, len(partition.cores)
    counts = np.zeros((len(model.images), num), np.int64)
    if tracks is not None and len(model.points):
        owner = partition.owner(partition.in_axes(model.points.xyz))[tracks.points]
        row = places_in(np.array([image.id for image in model.images], np.int64), tracks.image_ids)
        is_known = (owner >= 0) & (row != NONE)
        counts = np.bincount(row[is_known] * num + owner[is_known], minlength=counts.size).reshape(-1, num)
    return {image.name: seen / max(1, int(seen.sum())) for image, seen in zip(model.images, counts, strict=True)}


def looks_across(share: NDArray[np.float64], one: int, other: int) -> bool:
    """Return whether a photograph looks across the seam of two cores.

    Args:
        share: share of the photograph's points in each core, [P].
        one: index of one core.
        other: index of the other core.
    """
    return bool(min(share[one], share[other]) >= ACROSS)
