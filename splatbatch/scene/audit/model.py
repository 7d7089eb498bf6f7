"""The model by itself: are there images with poses and unique names, and points that the patch's images see?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from splatbatch.plain_text import counted
from splatbatch.scene.audit.findings import Finding, Sink
from splatbatch.scene.colmap.files import shown
from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.colmap.types import Image, Points

_FARTHEST = 1e18  # a squared distance of more is infinite in float32; see splats.ply.LARGEST_COORDINATE
_REMOVE = "Remove them (colmap point_filtering), or cut again."
_HUGE = 1e100  # below it nothing overflows, and thousands of centres need not be computed
_LEAST_TRAINED = 2  # photographs: below that nothing has depth
_RECUT = "Cut the patch again from the source reconstruction."
_RESEE = f"{_RECUT} Keep points that two of its images see."
_NO_TRACKS = (
    "Nothing needs tracks to train; but without any, neither geometry nor colours of the photographs can be checked."
)


def check_model(model: Reconstruction, scribe: Sink, holdout_every: int) -> Iterator[Finding]:
    """Yield what is wrong with the images and points of a model that was read with its tracks."""
    yield from _check_counts(model, scribe, holdout_every)
    yield from _check_names(model.images, scribe)
    yield from _check_poses(model.images, scribe)
    if model.images:
        yield from _check_points(model.points, {image.id for image in model.images}, scribe)


def _check_counts(model: Reconstruction, scribe: Sink, holdout_every: int) -> Iterator[Finding]:
    count = len(model.images)
    held_out = math.ceil(count / holdout_every) if holdout_every else 0
    if count == 0:
        yield scribe.note("no_images", "images", "0 images: the patch is empty", f"{_RECUT} Or remove the patch.")
    elif count - held_out < _LEAST_TRAINED:
        message = f"{counted(count, 'image')}, of which {held_out} held out: {count - held_out} left to train from"
        yield scribe.note("too_few_images", "images", message, "Merge the patch with a neighbour, or remove it.")
    elif count < holdout_every:
        few = counted(count, "image")
        message = f"{few}, fewer than evaluation.holdout_every {holdout_every}: only {held_out} is held out"
        remedy = "Lower evaluation.holdout_every, name photographs in evaluation.holdout_list, or enlarge the patch."
        yield scribe.note("few_images", "images", message, remedy)


def _check_names(images: tuple[Image, ...], scribe: Sink) -> Iterator[Finding]:
    for name, count in Counter(image.name for image in images).items():
        if count > 1:
            ids = ", ".join(str(image.id) for image in images if image.name == name)
            remedy = "Remove all but one of these images from the model (colmap image_deleter)."
            yield scribe.note("duplicate_name", shown(name), f"{count} images have this name (ids {ids})", remedy)


def _check_poses(images: tuple[Image, ...], scribe: Sink) -> Iterator[Finding]:
    remedy = "Remove the image from the model (colmap image_deleter), or register it again."
    for image in images:
        pose = (*image.quat, *image.translation)
        if not all(map(math.isfinite, pose)):
            message = f"pose is not finite: quaternion {_spell(image.quat)}, translation {_spell(image.translation)}"
            yield scribe.note("bad_pose", shown(image.name), message, remedy)
        elif not any(image.quat):
            yield scribe.note("no_pose", shown(image.name), "has no pose (its quaternion is 0, 0, 0, 0)", remedy)
        elif max(map(abs, pose)) > _HUGE and not np.isfinite(image.center()).all():
            message = f"pose overflows: quaternion {_spell(image.quat)}, translation {_spell(image.translation)}"
            yield scribe.note("bad_pose", shown(image.name), message, remedy)


def _check_points(points: Points, image_ids: set[int], scribe: Sink) -> Iterator[Finding]:
    total = len(points)
    if total == 0:
        yield scribe.note("no_points", "points3D", "the model has no points", f"{_RECUT} Or triangulate it again.")
        return
    broken = total - int(np.isfinite(points.xyz).all(axis=1).sum())
    if broken:
        message = f"{broken} of {total} points have coordinates that are not finite"
        yield scribe.note("bad_points", "points3D", message, _REMOVE)
    beyond = int((np.isfinite(points.xyz) & (np.abs(points.xyz) > _FARTHEST)).any(axis=1).sum())
    if beyond:
        message = f"{beyond} of {total} points lie beyond {_FARTHEST:.0e}, where float32 computes no distances"
        yield scribe.note("bad_points", "points3D", message, _REMOVE)
    unseen = total - int(_is_seen(points, image_ids).sum())
    if unseen:
        message = f"{unseen} of {total} points are seen by no image of the patch"
        yield scribe.note("unseen_points", "points3D", message, _RESEE if points.track_lengths.any() else _NO_TRACKS)


def _is_seen(points: Points, image_ids: set[int]) -> NDArray[np.bool_]:  # [P]
    tracks = points.tracks
    if tracks is None:
        raise ValueError("the model was read without its tracks")
    is_ours = np.isin(tracks.image_ids, np.fromiter(image_ids, np.uint32, len(image_ids)))
    seen_before = np.concatenate([[0], np.cumsum(is_ours)])
    is_seen: NDArray[np.bool_] = seen_before[tracks.starts[1:]] > seen_before[tracks.starts[:-1]]
    return is_seen


def _spell(numbers: tuple[float, ...]) -> str:
    return ", ".join(f"{number:.4g}" for number in numbers)
