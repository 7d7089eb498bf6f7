"""Views: poses, cameras and points together with the keypoints that they should meet, and how far they miss them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
            # an image needs several to be judged
            images = np.unique(self.rows[chosen])
            most = max(1, limits.SEARCHED // limits.OBSERVATIONS_PER_IMAGE)
            kept = images[np.linspace(0, len(images) - 1, min(most, len(images))).astype(int)]
            chosen = chosen[np.isin(self.rows[chosen], kept)]
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


@dataclass(frozen=True, eq=False)
class Candidate:
    """What would explain the errors of some views."""

    kind: str
    """A key of `KINDS` in audit/findings."""
    what: str
    remedy: str
    errors: Floats
    """[O], of the same observations, were it mended."""


@dataclass(frozen=True)
class Chosen:
    """The best candidate, and the median error before and after in pixels."""

    kind: str
    what: str
    remedy: str
    before_px: float
    after_px: float


def best(views: Views, candidates: Iterable[Candidate]) -> Chosen | None:
    """Return the simplest candidate that explains the views about as well as any; they come in order of simplicity."""
    found = [(each, float(np.median(each.errors))) for each in candidates if explains(views, each)]
    limit = limits.AS_GOOD * min((after for _, after in found), default=0.0) + 0.02
    return next((_chosen(views, each) for each, after in found if after <= limit), None)


def best_of_small(views: Views, camera: Camera, candidates: Iterable[Candidate]) -> Chosen | None:
    """Return the simplest candidate that explains a small but systematic part of the error about as well as any."""
    before, least_gain = square_error(views.errors), limits.systematic_px(camera) ** 2
    if before < least_gain:
        return None
    scored = [(each, square_error(each.errors)) for each in candidates]
    scored = [(each, after) for each, after in scored if after <= limits.trusted_px(camera) ** 2]
    found = [
        (each, after)
        for each, after in scored
        if before >= limits.SYSTEMATIC_GAIN * after and before - after >= least_gain
    ]
    limit = limits.SYSTEMATIC_AS_GOOD * min((after for _, after in found), default=0.0)
    return next((_chosen(views, each) for each, after in found if after <= limit), None)


def _chosen(views: Views, candidate: Candidate) -> Chosen:
    after = float(np.median(candidate.errors))
    return Chosen(candidate.kind, candidate.what, candidate.remedy, typical(views), after)


def explains(views: Views, candidate: Candidate) -> bool:
    """Return whether nearly all images would be as they should be."""
    after = medians(candidate.errors, views.rows, len(views.images))
    judged = np.isfinite(after) | np.isinf(after)
    before, total = views.medians, int(judged.sum())
    with np.errstate(invalid="ignore"):
        mended = judged & (after <= views.trusted) & (after * limits.GAIN <= before)
    return total > 0 and mended.sum() >= limits.MOST * total


def square_error(errors: Floats) -> float:
    """Return the mean square of the errors but for the worst twentieth, which may be wrong matches."""
    kept = np.sort(errors)[: max(1, int(0.95 * len(errors)))]
    return float(np.mean(kept**2))


def typical(views: Views) -> float:
    """Return the median error in pixels of what lies before its camera; infinite if nothing does."""
    errors = views.errors[np.isfinite(views.errors)]
    return float(np.median(errors)) if len(errors) else float("inf")
