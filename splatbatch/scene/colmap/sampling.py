"""Some keypoints of every image, evenly spaced: enough to tell whether a model agrees with itself."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap import text
from splatbatch.scene.colmap.binary import KEYPOINT, walk_images
from splatbatch.scene.colmap.files import choose_format, opened
from splatbatch.scene.colmap.types import NO_POINT3D, Floats

Ids = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Sample:
    """Keypoints of one image: some that have a 3D point, and some of all."""

    image_id: int
    xy: Floats  # [n, 2]
    point3d_ids: Ids  # [n]
    reach: Floats  # [m, 2], with a point or without


@dataclass(frozen=True)
class Sizes:
    """How many keypoints of each image are taken."""

    observed: int
    reach: int


def sample_keypoints(sparse: Path, sizes: Sizes, wanted: Collection[int] | None = None) -> Iterator[Sample]:
    """Yield a sample of the keypoints of each image, or of the wanted ones.

    Raises:
        ModelError: images.bin (or .txt) is missing, unreadable, cut or garbage.
    """
    for image_id, xy, ids in walk_keypoints(sparse, wanted):
        observed = _some(np.flatnonzero(ids != np.uint64(NO_POINT3D)), sizes.observed)
        yield Sample(image_id, xy[observed], ids[observed], xy[:: len(xy) // sizes.reach or 1].copy())


def walk_keypoints(sparse: Path, wanted: Collection[int] | None = None) -> Iterator[tuple[int, Floats, Ids]]:
    """Yield the keypoints of each image, or of the wanted ones, with the ids of their points: of a binary one by one.

    Raises:
        ModelError: images.bin (or .txt) is missing, unreadable, cut or garbage.
    """
    suffix = choose_format(sparse)
    return (_binary if suffix == "bin" else _text)(sparse / f"images.{suffix}", wanted)


def _binary(path: Path, wanted: Collection[int] | None) -> Iterator[tuple[int, Floats, Ids]]:
    with opened(path) as (file, size):
        for image, start, end in walk_images(path, file, size):
            if wanted is None or image.id in wanted:
                record = np.frombuffer(os.pread(file.fileno(), end - start, start), KEYPOINT)
                yield image.id, record["xy"], record["point3d"]


def _text(path: Path, wanted: Collection[int] | None) -> Iterator[tuple[int, Floats, Ids]]:
    for image_id, points in text.read_points2d(path).items():
        if wanted is None or image_id in wanted:
            yield image_id, points.xy, points.point3d_ids


def _some(indices: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    if len(indices) <= most:
        return indices
    return indices[np.arange(most) * len(indices) // most]
