"""The .bin files of a COLMAP model: every count is checked against the size of the file before it is believed."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.files import ModelError, opened, shown
from splatbatch.scene.colmap.types import CAMERA_MODELS_BY_ID, Camera, Image, Ints, Points, Points2D, Tracks

_COUNT = struct.Struct("<Q")
_CAMERA = struct.Struct("<IiQQ")  # id, model, width, height; then the parameters as doubles
_IMAGE = struct.Struct("<I7dI")  # id, quaternion wxyz, translation, camera; then name, NUL, count, keypoints
POINT = np.dtype([("id", "<u8"), ("xyz", "<f8", 3), ("rgb", "u1", 3), ("error", "<f8"), ("length", "<u8")])
ELEMENT = np.dtype([("image", "<u4"), ("point2d", "<u4")])
KEYPOINT = np.dtype([("xy", "<f8", 2), ("point3d", "<u8")])
_LONGEST_NAME = 4096  # bytes; PATH_MAX of Linux
_AT_ONCE = 1 << 16  # points
Records = NDArray[np.void]


def read_cameras(path: Path) -> list[Camera]:
    """Return the cameras of cameras.bin.

    Raises:
        ModelError: the file is cut, too long or garbage.
    """
    with opened(path) as (file, size):
        data = file.read()
    count = _checked_count(path, data, size, _CAMERA.size)
    cameras: list[Camera] = []
    offset = _COUNT.size
    for _ in range(count):
        if offset + _CAMERA.size > size:
            raise _cut(path, len(cameras), count, "cameras")
        camera_id, model_id, width, height = _CAMERA.unpack_from(data, offset)
        offset += _CAMERA.size
        model = CAMERA_MODELS_BY_ID.get(model_id)
        if model is None:
            raise ModelError(path, f"camera {camera_id} is of the unknown camera model {model_id}")
        end = offset + 8 * len(model.params)
        if end > size:
            raise _cut(path, len(cameras), count, "cameras")
        params = struct.unpack(f"<{len(model.params)}d", data[offset:end])
        cameras.append(Camera(camera_id, model.name, width, height, params))
        offset = end
    _expect_end(path, offset, size, "a camera may have more parameters than its model takes")
    return cameras


def read_images(path: Path) -> list[Image]:
    """Return the images of images.bin; their keypoints are skipped, not read.

    Raises:
        ModelError: the file is cut, too long or garbage.
    """
    with opened(path) as (file, size):
        return [image for image, _, _ in walk_images(path, file, size)]


def read_points2d(path: Path) -> dict[int, Points2D]:
    """Return the keypoints of images.bin by image id.

    Raises:
        ModelError: the file is cut, too long or garbage.
    """
    with opened(path) as (file, size):
        keypoints = {}
        for image, start, end in walk_images(path, file, size):
            record = np.frombuffer(os.pread(file.fileno(), end - start, start), KEYPOINT)
            keypoints[image.id] = Points2D(record["xy"].copy(), record["point3d"].copy())
        return keypoints


def walk_images(path: Path, file: BinaryIO, size: int) -> Iterator[tuple[Image, int, int]]:
    """Yield every image with the first and the last byte (exclusive) of its keypoints.

    Raises:
        ModelError: the file is cut, too long or garbage.
    """
    number = file.fileno()
    count = _checked_count(path, os.pread(number, _COUNT.size, 0), size, _IMAGE.size + 1 + _COUNT.size)
    offset = _COUNT.size
    for index in range(count):
        # One read of the longest header an image can have: the keypoints in between are never loaded.
        head = os.pread(number, _IMAGE.size + _LONGEST_NAME + 1 + _COUNT.size, offset)
        nul = head.find(b"\0", _IMAGE.size)
        start = offset + nul + 1 + _COUNT.size
        if nul < 0 or start > size:
            raise _cut(path, index, count, "images")
        image_id, *pose, camera_id = _IMAGE.unpack_from(head)
        num_keypoints = _COUNT.unpack_from(head, nul + 1)[0]
        try:
            name = head[_IMAGE.size : nul].decode()
        except UnicodeDecodeError as error:
            raise ModelError(path, f"image {index + 1} of {count} has no name ({error})") from error
        offset = start + KEYPOINT.itemsize * num_keypoints
        if offset > size:
            raise ModelError(
                path, f"cut: image '{shown(name)}' claims {num_keypoints} keypoints, more than the file holds"
            )
        w, x, y, z, tx, ty, tz = pose
        yield Image(image_id, name, camera_id, (w, x, y, z), (tx, ty, tz)), start, offset
    _expect_end(path, offset, size)


def count_images(path: Path) -> int:
    """Return the count that images.bin begins with.

    Raises:
        ModelError: the file is too small for it.
    """
    with opened(path) as (file, size):
        return _checked_count(path, file.read(_COUNT.size), size, _IMAGE.size + 1 + _COUNT.size)


def count_points(path: Path) -> int:
    """Return the count that points3D.bin begins with.

    Raises:
        ModelError: the file is too small for it.
    """
    with opened(path) as (file, size):
        return _checked_count(path, file.read(_COUNT.size), size, POINT.itemsize)


def read_points(path: Path, *, tracks: bool = False) -> Points:
    """Return the points of points3D.bin, with their tracks if asked for.

    Raises:
        ModelError: the file is cut, too long or garbage.
    """
    with opened(path) as (file, size):
        data = file.read()
    offsets = _walk_points(path, data, size)
    record, elements = _taken_apart(np.frombuffer(data, np.uint8), offsets, with_elements=tracks)
    lengths = record["length"].astype(np.int64)
    return Points(
        xyz=record["xyz"].astype(np.float64),
        rgb=record["rgb"].copy(),
        errors=record["error"].astype(np.float64),
        track_lengths=lengths,
        ids=record["id"].astype(np.uint64),
        tracks=_tracks(elements, lengths) if tracks else None,
    )


def _walk_points(path: Path, data: bytes, size: int) -> Ints:
    """Return where every point starts, and where the last one ends."""
    count = _checked_count(path, data, size, POINT.itemsize)
    offsets, offset = [_COUNT.size], _COUNT.size
    read_length, until_length = _COUNT.unpack_from, POINT.itemsize - _COUNT.size
    try:
        for _ in range(count):
            offset += POINT.itemsize + ELEMENT.itemsize * read_length(data, offset + until_length)[0]
            offsets.append(offset)
    except (struct.error, OverflowError) as error:  # the next length lies beyond the end
        raise _cut(path, len(offsets) - 1, count, "points") from error
    if offset > size:
        raise _cut(path, count - 1, count, "points")
    _expect_end(path, offset, size)
    return np.array(offsets, dtype=np.int64)


def _taken_apart(data: NDArray[np.uint8], offsets: Ints, *, with_elements: bool) -> tuple[Records, Records]:
    """Return the heads of all points and, one after the other, the elements of their tracks.

    Some at a time: the place of every byte of millions of points takes gigabytes.
    """
    heads = np.empty(len(offsets) - 1, POINT)
    rows = heads.view(np.uint8).reshape(-1, POINT.itemsize)
    elements = [np.zeros(0, ELEMENT)]
    for first in range(0, len(heads), _AT_ONCE):
        part = offsets[first : first + _AT_ONCE + 1]
        records = data[part[0] : part[-1]]
        places = (part[:-1] - part[0])[:, None] + np.arange(POINT.itemsize)
        rows[first : first + _AT_ONCE] = records[places]
        if with_elements:
            is_element = np.ones(len(records), dtype=bool)
            is_element[places] = False
            elements.append(records[is_element].view(ELEMENT))
    return heads, np.concatenate(elements)


def _tracks(elements: Records, lengths: Ints) -> Tracks:
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Tracks(starts, elements["image"].copy(), elements["point2d"].copy())


def _checked_count(path: Path, data: bytes, size: int, least: int) -> int:
    """Return the leading count if the file is large enough for so many entries of `least` bytes."""
    if size < _COUNT.size or len(data) < _COUNT.size:
        raise ModelError(path, f"cut: only {size} bytes")
    count: int = _COUNT.unpack_from(data)[0]
    if _COUNT.size + count * least > size:
        raise ModelError(path, f"cut or garbage: claims {count} entries, but has only {size} bytes")
    return count


def _cut(path: Path, index: int, count: int, what: str) -> ModelError:
    return ModelError(path, f"cut or garbage: ends inside {what[:-1]} {index + 1} of {count}")


def _expect_end(path: Path, offset: int, size: int, why: str = "its count is wrong or the file is garbage") -> None:
    if offset != size:
        raise ModelError(path, f"{size - offset} bytes left over after the last entry; {why}")
