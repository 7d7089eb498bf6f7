"""The seams of a partition: where two cores meet, and which photographs look across."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.partition.record import Core, Partition

ACROSS = 0.15
"""Of its points that a photograph sees at least in each of two cores, if it looks across their seam."""
Shares = Mapping[str, NDArray[np.float64]]
"""Of the points that a photograph sees, by its name, how many lie in each core, [P]."""


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
    counts: dict[int, NDArray[np.int64]] = {}
    if tracks is not None and len(model.points):
        owner = partition.owner(partition.in_axes(model.points.xyz))
        of_observation = np.repeat(owner, np.diff(tracks.starts))
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
