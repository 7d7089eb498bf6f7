"""A COLMAP model that another program exported, read with its quirks: missing files and lines, loose tracks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.plain_text import counted
from splatbatch.scene.colmap import binary, text
from splatbatch.scene.colmap.files import ModelError
from splatbatch.scene.colmap.types import NO_POINT3D, Camera, Image, Points, Points2D
from splatbatch.scene.imports.capture import Notes
from splatbatch.scene.imports.mistakes import Mistakes

_REMEDY = "Export the model again, all of its files at once."
_EMPTY = Points2D(np.zeros((0, 2)), np.zeros(0, np.uint64))


@dataclass(frozen=True, eq=False)
class Export:
    """Cameras by id, images with their keypoints by image id, and points if there are any."""

    cameras: Mapping[int, Camera]
    images: Sequence[Image]
    keypoints: Mapping[int, Points2D]
    points: Points | None


def suffix_of(folder: Path) -> str | None:
    """Return "bin" or "txt" where cameras and images are in a folder, points or not; None where they are not."""
    for suffix in ("bin", "txt"):
        if all((folder / f"{part}.{suffix}").is_file() for part in ("cameras", "images")):
            return suffix
    return None


def read_export(folder: Path, notes: Notes, mistakes: Mistakes) -> Export | None:
    """Return the model in a folder; what its files hold wrongly is a mistake."""
    suffix = suffix_of(folder)
    if suffix is None:
        mistakes.add(str(folder), "no cameras and images, both .bin or both .txt", _REMEDY)
        return None
    files = binary if suffix == "bin" else text
    try:
        cameras = files.read_cameras(folder / f"cameras.{suffix}")
        images, keypoints = _images(folder / f"images.{suffix}", notes)
    except SceneError as error:
        mistakes.add(folder.name, error.message, error.hint)
        return None
    points = _points(folder / f"points3D.{suffix}", notes, mistakes)
    _check_ids(cameras, images, mistakes, suffix)
    known = {camera.id: camera for camera in cameras}
    _settle_tracks(keypoints, points, notes)
    return Export(known, images, keypoints, points)


def _images(path: Path, notes: Notes) -> tuple[list[Image], dict[int, Points2D]]:
    """Return images and keypoints; text that lacks the lines of keypoints is read as one line for each image."""
    if path.suffix == ".bin":
        return binary.read_images(path), binary.read_points2d(path)
    try:
        images, keypoints = text.read_images(path), text.read_points2d(path)
        if not _lacks_lines(path, len(images)):
            return images, keypoints
    except ModelError as error:
        try:
            images = _one_line_each(path)
        except ModelError:
            raise error from None
    else:
        images = _one_line_each(path)
    notes.convert(f"{path.name} has one line for each image instead of two: there are no keypoints")
    return images, {}


def _lacks_lines(path: Path, num_images: int) -> bool:
    """Return whether every line is an image, so that every other image passed for a line of keypoints."""
    are_images = [_is_image(line) for _, line in text.entries(path)]
    return len(are_images) > num_images and all(are_images)


def _is_image(line: bytes) -> bool:
    fields = line.split(maxsplit=9)
    try:
        quat = [float(field) for field in fields[1:5]]
        int(fields[0]), int(fields[8]), float(fields[9])
    except IndexError:
        return False
    except ValueError:  # a name is no number
        return len(fields) == 10 and abs(sum(value * value for value in quat) - 1) < 0.01
    return False


def _one_line_each(path: Path) -> list[Image]:
    return [text.read_image(path, number, line) for number, line in text.entries(path)]


def _points(path: Path, notes: Notes, mistakes: Mistakes) -> Points | None:
    """Return the points with what their tracks say; None where there are none."""
    if not path.exists() or not path.stat().st_size:
        notes.convert(f"{path.name} is {'empty' if path.exists() else 'missing'}: the source has no points")
        return None
    try:
        read = binary.read_points if path.suffix == ".bin" else text.read_points
        points = read(path, tracks=True)
    except SceneError as error:
        mistakes.add(path.name, error.message, error.hint)
        return None
    if not len(points):
        notes.convert(f"{path.name} holds no points")
        return None
    return points


def _check_ids(cameras: Sequence[Camera], images: Sequence[Image], mistakes: Mistakes, suffix: str) -> None:
    known = {camera.id for camera in cameras}
    if len(known) < len(cameras):
        mistakes.add(f"cameras.{suffix}", f"{len(cameras)} cameras share {len(known)} ids", _REMEDY)
    ids = [image.id for image in images]
    if len(set(ids)) < len(ids):
        mistakes.add(f"images.{suffix}", f"{len(ids)} images share {len(set(ids))} ids", _REMEDY)
    for image in images:
        if image.camera_id not in known:
            what = f"is of camera {image.camera_id}, which cameras.{suffix} lacks"
            mistakes.add(f'images.{suffix}: image {image.id} "{image.name}"', what, _REMEDY)


def _settle_tracks(keypoints: Mapping[int, Points2D], points: Points | None, notes: Notes) -> None:
    """Say which tracks count: those of the keypoints; points whose own track says otherwise lose it.

    OpenSfM writes the keypoints that have a point alone, but numbers them in the tracks as if all were there.
    """
    if points is None or points.tracks is None:
        return
    tracks, ids = points.tracks, np.repeat(points.ids, points.track_lengths)
    seen = sum(int((one.point3d_ids != np.uint64(NO_POINT3D)).sum()) for one in keypoints.values())
    if not len(tracks.image_ids) and not seen:
        notes.convert(f"{counted(len(points), 'point')} without tracks")
        return
    loose, order = 0, np.argsort(tracks.image_ids, kind="stable")
    images, starts = np.unique(tracks.image_ids[order], return_index=True)
    for image, own in zip(images, np.split(order, starts[1:]), strict=True):
        theirs = keypoints.get(int(image), _EMPTY).point3d_ids
        places = tracks.point2d_idxs[own].astype(np.int64)
        fits = places < len(theirs)
        fits[fits] = theirs[places[fits]] == ids[own][fits]
        loose += int((~fits).sum())
    if loose:
        share = f"{loose:,} of {len(tracks.image_ids):,} entries of the tracks name no keypoint of their point"
        notes.convert(f"{share}: tracks were made anew from the {seen:,} keypoints that name a point")
