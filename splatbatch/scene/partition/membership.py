"""Which photographs and points belong to a core: a photograph goes by what it sees, not by where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.sightings import Indices, Mask, Sightings
from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.partition.boxes import Box, owners

SHARE = 0.15
"""Of a photograph's points: who sees so much of a core belongs to it, however far away."""
GROWN_SHARE = 0.25
"""The same for a core with its overlap, of photographs that are near."""
NEAR = 2.0
"""Times the median distance at which a core is seen beyond which a photograph shows little of it."""
COVER = 0.98
"""Of a core's points should be seen by two of its photographs, if two photographs see them at all."""


@dataclass(frozen=True, eq=False)
class Part:
    """What a patch is made of, and what that costs."""

    photos: Mask  # [I]
    points: Mask  # [P], those that two of the photographs see
    in_core: Mask  # [P]
    cost: float
    """Share of the scene's work: half of it the pixels, half the points; all parts together make more than 1."""

    @property
    def num_photos(self) -> int:
        """Number of its photographs."""
        return int(self.photos.sum())


@dataclass(frozen=True, eq=False)
class Seen:
    """The sightings of a scene, with where its points lie in the axes of the boxes."""

    sightings: Sightings
    places: Floats  # [P, 3]
    point: Indices  # [n]
    totals: Floats  # [I], sightings of each photograph
    centers: Floats  # [I, 3], in the axes
    pixels: Floats  # [I]

    def weights(self) -> Floats:
        """Return each point's share of the scene's work, [P]: of the pixels that see it, and as a point."""
        per_sighting = self.pixels / np.maximum(self.totals, 1) / max(self.pixels.sum(), 1)
        seen = per_sighting[self.sightings.photo]
        shares = np.bincount(self.point, seen, minlength=len(self.places))
        return (shares + 1 / len(self.places)) / 2

    def counted(self, points: Mask) -> Floats:
        """Return how many of some points [P] each photograph sees, [I]."""
        at, _ = self.sightings.of_points(points)
        return np.bincount(self.sightings.photo[at], minlength=len(self.totals)).astype(np.float64)

    def shares(self, owner: NDArray[np.intp], count: int) -> Floats:
        """Return which share of its points each photograph sees in each of so many cores, [count, I]."""
        pairs = self.sightings.photo.astype(np.int64)
        pairs *= count + 1
        pairs += owner[self.point] + 1  # those of nobody come first
        table = np.bincount(pairs, minlength=len(self.totals) * (count + 1)).reshape(-1, count + 1)
        return table[:, 1:].T / np.maximum(self.totals, 1)

    def distances(self, points: Mask) -> Floats:
        """Return how far those of some points are that each photograph sees, in the mean; NaN for none, [I]."""
        at, point = self.sightings.of_points(points)
        photo = self.sightings.photo[at]
        away = self.centers[photo] - self.places[point]
        lengths = np.sqrt(np.einsum("ij,ij->i", away, away))
        with np.errstate(invalid="ignore"):
            mean: Floats = np.bincount(photo, lengths, len(self.totals)) / np.bincount(
                photo, minlength=len(self.totals)
            )
        return mean


def look(sightings: Sightings, axes: Floats) -> Seen:
    """Return the sightings of a scene in the axes of boxes."""
    totals = np.bincount(sightings.photo, minlength=len(sightings.images)).astype(np.float64)
    places, centers = sightings.points.xyz @ axes.T, sightings.centers() @ axes.T
    return Seen(sightings, places, sightings.point, totals, centers, sightings.pixels())


def parts_of(seen: Seen, cores: Sequence[Box], grown: Sequence[Box]) -> list[Part]:
    """Return what belongs to each core.

    A photograph that belongs nowhere by its shares goes where it sees most.
    """
    owner = owners(cores, seen.places)
    shares = seen.shares(owner, len(cores))
    belongs = [_by_sight(seen, shares[index], box.holds(seen.places)) for index, box in enumerate(grown)]
    most = np.where(seen.totals > 0, shares.argmax(axis=0), -1)
    lost = ~np.any(belongs, axis=0)
    return [_part(seen, photos | (lost & (most == index)), owner == index) for index, photos in enumerate(belongs)]


def _by_sight(seen: Seen, share: Floats, in_grown: Mask) -> Mask:
    """Return which photographs see enough of a core, or of it and its overlap from near enough."""
    belongs = share >= SHARE
    also = seen.counted(in_grown) / np.maximum(seen.totals, 1) >= GROWN_SHARE
    if not belongs.any() or not (also & ~belongs).any():
        return belongs | also
    away = seen.distances(in_grown)
    return belongs | (also & (away <= NEAR * np.nanmedian(away[belongs])))


def _part(seen: Seen, photos: Mask, in_core: Mask) -> Part:
    """Return a part, its photographs completed: by those, most useful first, that give more of its core depth."""
    photos = photos.copy()
    wanted = in_core & (np.diff(seen.sightings.starts) >= 2)
    may_lack = (1 - COVER) * wanted.sum()
    points = seen.sightings.seen_by(photos)
    while (lacking := wanted & ~points).sum() > may_lack:
        gains = np.where(photos, 0, seen.counted(lacking))
        if not gains.max() > 0:
            break
        photos[gains >= max(1.0, 0.5 * gains.max())] = True
        points = seen.sightings.seen_by(photos)
    pixels = seen.pixels[photos].sum() / max(seen.pixels.sum(), 1)
    return Part(photos, points, in_core, float(pixels + points.sum() / max(len(points), 1)) / 2)
