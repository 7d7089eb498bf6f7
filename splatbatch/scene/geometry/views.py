"""Views: poses, cameras and points together with the keypoints that they should meet, and how far they miss them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.types import Camera, Floats, Image, Ints
from splatbatch.scene.geometry import limits
from splatbatch.scene.reprojection import project

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Views:
    """Images with poses, and observations of points in them. A hypothesis is a copy with something exchanged."""

    images: tuple[Image, ...]
    cameras: Mapping[int, Camera]
    rotations: Floats  # [I, 3, 3], world to camera
    translations: Floats  # [I, 3]
    rows: Ints  # [O], which image
    xyz: Floats  # [O, 3]
    xy: Floats  # [O, 2], keypoints in pixels
    places: Ints  # [O], which point in the order of their ids
    points: Floats  # [P, 3], all points in the order of their ids

    @cached_property
    def camera_ids(self) -> Ints:
        """The camera of each image, [I]."""
        return np.array([image.camera_id for image in self.images], dtype=np.int64)

    @cached_property
    def in_camera(self) -> Floats:
        """The observed points in camera coordinates, [O, 3]."""
        with np.errstate(all="ignore"):
            turned: Floats = np.einsum("oij,oj->oi", self.rotations[self.rows], self.xyz)
            return turned + self.translations[self.rows]

    @cached_property
    def errors(self) -> Floats:
        """Distance of each keypoint from its point's projection in pixels, [O]; infinite behind the camera."""
        return self.errors_with(self.cameras)

    def errors_with(self, cameras: Mapping[int, Camera]) -> Floats:
        """Return the errors under other cameras of the same ids, [O]."""
        errors = np.full(len(self.rows), np.inf)
        of_camera = self.camera_ids[self.rows]
        for number in np.unique(of_camera):
            chosen = np.flatnonzero(of_camera == number)
            with np.errstate(all="ignore"):
                missed = np.linalg.norm(project(cameras[int(number)], self.in_camera[chosen]) - self.xy[chosen], axis=1)
            errors[chosen] = np.where(np.isfinite(missed), missed, np.inf)
        return errors

    @cached_property
    def medians(self) -> Floats:
        """Median error of each image, [I]; NaN where it has too few observations."""
        return medians(self.errors, self.rows, len(self.images))

    @cached_property
    def trusted(self) -> Floats:
        """Up to which median error each image is beyond suspicion, [I]."""
        return np.array([limits.trusted_px(self.cameras[image.camera_id]) for image in self.images])

    def only(self, rows: Sequence[int] | Ints) -> Views:
        """Return the views with the observations of these images alone, thinned to what a search needs."""
        chosen = np.flatnonzero(np.isin(self.rows, rows))
        step = -(-len(chosen) // limits.SEARCHED) or 1
        if len(chosen) and len(chosen) // step < 2 * limits.LEAST_OBSERVATIONS * len(rows):
            chosen = _of_some_images(self.rows, chosen)
        else:
            chosen = chosen[::step]
        return self.observed(chosen)

    def observed(self, chosen: Ints | Mask) -> Views:
        """Return the views with some of the observations."""
        return replace(
            self, rows=self.rows[chosen], xyz=self.xyz[chosen], xy=self.xy[chosen], places=self.places[chosen]
        )

    def seen(self) -> Ints:
        """Return the images that have enough observations to be judged."""
        return np.flatnonzero(np.bincount(self.rows, minlength=len(self.images)) >= limits.LEAST_OBSERVATIONS)


def medians(errors: Floats, rows: Ints, count: int) -> Floats:
    """Return the median of the errors of each image, [I]; NaN for images with too few."""
    found = np.full(count, np.nan)
    order = np.lexsort((errors, rows))
    sizes = np.bincount(rows, minlength=count)
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    judged = sizes >= limits.LEAST_OBSERVATIONS
    found[judged] = errors[order[starts[judged] + sizes[judged] // 2]]
    return found


def rotations_of(images: Sequence[Image]) -> Floats:
    """Return the rotations of images, [I, 3, 3]; NaN where a quaternion is no rotation."""
    return from_quats(np.array([image.quat for image in images], dtype=np.float64).reshape(-1, 4))


def from_quats(quats: Floats) -> Floats:
    """Return rotations [I, 3, 3] of quaternions [I, 4], w first; pycolmap's Rotation3d is the reference of its test."""
    with np.errstate(all="ignore"):
        lengths = np.linalg.norm(quats, axis=1, keepdims=True)  # infinite where the squares overflow
        w, x, y, z = (quats / np.where((lengths > 0) & (lengths < np.inf), lengths, np.nan)).T
        rows = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    return np.array(rows).transpose(2, 0, 1)


def _of_some_images(rows: Ints, chosen: Ints) -> Ints:
    """Return the observations of evenly spaced images, all of each: an image needs several to be judged."""
    images = np.unique(rows[chosen])
    most = max(1, limits.SEARCHED // limits.OBSERVATIONS_PER_IMAGE)
    kept = images[np.linspace(0, len(images) - 1, min(most, len(images))).astype(int)]
    return chosen[np.isin(rows[chosen], kept)]
