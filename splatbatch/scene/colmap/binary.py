"""Reads the .bin files of a COLMAP model; every count is checked against the size of the file before it is used.

Points are read a few megabytes at a time, keypoints one image at a time, and an error is raised at the first fault. A
file of 20 GB full of zeros takes no more memory than a small one.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.files import ModelError, opened, shown
from splatbatch.scene.colmap.types import CAMERA_MODELS_BY_ID, Camera, Image, Points, Points2D, Tracks, starts_of

_COUNT = struct.Struct("<Q")
_CAMERA = struct.Struct("<IiQQ")  # id, model, width, height; then the parameters as doubles
_IMAGE = struct.Struct("<I7dI")  # id, quaternion wxyz, translation, camera; then name, NUL, count, keypoints
POINT = np.dtype([("id", "<u8"), ("xyz", "<f8", 3), ("rgb", "u1", 3), ("error", "<f8"), ("length", "<u8")])
ELEMENT = np.dtype([("image", "<u4"), ("point2d", "<u4")])
KEYPOINT = np.dtype([("xy", "<f8", 2), ("point3d", "<u8")])
_LONGEST_NAME = 4096  # bytes; PATH_MAX of Linux
_PIECE_BYTES = 4 << 20
MOST_ENTRIES = {"cameras": 1_000_000, "images": 1_000_000, "points": 100_000_000}
"""Most cameras, images and points of one model that are read; a file that states more raises a ModelError.

More of them need tens of GB of memory here and in every trainer; so many points alone need 10 GB.
"""
MOST_KEYPOINTS = 16_000_000
"""Most keypoints of one image; an image with more raises a ModelError. COLMAP finds 8,192 by default."""
MOST_TRACK = 16_000_000
"""Most observations in the track of one point; a longer track raises a ModelError."""
SPLIT = "Cut the scene into patches (splatbatch split), or leave points out (colmap point_filtering)."
Records = NDArray[np.void]


def read_cameras(path: Path) -> list[Camera]:
    """Return the cameras of cameras.bin, in the order of the file.

    Raises:
        ModelError: the file cannot be opened, is cut, too long or garbage, has an unknown camera model, or states more
            than `MOST_ENTRIES`.
    """
    with opened(path) as (file, size):
        count = _checked_count(path, file.read(_COUNT.size), size, _CAMERA.size, "cameras")
        cameras: list[Camera] = []
        for _ in range(count):
            head = file.read(_CAMERA.size)
            if len(head) < _CAMERA.size:
                raise _cut(path, len(cameras), count, "cameras")
            camera_id, model_id, width, height = _CAMERA.unpack(head)
            model = CAMERA_MODELS_BY_ID.get(model_id)
            if model is None:
                raise ModelError(path, f"camera {camera_id} has the unknown camera model {model_id}")
            if cameras and cameras[-1].id == camera_id:
                raise _same_id(path, camera_id, "cameras")
            data = file.read(8 * len(model.params))
            if len(data) < 8 * len(model.params):
                raise _cut(path, len(cameras), count, "cameras")
            params = struct.unpack(f"<{len(model.params)}d", data)
            cameras.append(Camera(camera_id, model.name, width, height, params))
        _expect_end(path, file.tell(), size, "a camera may have more parameters than its model takes")
    return cameras


def read_images(path: Path) -> list[Image]:
    """Return the images of images.bin, in the order of the file; their keypoints are skipped, not read.

    Raises:
        ModelError: the file cannot be opened, or is cut, too long or garbage, or states more than `MOST_ENTRIES` or
            `MOST_KEYPOINTS`.
    """
    with opened(path) as (file, size):
        return [image for image, _, _ in walk_images(path, file, size)]


def walk_points2d(path: Path, wanted: Collection[int] | None = None) -> Iterator[tuple[Image, Points2D]]:
    """Yield images with their keypoints, in the order of the file; one image's keypoints are in memory at a time.

    Args:
        path: path of images.bin.
        wanted: ids of the images to yield; None: all.

    Raises:
        ModelError: the file cannot be opened, or is cut, too long or garbage, or states more than `MOST_ENTRIES` or
            `MOST_KEYPOINTS`.
    """
    with opened(path) as (file, size):
        for image, start, end in walk_images(path, file, size):
            if wanted is None or image.id in wanted:
                record = np.frombuffer(os.pread(file.fileno(), end - start, start), KEYPOINT)
                yield image, Points2D(record["xy"].copy(), record["point3d"].copy())


def walk_images(path: Path, file: BinaryIO, size: int) -> Iterator[tuple[Image, int, int]]:
    """Yield every image with the byte range of its keypoints: the first byte, and the byte after the last.

    Args:
        path: path of images.bin, for error messages.
        file: the same file, opened.
        size: size of the file in bytes.

    Raises:
        ModelError: the file is cut, too long or garbage, or states more than `MOST_ENTRIES` or `MOST_KEYPOINTS`.
        OSError: the file cannot be read.
    """
    number = file.fileno()
    count = _checked_count(path, os.pread(number, _COUNT.size, 0), size, _IMAGE.size + 1 + _COUNT.size, "images")
    offset, before = _COUNT.size, -1
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
            raise ModelError(path, f"image {index + 1} of {count} has no readable name ({error})") from error
        offset = start + KEYPOINT.itemsize * num_keypoints
        if offset > size:
            raise ModelError(
                path, f"cut short: image '{shown(name)}' states {num_keypoints} keypoints, more than the file holds"
            )
        if num_keypoints > MOST_KEYPOINTS:
            what = f"image '{shown(name)}' states {num_keypoints:,} keypoints; at most {MOST_KEYPOINTS:,} are read"
            raise ModelError(path, what)
        if image_id == before:
            raise _same_id(path, image_id, "images")
        w, x, y, z, tx, ty, tz = pose
        before = image_id
        yield Image(image_id, name, camera_id, (w, x, y, z), (tx, ty, tz)), start, offset
    _expect_end(path, offset, size)


def count_images(path: Path) -> int:
    """Return the number of images that images.bin states; the images are not read.

    Raises:
        ModelError: the file cannot be opened, is too small for this number (for 0: too large), or states more than
            `MOST_ENTRIES`.
    """
    with opened(path) as (file, size):
        return _checked_count(path, file.read(_COUNT.size), size, _IMAGE.size + 1 + _COUNT.size, "images")


def count_points(path: Path) -> int:
    """Return the number of points that points3D.bin states; the points are not read.

    Raises:
        ModelError: the file cannot be opened, is too small for this number (for 0: too large), or states more than
            `MOST_ENTRIES`.
    """
    with opened(path) as (file, size):
        return _checked_count(path, file.read(_COUNT.size), size, POINT.itemsize, "points")


def count_observations(path: Path) -> int:
    """Return the number of observations of all points in points3D.bin, computed from the size of the file.

    Raises:
        OSError: the file does not exist, or cannot be reached.
        ModelError: the file cannot be opened, does not fit its number of points, or that is above `MOST_ENTRIES`.
    """
    return (path.stat().st_size - _COUNT.size - count_points(path) * POINT.itemsize) // ELEMENT.itemsize


def read_points(path: Path, *, tracks: bool = False) -> Points:
    """Return the points of points3D.bin, in the order of the file.

    With `tracks`, `Points.tracks` says which images see each point; without, it is None.

    Raises:
        ModelError: the file cannot be opened, or is cut, too long or garbage, or states more than `MOST_ENTRIES` or
            `MOST_TRACK`.
    """
    heads, elements = [np.zeros(0, POINT)], [np.zeros(0, ELEMENT)]
    for head, tracked in walk_points(path, tracks=tracks):
        heads.append(head)
        elements.append(tracked)
    record, found = np.concatenate(heads), np.concatenate(elements)
    del heads
    lengths = record["length"].astype(np.int64)
    return Points(
        xyz=record["xyz"].astype(np.float64),
        rgb=record["rgb"].copy(),
        errors=record["error"].astype(np.float64),
        track_lengths=lengths,
        ids=record["id"].astype(np.uint64),
        tracks=Tracks(starts_of(lengths), found["image"].copy(), found["point2d"].copy()) if tracks else None,
    )


def walk_points(path: Path, *, tracks: bool = True) -> Iterator[tuple[Records, Records]]:
    """Yield the points some at a time, as arrays of `POINT`, with their tracks as one array of `ELEMENT`.

    Points and track elements keep the order of the file. Without `tracks`, the second array is empty.

    Raises:
        ModelError: the file cannot be opened, or is cut, too long or garbage, or states more than `MOST_ENTRIES` or
            `MOST_TRACK`.
    """
    with opened(path) as (file, size):
        count = _checked_count(path, file.read(_COUNT.size), size, POINT.itemsize, "points")
        rest, done, last_id = b"", 0, -1
        while done < count:
            data = rest + file.read(_PIECE_BYTES)
            ends = _ends_of_points(data, count - done)
            if not ends:
                data += file.read(_missing_of_point(path, data, (done, count), size - file.tell()))
                ends = _ends_of_points(data, 1)
            if not ends:  # it became shorter while it was read
                raise _cut(path, done, count, "points")
            heads, elements = _taken_apart(np.frombuffer(data, np.uint8, ends[-1]), [0, *ends[:-1]], tracks=tracks)
            is_twice = heads["id"][1:] == heads["id"][:-1]
            if is_twice.any() or int(heads["id"][0]) == last_id:
                raise _same_id(path, int(heads["id"][int(is_twice.argmax()) if is_twice.any() else 0]), "points")
            yield heads, elements
            rest, done, last_id = data[ends[-1] :], done + len(ends), int(heads["id"][-1])
        _expect_end(path, file.tell() - len(rest), size)


def _ends_of_points(data: bytes, most: int) -> list[int]:
    """Return the end of each point that lies completely in a piece."""
    ends, offset = [], 0
    read_length, until_length = _COUNT.unpack_from, POINT.itemsize - _COUNT.size
    with contextlib.suppress(struct.error, OverflowError):  # the next length lies beyond the end
        for _ in range(most):
            offset += POINT.itemsize + ELEMENT.itemsize * read_length(data, offset + until_length)[0]
            ends.append(offset)
    if offset > len(data):
        ends.pop()
    return ends


def _missing_of_point(path: Path, data: bytes, at: tuple[int, int], left: int) -> int:
    """Return the number of bytes of a point, the first of a piece, that have not been read yet.

    Args:
        path: path of the file.
        data: the piece.
        at: number of points before this one, and in all.
        left: bytes of the file after the piece.

    Raises:
        ModelError: the file ends inside the point, or its track is too long.
    """
    done, count = at
    if len(data) < POINT.itemsize:
        raise _cut(path, done, count, "points")
    length = _COUNT.unpack_from(data, POINT.itemsize - _COUNT.size)[0]
    missing: int = POINT.itemsize + ELEMENT.itemsize * length - len(data)
    if missing > left:
        raise _cut(path, done, count, "points")
    if length > MOST_TRACK:
        what = f"point {done + 1} of {count} states a track of {length:,} keypoints; at most {MOST_TRACK:,} are read"
        raise ModelError(path, what)
    return missing


def _taken_apart(data: NDArray[np.uint8], starts: list[int], *, tracks: bool) -> tuple[Records, Records]:
    places = np.array(starts, dtype=np.int64)[:, None] + np.arange(POINT.itemsize)
    heads = data[places].view(POINT).ravel()
    if not tracks:
        return heads, np.zeros(0, ELEMENT)
    is_element = np.ones(len(data), dtype=bool)
    is_element[places] = False
    return heads, data[is_element].view(ELEMENT)


def _checked_count(path: Path, data: bytes, size: int, least: int, what: str) -> int:
    """Return the number at the beginning of a file, if the file is large enough for that many entries of `least` bytes.

    Raises:
        ModelError: it is not, or the number is above `MOST_ENTRIES`.
    """
    if size < _COUNT.size or len(data) < _COUNT.size:
        raise ModelError(path, f"cut short: only {size} bytes")
    count: int = _COUNT.unpack_from(data)[0]
    if _COUNT.size + count * least > size:
        raise ModelError(path, f"cut short or damaged: states {count} entries, but has only {size} bytes")
    if count > MOST_ENTRIES[what]:
        raise ModelError(path, f"states {count:,} {what}; at most {MOST_ENTRIES[what]:,} are read", SPLIT)
    if not count:
        _expect_end(path, _COUNT.size, size)
    return count


def _cut(path: Path, index: int, count: int, what: str) -> ModelError:
    return ModelError(path, f"cut short or damaged: ends inside {what[:-1]} {index + 1} of {count}")


def _same_id(path: Path, number: int, what: str) -> ModelError:
    return ModelError(path, f"damaged: two {what} in a row have the id {number}")


def _expect_end(path: Path, offset: int, size: int, why: str = "the file is damaged, or states a wrong count") -> None:
    if offset != size:
        raise ModelError(path, f"{size - offset} bytes are left over after the last entry; {why}")
