"""A copy of a COLMAP model that lies elsewhere in the world; all else in it is copied as it is.

pycolmap could do it, but refuses models with loose ends (tracks that contradict keypoints) which every trainer takes.
Rigs and frames are left out: they hold poses too, and trainers read those of the images.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from splatbatch.files import write_whole
from splatbatch.scene.colmap import binary, text
from splatbatch.scene.colmap.files import choose_format, opened
from splatbatch.scene.colmap.types import Floats, Image

_COUNT_BYTES, _XYZ_AT = 8, 8  # see colmap/binary.py
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
    for name, pieces in edited.items():
        write_whole(target / name, lambda file, pieces=pieces: file.writelines(pieces))  # type: ignore[misc]
    cameras = sparse / f"cameras.{suffix}"
    if not (target / cameras.name).exists():
        shutil.copyfile(cameras, target / cameras.name)


def moved(image: Image, by: Floats) -> tuple[float, float, float]:
    """Return the translation of an image whose camera was moved: x_camera = R (x - by) + (t + R by) for points x."""
    x, y, z = np.array(image.translation) - image.rotation() @ by
    return (float(x), float(y), float(z))


def _binary_images(path: Path, by: Floats) -> Iterator[bytes]:
    with opened(path) as (file, size):
        start = _COUNT_BYTES
        yield os.pread(file.fileno(), _COUNT_BYTES, 0)
        for image, _, end in binary.walk_images(path, file, size):
            record = bytearray(os.pread(file.fileno(), end - start, start))
            _TRANSLATION.pack_into(record, _TRANSLATION_AT, *moved(image, by))
            yield bytes(record)
            start = end


def _binary_points(path: Path, by: Floats) -> Iterator[bytes]:
    with opened(path) as (file, size):
        yield os.pread(file.fileno(), _COUNT_BYTES, 0)
        for data, starts in binary.walk_points(path, file, size):
            record = data[: starts[-1]].copy()
            places = starts[:-1, None] + np.arange(_XYZ_AT, _XYZ_AT + 24)  # [P, 24] bytes
            xyz = record[places].view("<f8") + by
            record[places] = xyz.astype("<f8").view(np.uint8)
            yield record.tobytes()


def _text_images(path: Path, by: Floats) -> Iterator[bytes]:
    for image, keypoints, _ in text.walk_images(path):
        values = (image.id, *image.quat, *moved(image, by), image.camera_id, image.name)
        yield (" ".join(map(str, values)) + "\n").encode() + keypoints


def _text_points(path: Path, by: Floats) -> Iterator[bytes]:
    for _, line in text.entries(path):
        number, x, y, z, rest = line.split(maxsplit=4)
        place = " ".join(repr(float(value) + float(step)) for value, step in zip((x, y, z), by, strict=True))
        yield b" ".join([number, place.encode(), rest]) + b"\n"
