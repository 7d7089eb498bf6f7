"""Reads the .txt files of a COLMAP model; an error about a line names the number of the line.

Functions that read or count cameras, keypoints or points have the same names as in `binary`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from splatbatch.files import MIB
from splatbatch.scene.colmap.files import ModelError, opened
from splatbatch.scene.colmap.types import CAMERA_MODELS, NO_POINT3D, Camera, Image, Points, Points2D, Tracks, starts_of

_BAD_NUMBER = (ValueError, OverflowError, IndexError)
_MAX_ID = 2**32 - 1
_LONGEST_LINE = 64 * MIB
"""Longest line that is read: a million keypoints of one image."""
_HEAD_BYTES = 4096
MOST_POINTS_BYTES = 4096 * MIB
"""Largest points3D.txt that is read, in bytes; more raises a ModelError, as parsing takes several times as much memory.

A .bin has no such limit.
"""


def read_cameras(path: Path) -> list[Camera]:
    """Return the cameras of cameras.txt, in the order of the file.

    Cameras with an unknown model or a wrong number of parameters are kept: the audit reports them.

    Raises:
        ModelError: the file cannot be read, or a line is no camera, or has an unknown model and no parameters.
    """
    cameras = []
    for number, line in entries(path):
        try:
            camera_id, model, width, height, *params = line.decode().split()
            camera = Camera(_id(camera_id), model, _side(width), _side(height), tuple(map(float, params)))
        except _BAD_NUMBER as error:
            raise ModelError(path, f"line {number} does not describe a camera ({error})") from error
        if not params and model not in CAMERA_MODELS:
            raise ModelError(path, f"line {number} does not describe a camera (unknown model, no parameters)")
        cameras.append(camera)
    return cameras


def read_images(path: Path) -> list[Image]:
    """Return the images of images.txt, in the order of the file; their keypoints are counted but not converted.

    Raises:
        ModelError: the file cannot be read, a line is no image, keypoints are cut, or two images in a row share an id.
    """
    return [image for image, *_ in walk_images(path)]


def walk_points2d(path: Path, wanted: Collection[int] | None = None) -> Iterator[tuple[Image, Points2D]]:
    """Yield images with their keypoints, in the order of the file.

    Args:
        path: path of images.txt.
        wanted: ids of the images to yield; None: all.

    Raises:
        ModelError: the file cannot be read, a line is no image, or two images in a row share an id; or a line of
            keypoints is cut, or holds a word that is no number.
    """
    for image, line, number in walk_images(path):
        if wanted is not None and image.id not in wanted:
            continue
        fields = line.split()
        try:
            xy = np.array([fields[0::3], fields[1::3]], dtype=np.float64).T.reshape(-1, 2)
            ids = [NO_POINT3D if field == b"-1" else int(field) for field in fields[2::3]]
            yield image, Points2D(xy, np.array(ids, dtype=np.uint64))
        except _BAD_NUMBER as error:
            raise ModelError(path, f"line {number + 1} does not hold keypoints ({error})") from error


def walk_images(path: Path) -> Iterator[tuple[Image, bytes, int]]:
    """Yield every image with its line of keypoints and the number of the image's line, from 1.

    The line of keypoints is empty for an image without any.

    Raises:
        ModelError: the file cannot be read, a line is no image, keypoints are cut, or two images in a row share an id.
    """
    lines, before = _lines(path), -1
    for number, line in lines:
        if not line.strip() or line.startswith(b"#"):
            continue
        image = read_image(path, number, line)
        _, keypoints = next(lines, (0, b""))  # an image without keypoints has an empty line
        if len(keypoints.split()) % 3:
            raise ModelError(
                path, f"line {number + 1}: the keypoints are cut short (each needs x, y and id; none: an empty line)"
            )
        if image.id == before:
            raise ModelError(path, f"line {number}: two images in a row have the id {image.id}")
        before = image.id
        yield image, keypoints, number


def stated_points(path: Path) -> int:
    """Return the number of points that the head of points3D.txt states; 0 if it states none.

    Raises:
        ModelError: the file cannot be read.
    """
    with opened(path) as (file, _):
        stated = re.search(rb"^# Number of points: (\d+)", file.read(_HEAD_BYTES), re.MULTILINE)
    return int(stated[1]) if stated else 0


def count_points(path: Path) -> int:
    """Return the number of points in points3D.txt: lines that are neither empty nor a comment. No value is parsed.

    Raises:
        ModelError: the file cannot be read, is larger than `MOST_POINTS_BYTES`, or has a line that is too long.
    """
    return sum(1 for _ in entries(path))


def count_observations(path: Path) -> int:
    """Return the number of observations of all points in points3D.txt, by the number of words in each line.

    Raises:
        ModelError: the file cannot be read, is larger than `MOST_POINTS_BYTES`, or has a line that is too long.
    """
    return sum(max(0, len(line.split()) - 8) // 2 for _, line in entries(path))


def read_points(path: Path, *, tracks: bool = False) -> Points:
    """Return the points of points3D.txt, in the order of the file.

    With `tracks`, `Points.tracks` says which images see each point; without, it is None.

    Raises:
        ModelError: the file cannot be read or is larger than `MOST_POINTS_BYTES`, or a line is no point.
    """
    ids, values, elements, sizes = [], [], [], []
    for number, line in entries(path):
        try:
            point_id, x, y, z, red, green, blue, error, *track = line.split()
            ids.append(np.uint64(int(point_id)))
            values.append((float(x), float(y), float(z), int(red), int(green), int(blue), float(error)))
            elements.append(np.array(track if tracks else [], dtype=np.uint32))
        except _BAD_NUMBER as mistake:
            raise ModelError(path, f"line {number} does not describe a point ({mistake})") from mistake
        if len(track) % 2 or not all(0 <= colour <= 255 for colour in values[-1][3:6]):
            raise ModelError(path, f"line {number} does not describe a point (odd track, or a colour beyond 255)")
        sizes.append(len(track) // 2)
    table = np.array(values, dtype=np.float64).reshape(-1, 7)
    lengths = np.array(sizes, dtype=np.int64)
    flat = np.concatenate([np.zeros(0, np.uint32), *elements]).reshape(-1, 2)
    return Points(
        xyz=table[:, :3].copy(),
        rgb=table[:, 3:6].astype(np.uint8),
        errors=table[:, 6].copy(),
        track_lengths=lengths,
        ids=np.array(ids, dtype=np.uint64),
        tracks=Tracks(starts_of(lengths), flat[:, 0].copy(), flat[:, 1].copy()) if tracks else None,
    )


def read_image(path: Path, number: int, line: bytes) -> Image:
    """Return the image that a line of images.txt describes: the first of an image's two lines.

    Args:
        path: path of the file, for the error.
        number: number of the line, from 1, for the error.
        line: the line.

    Raises:
        ModelError: the line is no image.
    """
    try:
        image_id, qw, qx, qy, qz, tx, ty, tz, camera_id, name = line.split(maxsplit=9)
        if b"\0" in name:
            raise ValueError("the name holds a zero byte")
        quat = (float(qw), float(qx), float(qy), float(qz))
        return Image(_id(image_id), name.strip().decode(), _id(camera_id), quat, (float(tx), float(ty), float(tz)))
    except _BAD_NUMBER as error:
        raise ModelError(path, f"line {number} does not describe an image ({error})") from error


def _side(field: str) -> int:
    side = int(field)
    if abs(side) >= 2**64:
        raise ValueError(f"a side of {field[:20]}… px is too long")
    return side


def _id(field: str | bytes) -> int:
    number = int(field)
    if not 0 <= number <= _MAX_ID:
        raise ValueError(f"id {number} is not in 0 … {_MAX_ID}")
    return number


def entries(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number, from 1, and the stripped text of each line that is neither empty nor a comment.

    Raises:
        ModelError: the file cannot be read, is a points3D.txt that is too large, or has a line of 64 MiB or more.
    """
    for number, line in _lines(path):
        text = line.strip()
        if text and not text.startswith(b"#"):
            yield number, text


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers. A file of zeros, or one endless line, never fills the memory."""
    with opened(path) as (file, size):
        if path.stem == "points3D" and size > MOST_POINTS_BYTES:
            what = f"{size // MIB:,} MiB of text; at most {MOST_POINTS_BYTES // MIB:,} MiB are read"
            raise ModelError(path, what, "Convert the model to .bin: colmap model_converter --output_type BIN.")
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), start=1):
            if len(line) == _LONGEST_LINE:
                raise ModelError(path, f"line {number} is longer than {_LONGEST_LINE // MIB} MiB: not a COLMAP model")
            yield number, line
