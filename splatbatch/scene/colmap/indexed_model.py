"""Index of which photograph sees which point, in both directions.

It is made from the tracks alone: the point ids of keypoints in the images file are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.reconstruction import Reconstruction, read_points2d, read_reconstruction
from splatbatch.scene.colmap.types import (
    NONE,
    Floats,
    Image,
    Ints,
    Mask,
    Tracks,
    centers_of,
    elements_of,
    places_in,
    starts_of,
)

Ids = NDArray[np.uint64]
Indices = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class IndexedModel(Reconstruction):
    """A model with an index of its observations: images, points and keypoints are named by their place in a list.

    There are I images, P points, K keypoints, and n observations, sorted by point. An observation is an image that sees
    a point, with the keypoint that shows the point.
    """

    starts: Ints  # [P + 1]: observations starts[i] to starts[i + 1] are of point i
    photo: Indices  # [n], which image
    keypoint: NDArray[np.uint32]  # [n], which of its keypoints
    first_keypoint: Ints  # [I + 1]: keypoints of all images in one row
    xy: Floats  # [K, 2], of every keypoint
    point_of_keypoint: Indices  # [K], `NONE` where it was not triangulated
    num_nowhere: int = 0
    """Number of points that were left out on reading because their position is not finite; 0 in a copy by `some`."""

    @property
    def point(self) -> Indices:
        """Index of the point of each observation, [n]."""
        return np.repeat(np.arange(len(self.points), dtype=np.int32), np.diff(self.starts))

    def seen_by(self, photos: Mask) -> Mask:
        """Return a mask [P] of the points that at least two of the given photographs see.

        Two keypoints in one photograph count as two photographs.

        Args:
            photos: mask of the photographs, [I].
        """
        rows = [
            self.point_of_keypoint[self.first_keypoint[index] : self.first_keypoint[index + 1]]
            for index in np.flatnonzero(photos)
        ]
        points = np.concatenate([np.zeros(0, np.int32), *rows])
        return np.bincount(points[points != NONE], minlength=len(self.points)) >= 2

    def of_points(self, points: Mask) -> tuple[Ints, Ints]:
        """Return the observations of some points as indices [m], and the index of the point of each, [m].

        Args:
            points: mask of the chosen points, [P].
        """
        chosen = np.flatnonzero(points)
        return elements_of(self.starts, chosen), np.repeat(chosen, np.diff(self.starts)[chosen])

    def shares(self, owner: NDArray[np.intp], count: int) -> Floats:
        """Return the share of each photograph's points that lie in each core, [count, I]; 0 if it sees no point.

        Args:
            owner: number of the core of each point, [P]; -1: in no core.
            count: number of cores.
        """
        pairs = self.photo.astype(np.int64)
        pairs *= count + 1
        pairs += owner[self.point] + 1  # those in no box come first
        table = np.bincount(pairs, minlength=len(self.images) * (count + 1)).reshape(-1, count + 1)
        return table[:, 1:].T / np.maximum(table.sum(axis=1), 1)

    def centers(self) -> Floats:
        """Return the camera centres, [I, 3]; NaN where a pose is invalid."""
        return _centers(self.images)

    def some(self, most: int) -> IndexedModel:
        """Return a copy with at most `most` points, evenly taken, and their observations; for estimates.

        The copy has no keypoints without a point, and no keypoint positions: `xy` is empty. `keypoint` keeps the
        numbers of the original. A model that has no more points is returned as it is.
        """
        if len(self.points) <= most:
            return self
        is_kept = np.zeros(len(self.points), dtype=bool)
        is_kept[np.linspace(0, len(self.points) - 1, most).astype(np.int64)] = True
        kept, (at, _) = np.flatnonzero(is_kept), self.of_points(is_kept)
        lengths = np.diff(self.starts)[kept]
        photo = self.photo[at]
        row = np.repeat(np.arange(len(kept), dtype=np.int32), lengths)[np.argsort(photo, kind="stable")]
        first = starts_of(np.bincount(photo, minlength=len(self.images)))
        points = self.points.only(kept)
        rest = (photo, self.keypoint[at], first, np.zeros((0, 2)), row)
        return IndexedModel(self.folder, self.cameras, self.images, points, starts_of(lengths), *rest)


def read_sightings(sparse: Path) -> IndexedModel:
    """Return the model in a folder with all its keypoints, and an index of its observations.

    Left out are points without a finite position. Also left out are track elements that name no image or keypoint, or
    an image with an invalid pose. Of track elements that name one keypoint, the last is kept.

    Raises:
        ModelError: a file is missing, unreadable, cut or garbage; the error names the file.
    """
    model = read_reconstruction(sparse, tracks=True)
    points, tracks = model.points, model.points.tracks
    assert tracks is not None  # noqa: S101 - it was read with them
    kept = np.logical_and.reduce(np.isfinite(points.xyz), axis=1)
    if not kept.all():
        lengths = np.diff(tracks.starts)
        elements, points = np.repeat(kept, lengths), points.only(kept)
        tracks = Tracks(starts_of(lengths[kept]), tracks.image_ids[elements], tracks.point2d_idxs[elements])
    keypoints = read_points2d(sparse)
    rows = [keypoints.pop(image.id).xy for image in model.images]
    first = starts_of(np.array([len(row) for row in rows], dtype=np.int64))
    xy = np.concatenate([np.zeros((0, 2)), *rows])
    del keypoints, rows
    photo = places_in(np.array([image.id for image in model.images], dtype=np.int64), tracks.image_ids)
    stands = np.logical_and.reduce(np.isfinite(_centers(model.images)), axis=1)
    is_sound = np.append(stands, False)[photo]  # NONE is the last place
    is_sound &= tracks.point2d_idxs < np.diff(first, append=first[-1])[photo]
    row = first[photo] + tracks.point2d_idxs
    seen = np.full(len(xy), NONE, dtype=np.int64)  # which sighting each keypoint is
    chosen = np.flatnonzero(is_sound)
    seen[row[chosen]] = chosen
    is_sound[chosen] = seen[row[chosen]] == chosen  # two points at one keypoint: the later has it
    of_point = np.append(tracks.points, NONE)[seen]
    return IndexedModel(
        model.folder,
        model.cameras,
        model.images,
        replace(points, tracks=None),
        starts_of(is_sound)[tracks.starts],
        photo[is_sound].astype(np.int32),
        tracks.point2d_idxs[is_sound],
        first,
        xy,
        of_point.astype(np.int32),
        len(model.points) - len(points),
    )


def _centers(images: Sequence[Image]) -> Floats:
    centers = centers_of(images)
    centers[~np.isfinite(centers).all(axis=1)] = np.nan  # infinity would spoil what it is multiplied with
    return centers
