"""The survey of a model: sampled observations of its images, and how far keypoints miss the projected points.

An observation is a point that an image sees, with the keypoint that the point should project to. The survey also holds
how far the keypoints of each image reach over the photograph. K is the camera matrix: focal lengths and principal
point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from splatbatch.scene.colmap.reconstruction import Reconstruction, walk_points2d
from splatbatch.scene.colmap.types import (
    NO_POINT3D,
    NONE,
    Camera,
    Floats,
    Image,
    Ints,
    Mask,
    places_in,
    rotations_of,
    starts_of,
)
from splatbatch.scene.geometry import limits
from splatbatch.scene.photos.headers import NearSize, SameSize, ScaledSize, Size, relate, size_text
from splatbatch.scene.reprojection import project

_COEFFICIENT = 0.25  # coefficients of lenses that are alike differ by `limits.SAME` of it, and not of themselves


@dataclass(frozen=True)
class KeypointReach:
    """Extent of the keypoints of some images, x and y in pixels, and the shares beyond the edges of the photograph.

    All values are 0 without keypoints.
    """

    num_keypoints: int
    """Number of sampled keypoints, without those beyond a million pixels."""
    low: tuple[float, float]
    high: tuple[float, float]
    """Upper bound of the keypoints, their 0.999 quantile of each axis; `low` is the 0.001 quantile."""
    beyond_far: float
    """Share of the keypoints beyond the right or the lower edge."""
    beyond_near: float
    """Share of the keypoints beyond the left or the upper edge."""

    def lies_within(self, size: tuple[float, float]) -> bool:
        """Return whether the keypoints lie within a photograph of this size (px), 2 % beyond its far edges allowed.

        Checked are the right and the lower edge alone.
        """
        return all(high <= 1.02 * side for high, side in zip(self.high, size, strict=True))


@dataclass(frozen=True, eq=False)
class TrackObservations:
    """Sampled geometry of a model: poses of I images with O observations of points, and the reach of keypoints.

    A hypothesis is a copy with one part replaced. `rows` and `places` name an image and a point by index.
    """

    images: tuple[Image, ...]
    cameras: Mapping[int, Camera]
    rotations: Floats  # [I, 3, 3], world to camera
    translations: Floats  # [I, 3]
    rows: Ints  # [O], which image
    xyz: Floats  # [O, 3]
    xy: Floats  # [O, 2], keypoints in pixels
    places: Ints  # [O], which point in the order of their ids
    points: Floats  # [P, 3], all points in the order of their ids
    reach: Mapping[int, Floats]
    """Sampled keypoints of each image in pixels, [m, 2], by index of the image; those of all images also in a copy.

    Images without keypoints, or with all in one place, are left out.
    """
    own_cameras: Ints  # [I], camera ids as the model has them; images of cameras that are alike share one in `images`

    @cached_property
    def camera_ids(self) -> Ints:
        """Id of each image's camera, [I]."""
        return np.array([image.camera_id for image in self.images], dtype=np.int64)

    @cached_property
    @np.errstate(all="ignore")
    def in_camera(self) -> Floats:
        """Observed points in the coordinates of their camera, [O, 3]; z is the depth, not above 0 behind the camera."""
        turned: Floats = np.einsum("oij,oj->oi", self.rotations[self.rows], self.xyz)
        return turned + self.translations[self.rows]

    @cached_property
    def errors(self) -> Floats:
        """Distance of each keypoint from the projection of its point in pixels, [O].

        Infinite for points behind the camera (unless it is a panorama), for cameras that cannot project, and where a
        pose or position is not finite.
        """
        errors = np.full(len(self.rows), np.inf)
        of_camera = self.camera_ids[self.rows]
        for number in np.unique(of_camera):
            chosen = np.flatnonzero(of_camera == number)
            with np.errstate(all="ignore"):
                missed = np.linalg.norm(
                    project(self.cameras[int(number)], self.in_camera[chosen]) - self.xy[chosen], axis=1
                )
            errors[chosen] = np.where(np.isfinite(missed), missed, np.inf)
        return errors

    def with_camera(self, camera: Camera) -> TrackObservations:
        """Return a copy in which `camera` replaces the camera with the same id."""
        return replace(self, cameras={**self.cameras, camera.id: camera})

    def with_poses(self, poses: Mapping[int, tuple[Floats, Floats]]) -> TrackObservations:
        """Return a copy with other poses of some images.

        Args:
            poses: rotation [3, 3] and translation [3] from world to camera, by index of the image.
        """
        rotations, translations = self.rotations.copy(), self.translations.copy()
        for row, pose in poses.items():
            rotations[row], translations[row] = pose
        return replace(self, rotations=rotations, translations=translations)

    @cached_property
    def medians(self) -> Floats:
        """Median error of each image in pixels, [I]; NaN for images with fewer than 8 observations."""
        return medians(self.errors, self.rows, len(self.images))

    @cached_property
    def trusted(self) -> Floats:
        """Median error in pixels up to which each image counts as intact, [I]."""
        return np.array([limits.trusted_px(self.cameras[image.camera_id]) for image in self.images])

    def only(self, rows: Sequence[int] | Ints) -> TrackObservations:
        """Return a copy with the observations of the given images alone, at most `limits.SEARCHED` (4000).

        Evenly spaced observations are taken. Where images would be left with fewer than 16 each in the mean, at most 83
        evenly spaced images are kept whole instead.

        Args:
            rows: indices of the images, which stay valid in the copy.
        """
        chosen = np.flatnonzero(np.isin(self.rows, rows))
        step = -(-len(chosen) // limits.SEARCHED) or 1
        if len(chosen) // step >= 2 * limits.LEAST_OBSERVATIONS * len(rows):
            return self.observed(chosen[::step])
        images, most = np.unique(self.rows[chosen]), limits.SEARCHED // limits.OBSERVATIONS_PER_IMAGE
        kept = images[:: -(-len(images) // most) or 1]  # an image needs several to be judged
        return self.observed(chosen[np.isin(self.rows[chosen], kept)])

    def observed(self, chosen: Ints | Mask) -> TrackObservations:
        """Return a copy with the chosen observations alone; images and points keep their indices.

        Args:
            chosen: a mask [O], or indices of observations.
        """
        return replace(
            self, rows=self.rows[chosen], xyz=self.xyz[chosen], xy=self.xy[chosen], places=self.places[chosen]
        )

    def without_points(self) -> TrackObservations:
        """Return a copy without points and observations, small enough to keep for many patches.

        Poses, cameras and the reach of keypoints stay.
        """
        return replace(self.observed(np.zeros(0, np.int64)), points=np.zeros((0, 3)))

    def obs(self) -> Ints:
        """Return the indices, ascending, of the images with enough observations to be judged: at least 8."""
        return np.flatnonzero(np.bincount(self.rows, minlength=len(self.images)) >= limits.LEAST_OBSERVATIONS)

    def reach_of(self, camera: Camera, rows: Iterable[int]) -> KeypointReach:
        """Return the extent of the keypoints of some images, and the shares beyond the edges of a camera's photograph.

        Args:
            camera: camera whose width and height give the edges.
            rows: indices of the images; those without keypoints are left out.
        """
        seen = np.concatenate([np.zeros((0, 2)), *(self.reach[row] for row in rows if row in self.reach)])
        seen = seen[(np.abs(seen) < limits.LONGEST_PX).all(axis=1)]
        if not len(seen):
            return KeypointReach(0, (0.0, 0.0), (0.0, 0.0), 0.0, 0.0)
        (left, top), (right, bottom) = np.quantile(seen, [0.001, 0.999], axis=0)
        far = float((seen > (camera.width + 0.5, camera.height + 0.5)).any(axis=1).mean())
        near = float((seen < -0.5).any(axis=1).mean())
        return KeypointReach(len(seen), (float(left), float(top)), (float(right), float(bottom)), far, near)


def medians(errors: Floats, rows: Ints, count: int) -> Floats:
    """Return the (upper) median of the errors of each image, [count]; NaN for images with fewer than 8 observations.

    Args:
        errors: error of each observation, [O].
        rows: index of the image of each observation, [O].
        count: number of images.
    """
    found = np.full(count, np.nan)
    order = np.lexsort((errors, rows))
    sizes = np.bincount(rows, minlength=count)
    starts = starts_of(sizes)[:-1]
    judged = sizes >= limits.LEAST_OBSERVATIONS
    found[judged] = errors[order[starts[judged] + sizes[judged] // 2]]
    return found


@dataclass(frozen=True, eq=False)
class CauseCandidate:
    """One possible cause of the errors, with the errors that would remain if it were repaired."""

    kind: str
    """Kind of finding that the candidate gives, a key of `KINDS` in audit/findings."""
    what: str
    remedy: str
    errors: Floats
    """Errors of the same observations after repair, in pixels, [O]; a single NaN if nothing explains the errors."""
    before_px: float = float("nan")
    """Median error in pixels without repair, over the observations whose error is finite; infinite without any.

    NaN until the candidate is chosen as the cause.
    """

    @property
    def after_px(self) -> float:
        """Median error in pixels that would remain after repair; NaN where nothing explains the errors."""
        return float(np.median(self.errors))


def best(views: TrackObservations, candidates: Iterable[CauseCandidate]) -> CauseCandidate | None:
    """Return the simplest candidate that explains the errors about as well as the best one; None: none explains them.

    Args:
        views: the observations.
        candidates: candidates for these observations, the simplest first.
    """
    found = [(each, each.after_px) for each in candidates if explains(views, each)]
    return _simplest(views, found, limits.AS_GOOD, 0.02)


def best_of_small(
    views: TrackObservations, camera: Camera, candidates: Iterable[CauseCandidate]
) -> CauseCandidate | None:
    """Return the simplest candidate that explains a small systematic error of a camera about as well as the best.

    None: the error is too small to matter, or no candidate explains it.

    Args:
        views: observations of the camera's images.
        camera: the camera, whose size sets the limits.
        candidates: candidates for these observations, the simplest first.
    """
    least_px = max(limits.SYSTEMATIC_PX, limits.SYSTEMATIC_SHARE * max(camera.size))
    before, least_gain = square_error(views.errors), least_px**2
    if before < least_gain:
        return None
    scored = [(each, square_error(each.errors)) for each in candidates]
    found = [
        (each, after)
        for each, after in scored
        if after <= limits.trusted_px(camera) ** 2
        and before >= limits.SYSTEMATIC_GAIN * after
        and before - after >= least_gain
    ]
    return _simplest(views, found, limits.SYSTEMATIC_AS_GOOD)


def _simplest(
    views: TrackObservations, found: Sequence[tuple[CauseCandidate, float]], as_good: float, slack: float = 0.0
) -> CauseCandidate | None:
    """Return the first candidate whose error is about that of the best; None where there is none."""
    limit = as_good * min((after for _, after in found), default=0.0) + slack
    return next((replace(each, before_px=typical(views)) for each, after in found if after <= limit), None)


def explains(views: TrackObservations, candidate: CauseCandidate) -> bool:
    """Return whether a candidate's repair makes at least 80 % (`limits.MOST`) of the judged images intact.

    Their median error must also become four times smaller (`limits.GAIN`). False without images that can be judged.
    """
    after = medians(candidate.errors, views.rows, len(views.images))
    judged = ~np.isnan(after)
    before, total = views.medians, int(judged.sum())
    with np.errstate(invalid="ignore"):
        mended = judged & (after <= views.trusted) & (after * limits.GAIN <= before)
    return total > 0 and mended.sum() >= limits.MOST * total


def square_error(errors: Floats) -> float:
    """Return the mean square of the errors [O], in px^2, without the worst twentieth, which may be wrong matches.

    NaN without errors.
    """
    kept = np.sort(errors)[: max(1, int(0.95 * len(errors)))]
    return float(np.mean(kept**2))


def typical(views: TrackObservations) -> float:
    """Return the median error in pixels of the observations whose error is finite; infinite if there are none."""
    errors = views.errors[np.isfinite(views.errors)]
    return float(np.median(errors)) if len(errors) else float("inf")


def alike_cameras(model: Reconstruction) -> dict[int, int]:
    """Return ids of cameras that are judged as if they were another camera, with that camera's id.

    These are cameras of one or two photographs, which give too little evidence by themselves. The other camera has the
    same model and size, and nearly the same parameters. Many photogrammetry
    programs write one camera per photograph. Empty if every camera is judged by itself.
    """
    counts = Counter(image.camera_id for image in model.images)
    groups, found = dict[tuple[str, Size, int], list[int]](), dict[int, int]()
    for _, number in sorted((count <= limits.FEW, number) for number, count in counts.items()):
        camera = model.cameras[number]
        groups.setdefault((camera.model, camera.size, len(camera.params)), []).append(number)
    for numbers in groups.values():
        params = np.array([model.cameras[number].params for number in numbers])
        least = limits.SAME * np.maximum(np.abs(params), _COEFFICIENT)
        is_open = np.array([counts[number] <= limits.FEW for number in numbers])
        for at, number in enumerate(numbers):
            if number not in found:  # compared with all later ones at once: there may be ten thousand, and none alike
                like = is_open[at + 1 :] & (np.abs(params[at + 1 :] - params[at]) <= least[at]).all(axis=1)
                rows = at + 1 + np.flatnonzero(like)
                found |= {numbers[row]: number for row in rows}
                is_open[rows] = False
    return found


def survey(model: Reconstruction, alike: Mapping[int, int], most_images: int | None = None) -> TrackObservations:
    """Return the survey of a model: up to 48 observations of each image.

    Left out are observations of unknown points, keypoints beyond a million pixels, and all of an image whose sampled
    keypoints are the same.

    Args:
        model: the model, whose keypoints are read from its folder.
        alike: ids of cameras that are judged as if they were another, with that camera's id, as `alike_cameras` returns
            them: their images get the other camera, and their keypoints move with K.
        most_images: largest number of images, evenly spaced; None: all.

    Raises:
        ModelError: the keypoints cannot be read.
    """
    images = model.images
    if most_images is not None and len(images) > most_images:
        images = tuple(images[at] for at in np.linspace(0, len(images) - 1, most_images).astype(int))
    of_id = {image.id: index for index, image in enumerate(images)}
    reach, named = dict[int, Floats](), [np.zeros(0, np.uint64)]
    rows, pixels = [np.zeros(0, np.int64)], [np.zeros((0, 2))]
    for image_id, seen in walk_points2d(model.folder, of_id):
        number, xy = images[of_id[image_id]].camera_id, seen.xy
        camera, other = model.cameras[number], model.cameras[alike.get(number, number)]
        if camera.params != other.params and camera.has_center:  # as the camera that judges it would have them
            (fx, fy, cx, cy), (gx, gy, dx, dy) = camera.pinhole, other.pinhole
            xy = np.asarray((xy - (cx, cy)) * (gx / fx, gy / fy) + (dx, dy), np.float64)
        sample = xy[:: len(xy) // limits.EXTENT_PER_IMAGE or 1].copy()
        if (sample != sample[:1]).any():  # programs that have no keypoints write the same one again and again
            reach[of_id[image_id]] = sample
            observed = np.flatnonzero(seen.point3d_ids != np.uint64(NO_POINT3D))
            if len(observed) > (most := limits.OBSERVATIONS_PER_IMAGE):
                observed = observed[np.arange(most) * len(observed) // most]
            named.append(seen.point3d_ids[observed])
            rows.append(np.full(len(observed), of_id[image_id]))
            pixels.append(xy[observed])
    order, xy = np.argsort(model.points.ids), np.concatenate(pixels)
    places = places_in(model.points.ids[order], np.concatenate(named))
    with np.errstate(invalid="ignore"):
        is_known = (places != NONE) & (np.abs(xy) < limits.LONGEST_PX).all(axis=1)
    places, points = places[is_known], model.points.xyz[order]
    translations = np.array([image.translation for image in images], dtype=np.float64).reshape(-1, 3)
    known = np.concatenate(rows)[is_known], points[places], xy[is_known], places, points
    own, judged = np.array([image.camera_id for image in images], dtype=np.int64), with_cameras(images, alike)
    return TrackObservations(judged, model.cameras, rotations_of(images), translations, *known, reach, own)


def with_cameras(images: tuple[Image, ...], alike: Mapping[int, int]) -> tuple[Image, ...]:
    """Return the images with the ids of the cameras that they are judged with; see `alike_cameras`.

    Args:
        images: the images.
        alike: ids of cameras with the id of the camera that replaces each; empty: the images are returned as they are.
    """
    return (
        tuple(replace(each, camera_id=alike.get(each.camera_id, each.camera_id)) for each in images)
        if alike
        else images
    )


@dataclass(frozen=True)
class Misfit:
    """A camera whose K belongs to photographs of another size than the camera's width and height; `what`: in words.

    "k_left_behind": width and height are right, K is not. "size_alone": K is right, width and height are not.
    """

    kind: Literal["k_left_behind", "size_alone"]
    what: str
    meant: Size | None
    """Size in pixels that K belongs to; None if it is not known to the pixel, or unlike the camera's in shape."""


def find_misfit(camera: Camera, photo: Size, reach: KeypointReach) -> Misfit | None:
    """Return why a camera's K does not belong to its width and height.

    None if nothing shows that it does not, or there are fewer than 120 keypoints. Also None for a panorama, or a camera
    whose model or number of parameters is wrong.

    Args:
        camera: a camera whose K agrees with its keypoints.
        photo: width and height of its photographs on disk, in pixels.
        reach: extent of its keypoints.

    Raises:
        ZeroDivisionError: a width or height is 0.
    """
    if not camera.has_center or reach.num_keypoints < limits.REACH_KEYPOINTS:
        return None
    size = camera.size
    if photo != size and not belongs(camera, size, reach) and belongs(camera, photo, reach):
        what = (
            f"the keypoints fit the photographs of {size_text(photo)}; the camera's size of {size_text(size)} does not"
        )
        return Misfit("size_alone", what, photo)
    is_one_sided = reach.beyond_far > limits.ONE_SIDED * reach.beyond_near
    if reach.beyond_far > max(limits.OUTSIDE, limits.OUTSIDE_KEYPOINTS / reach.num_keypoints) and is_one_sided:
        return _left_behind(camera, f"{100 * reach.beyond_far:.3g} % of the keypoints lie beyond that size")
    shares = (2 * camera.cx / camera.width, 2 * camera.cy / camera.height)
    reached = (reach.high[0] / camera.width, reach.high[1] / camera.height)
    off, common = abs(shares[0] - shares[1]), sum(shares) / 2
    if off < limits.SAME_SHARE and common > 1 + limits.OFF_SHARE and max(reached) < common:
        return _left_behind(camera, f"the principal point lies at {50 * common:.4g} % of both sides")
    is_small = off < limits.CENTRED and max(shares) < 1 - 2 * limits.CENTRED and max(reached) < limits.REACH
    if is_small and reach.lies_within((2 * camera.cx, 2 * camera.cy)):
        return _left_behind(camera, "the keypoints reach over {:.0f}x{:.0f} px only".format(*reach.high))
    return None


def belongs(camera: Camera, size: Size, reach: KeypointReach) -> bool:
    """Return whether a camera's K and keypoints fit a size in pixels.

    The principal point must be within 3 % of the middle of this size, and the keypoints must lie within the size.

    Raises:
        SceneError: the camera is a panorama, or its model or number of parameters is wrong.
        ZeroDivisionError: a side of `size` is 0.
    """
    near = all(abs(c / s - 0.5) < limits.CENTRED for c, s in zip((camera.cx, camera.cy), size, strict=True))
    return near and reach.lies_within(size)


def _left_behind(camera: Camera, why: str) -> Misfit:
    size, middle = camera.size, (2 * camera.cx, 2 * camera.cy)
    meant = (round(middle[0]), round(middle[1]))
    shares = [size[axis] / middle[axis] for axis in (0, 1)]
    is_exact = max(abs(middle[axis] - meant[axis]) for axis in (0, 1)) < 0.01 and isinstance(
        relate(meant, size), ScaledSize | NearSize | SameSize
    )
    if abs(shares[0] - shares[1]) < limits.CENTRED:
        how = f"resized by {sum(shares) / 2:.4g} or cropped alike on all sides"
    else:
        how = "cropped"
    what = (
        f"camera parameters and keypoints belong to about {size_text(meant)}, not to {size_text(size)} ({why}): "
        f"the photographs were {how}, and of the camera only width and height were changed"
    )
    return Misfit("k_left_behind", what, meant if is_exact else None)
