"""A copy of a COLMAP model that lies elsewhere in the world; all else in it is copied as it is.

pycolmap could do it, but refuses models with loose ends (tracks that contradict keypoints) which every trainer takes.
Rigs and frames are left out: they hold poses too, and trainers read those of the images.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np

from splatbatch.files import write_whole
from splatbatch.scene.colmap import binary, text
from splatbatch.scene.colmap.files import choose_format, opened
from splatbatch.scene.colmap.types import Floats, Image

_COUNT_BYTES, _XYZ_AT, _POINT_BYTES, _ELEMENT_BYTES = 8, 8, 51, 8  # of points3D.bin, see colmap/binary.py
_TRANSLATION_AT = 4 + 4 * 8  # in an image of images.bin: behind its id and its quaternion
_TRANSLATION = struct.Struct("<3d")


def write_moved(sparse: Path, by: Floats, target: Path) -> None:
    """Write a copy of the model of `sparse`, moved `by` [3], into the folder `target`, in the same format.

    Raises:
        ModelError: a file of the model is missing or broken.
        OSError: the copy cannot be written.
    """
    suffix = choose_format(sparse)
    images, points = sparse / f"images.{suffix}", sparse / f"points3D.{suffix}"
    if suffix == "bin":
        edited = {images.name: _binary_images(images, by), points.name: _binary_points(points, by)}
    else:
        edited = {images.name: _text_images(images, by), points.name: _text_points(points, by)}
    for name, content in edited.items():
        write_whole(target / name, lambda file, content=content: file.write(content))  # type: ignore[misc]
    cameras = sparse / f"cameras.{suffix}"
    if not (target / cameras.name).exists():
        shutil.copyfile(cameras, target / cameras.name)


def moved(image: Image, by: Floats) -> tuple[float, float, float]:
    """Return the translation of an image whose camera was moved: x_camera = R (x - by) + (t + R by) for points x."""
    x, y, z = np.array(image.translation) - image.rotation() @ by
    return (float(x), float(y), float(z))


def _binary_images(path: Path, by: Floats) -> bytes:
    with opened(path) as (file, size):
        data, start = bytearray(file.read()), _COUNT_BYTES
        for image, _, end in binary.walk_images(path, file, size):
            _TRANSLATION.pack_into(data, start + _TRANSLATION_AT, *moved(image, by))
            start = end
    return bytes(data)


def _binary_points(path: Path, by: Floats) -> bytes:
    points, data = binary.read_points(path), np.fromfile(path, np.uint8)
    sizes = _POINT_BYTES + _ELEMENT_BYTES * points.track_lengths
    starts = _COUNT_BYTES + np.concatenate([[0], np.cumsum(sizes)])[:-1]
    places = (starts[:, None] + np.arange(_XYZ_AT, _XYZ_AT + 24)).astype(np.int64)  # [P, 24] bytes
    data[places] = np.ascontiguousarray(points.xyz + by).astype("<f8").view(np.uint8)
    return data.tobytes()


def _text_images(path: Path, by: Floats) -> bytes:
    lines = path.read_bytes().splitlines(keepends=True)
    for image, _, number in text.walk_images(path):  # the number is that of its line of keypoints
        values = (image.id, *image.quat, *moved(image, by), image.camera_id, image.name)
        lines[number - 2] = (" ".join(map(str, values)) + "\n").encode()
    return b"".join(lines)


def _text_points(path: Path, by: Floats) -> bytes:
    lines = path.read_bytes().splitlines(keepends=True)
    for index, line in enumerate(lines):
        if line.strip() and not line.startswith(b"#"):
            number, x, y, z, rest = line.split(maxsplit=4)
            place = " ".join(repr(float(value) + float(step)) for value, step in zip((x, y, z), by, strict=True))
            lines[index] = b" ".join([number, place.encode(), rest])
    return b"".join(lines)
