"""Reads a COLMAP model quickly; a broken file raises a ModelError and never crashes the process.

This reader is for models that have not been checked yet. pycolmap reads a cut cameras.bin as if it were whole. Of a cut
points3D.bin it takes the garbage count for a size (bad_alloc), which can end the process. Projection and distortion are
computed by pycolmap (`scene.reprojection`), once a camera is known to be valid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from splatbatch.hashing import Stamp, stamp_of
from splatbatch.scene.colmap import binary, text
from splatbatch.scene.colmap.files import ModelError, choose_format, shown, unique_ids
from splatbatch.scene.colmap.types import (
    Camera,
    Image,
    Points,
    Points2D,
)


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Cameras by id, posed images and sparse points of one COLMAP model, read from `folder`."""

    folder: Path
    cameras: dict[int, Camera]
    images: tuple[Image, ...]
    """Images with their poses, sorted by name."""
    points: Points


def reader_of(sparse: Path, part: str) -> tuple[ModuleType, Path]:
    """Return the module (`binary` or `text`) that reads a part of a model, and the path of that part's file.

    Args:
        sparse: folder of the model; the .bin files are chosen if all three exist, else the .txt files.
        part: "cameras", "images" or "points3D".

    Raises:
        ModelError: the folder cannot be read, or holds no complete model.
    """
    suffix = choose_format(sparse)
    return binary if suffix == "bin" else text, sparse / f"{part}.{suffix}"


def read_reconstruction(sparse: Path, *, tracks: bool = False) -> Reconstruction:
    """Read the model in a folder: the .bin files if all three exist, else the .txt files.

    Values are not judged here (a NaN pose or an absurd focal length is for the audit): only whether the files are
    complete and fit each other. Without `tracks`, `points.tracks` is None.

    Raises:
        ModelError: a file is missing, unreadable, cut, too large or garbage; two cameras or images share an id; or an
            image names an unknown camera.
    """
    files, images_path = reader_of(sparse, "images")
    cameras, images = read_cameras(sparse), files.read_images(images_path)
    unique_ids(images_path, images, lambda image: image.id)
    for image in images:
        if image.camera_id not in cameras:
            lack = (
                f"image '{shown(image.name)}' has camera {image.camera_id}, which is not in cameras{images_path.suffix}"
            )
            raise ModelError(images_path, lack)
    points = files.read_points(sparse / f"points3D{images_path.suffix}", tracks=tracks)
    return Reconstruction(sparse, cameras, tuple(sorted(images, key=lambda image: image.name)), points)


def read_cameras(sparse: Path) -> dict[int, Camera]:
    """Return the cameras of a model by id.

    Raises:
        ModelError: cameras.bin (or .txt) is missing, unreadable, cut, too large or garbage, or two cameras share an id.
    """
    files, path = reader_of(sparse, "cameras")
    return unique_ids(path, files.read_cameras(path), lambda camera: camera.id)


def count_points(sparse: Path) -> int:
    """Return the number of points of the model in a folder; of a .bin only the stated number is read.

    Raises:
        ModelError: points3D.bin (or .txt) is missing, unreadable, cut or too large.
    """
    files, path = reader_of(sparse, "points3D")
    return files.count_points(path)


def count_observations(sparse: Path) -> int:
    """Return the number of observations of all points of the model in a folder; for a .bin by the size of the file.

    Raises:
        ModelError: points3D.bin (or .txt) is missing, unreadable, cut or too large.
        OSError: points3D.bin cannot be reached, as a link to a file that does not exist.
    """
    files, path = reader_of(sparse, "points3D")
    return files.count_observations(path)


def count_images(sparse: Path) -> int:
    """Return the number of images of the model in a folder; 0 if the model is missing or cannot be read."""
    try:
        files, path = reader_of(sparse, "images")
        return binary.count_images(path) if files is binary else len(text.read_images(path))
    except ModelError:
        return 0


def read_images(sparse: Path) -> list[Image]:
    """Return the images of the model in a folder, in the order of the file; points are not read.

    The images of the last four files are cached until the file changes.

    Raises:
        ModelError: images.bin (or .txt) is missing, unreadable, cut, too large or garbage.
    """
    files, path = reader_of(sparse, "images")
    return list(_read_images(files, path, stamp_of(path)))


@lru_cache(maxsize=4)
def _read_images(files: ModuleType, path: Path, stamp: Stamp) -> tuple[Image, ...]:
    """Return the images of a file with this stamp; cached for the hold-out, hash and settings of one patch."""
    return tuple(files.read_images(path))


def read_points2d(sparse: Path) -> dict[int, Points2D]:
    """Return all keypoints of every image of the model in a folder, with or without a 3D point, by image id.

    Raises:
        ModelError: images.bin (or .txt) is missing, unreadable, cut, too large or garbage.
    """
    return dict(walk_points2d(sparse))


def walk_points2d(sparse: Path, wanted: Collection[int] | None = None) -> Iterator[tuple[int, Points2D]]:
    """Return an iterator over image id and keypoints, in the order of the file.

    Args:
        sparse: folder of the model.
        wanted: ids of the images to yield; None: all.

    Raises:
        ModelError: images.bin (or .txt) is missing, unreadable, cut, too large or garbage.
    """
    files, path = reader_of(sparse, "images")
    return ((image.id, keypoints) for image, keypoints in files.walk_points2d(path, wanted))
