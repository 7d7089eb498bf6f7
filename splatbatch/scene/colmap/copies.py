"""Writes changed copies of a COLMAP model: a part of the model, the model with other cameras, or the model moved.

`Subset` writes a part: some photographs and points; ids, keypoints and the order within images stay.
`write_changed` writes other cameras: keypoints follow, and unchanged files are copied byte for byte. `write_shifted`
moves poses and points; rigs and frames are left out, because they hold poses too, and trainers read those of images.

pycolmap is not used: each keypoint is an object there, so that 5,000 photographs would take minutes and more memory
than most machines have. It also refuses models with loose ends (tracks that contradict keypoints), which trainers
accept, and loses rigs that it does not know. Tests read the files back and check them with pycolmap.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from splatbatch.config import Offset
from splatbatch.files import open_regular, write_whole
from splatbatch.scene.colmap import binary, text
from splatbatch.scene.colmap.binary import ELEMENT, KEYPOINT, POINT, Records
from splatbatch.scene.colmap.files import choose_format
from splatbatch.scene.colmap.indexed_model import IndexedModel
from splatbatch.scene.colmap.rigs import Rigs, frames_bytes, rigs_bytes
from splatbatch.scene.colmap.types import (
    CAMERA_MODELS,
    NO_POINT3D,
    NONE,
    Camera,
    Floats,
    Image,
    Mask,
    Points2D,
    elements_of,
    triple,
)

_COUNT = struct.Struct("<Q")
_AT_ONCE = 1 << 16  # points
Pieces = Iterator[bytes]
_UNCHANGED = ("points3D", "rigs", "frames")  # none of them holds a pixel coordinate


@dataclass(frozen=True, eq=False)
class Subset:
    """A part of a model, to be written as a model of its own: some photographs and some of the points.

    `photos` and `points` choose images [I] and points [P] of `observations`.
    """

    observations: IndexedModel
    photos: Mask  # [I]
    points: Mask  # [P]
    rigs: Rigs | None = None
    """Rigs of the whole model; None: the model has none that can be used, and no rig files are written."""

    def write(self, folder: Path) -> str:
        """Write the .bin files into an existing folder, and return the SHA-256 of their names and contents, in hex.

        Each file is written whole; files of the same names are replaced.

        Raises:
            OSError: a file cannot be written.
            KeyError: a camera has a model that COLMAP does not know, or a rig has a camera that the model lacks.
            struct.error: a number of a text model does not fit into the binary format, as a negative width.
        """
        return _hash_of(self.files(), folder)

    def hash(self) -> str:
        """Return the SHA-256 that `write` would return, without writing.

        Raises:
            KeyError: a camera has a model that COLMAP does not know, or a rig has a camera that the model lacks.
            struct.error: a number of a text model does not fit into the binary format, as a negative width.
        """
        return _hash_of(self.files())

    def files(self) -> Iterator[tuple[str, Pieces]]:
        """Yield the names of the files, sorted, each with its content in pieces.

        Without rigs there are no frames.bin and rigs.bin.

        Raises:
            KeyError: a camera has a model that COLMAP does not know, or a rig has a camera that the model lacks.
            struct.error: a number of a text model does not fit into the binary format, as a negative width.
        """
        chosen = [self.observations.images[index] for index in np.flatnonzero(self.photos)]
        rigs = self.rigs.of({image.id for image in chosen}) if self.rigs else None
        used = {image.camera_id for image in chosen} | (rigs.camera_ids() if rigs else set())
        yield "cameras.bin", iter([_binary_cameras([self.observations.cameras[number] for number in sorted(used)])])
        if rigs:
            yield "frames.bin", iter([frames_bytes(rigs)])
        yield "images.bin", self._images()
        yield "points3D.bin", self._points()
        if rigs:
            yield "rigs.bin", iter([rigs_bytes(rigs)])

    def _images(self) -> Pieces:
        of, ids = self.observations, self.observations.points.ids
        yield _COUNT.pack(int(self.photos.sum()))
        order = sorted(np.flatnonzero(self.photos).tolist(), key=lambda index: of.images[index].id)
        for index in order:
            image, row = of.images[index], slice(of.first_keypoint[index], of.first_keypoint[index + 1])
            point = of.point_of_keypoint[row]
            is_kept = (point != NONE) & self.points[point]
            yield _binary_image(image, Points2D(of.xy[row], np.where(is_kept, ids[point], np.uint64(NO_POINT3D))))

    def _points(self) -> Pieces:
        """Yield the points with the rest of their tracks, some at a time."""
        of, source, every = self.observations, self.observations.points, np.flatnonzero(self.points)
        image_ids = np.array([image.id for image in of.images], dtype=np.uint32)
        yield _COUNT.pack(len(every))
        for first in range(0, len(every), _AT_ONCE):
            chosen = every[first : first + _AT_ONCE]
            at = elements_of(of.starts, chosen)
            is_kept = self.photos[of.photo[at]]
            rank = np.repeat(np.arange(len(chosen)), np.diff(of.starts)[chosen])[is_kept]
            heads, elements = np.zeros(len(chosen), POINT), np.empty(int(is_kept.sum()), ELEMENT)
            heads["id"], heads["xyz"] = source.ids[chosen], source.xyz[chosen]
            heads["rgb"], heads["error"] = source.rgb[chosen], source.errors[chosen]
            heads["length"] = np.bincount(rank, minlength=len(chosen))
            elements["image"] = image_ids[of.photo[at[is_kept]]]
            elements["point2d"] = of.keypoint[at[is_kept]]
            yield _together(heads, elements)


def _together(heads: Records, elements: Records) -> bytes:
    """Return the records of points, each followed by the elements of its track."""
    lengths = heads["length"].astype(np.int64)
    sizes = POINT.itemsize + ELEMENT.itemsize * lengths
    begins = np.cumsum(sizes) - sizes
    places = begins[:, None] + np.arange(POINT.itemsize)
    data, is_element = np.empty(int(sizes.sum()), np.uint8), np.ones(int(sizes.sum()), dtype=bool)
    is_element[places] = False
    data[places] = heads.view(np.uint8).reshape(-1, POINT.itemsize)
    data[is_element] = elements.view(np.uint8)
    return data.tobytes()


def hash_of_files(folder: Path, names: list[str]) -> str:
    """Return the SHA-256 of files as `Subset.write` computes it, in hex.

    Args:
        folder: folder of the files.
        names: names of the files in the folder, in any order.

    Raises:
        OSError: a file cannot be read.
    """
    return _hash_of((name, _pieces(folder / name)) for name in sorted(names))


def _pieces(path: Path) -> Pieces:
    with open_regular(path) as file:
        while piece := file.read(1 << 20):
            yield piece


def _hash_of(files: Iterable[tuple[str, Pieces]], folder: Path | None = None) -> str:
    """Return the hash of the names and contents of files; with a folder, they are written into it as they are read."""
    digest = hashlib.sha256()

    def hashed(pieces: Pieces) -> Pieces:
        for piece in pieces:
            digest.update(piece)
            yield piece

    for name, pieces in files:
        digest.update(name.encode() + b"\0")
        if folder:
            _write(folder / name, hashed(pieces))
        else:
            deque(hashed(pieces), maxlen=0)
    return digest.hexdigest()


def _write(path: Path, pieces: Pieces) -> None:
    write_whole(path, lambda file: file.writelines(pieces))


@dataclass(frozen=True)
class CameraFix:
    """A camera before and after a fix; a pixel xy of the old camera lies at xy * scale + shift in the new one."""

    before: Camera
    after: Camera
    scale: tuple[float, float] = (1.0, 1.0)
    shift: tuple[float, float] = (0.0, 0.0)
    has_keypoints: bool = True
    """Whether the keypoints are moved with the pixels; False where the keypoints fit the photographs already."""

    @property
    def moves_pixels(self) -> bool:
        """Whether the fix changes the camera: its id, model, size or parameters; if not, there is nothing to write.

        True also where width and height alone are corrected, so that no pixel moves.
        """
        return self.before != self.after

    def in_words(self) -> str:
        """Return one line for people: the id, model and size of both cameras, and the change."""
        old, new = (f"{each.model} {each.width}x{each.height}" for each in (self.before, self.after))
        parts = []
        if self.before.params == self.after.params:
            parts.append("width and height alone: the other parameters and keypoints fit the photographs already")
        if self.scale != (1.0, 1.0):
            parts.append("scaled by {:.6g} in x, {:.6g} in y".format(*self.scale))
        if self.shift != (0.0, 0.0):
            shift = "principal point shifted by {:+.6g} px in x, {:+.6g} px in y".format(*self.shift)
            parts.append(f"{shift} for a crop about the centre")
        if not self.has_keypoints and self.before.params != self.after.params:
            parts.append("keypoints left as they are")
        own = "" if self.after.id == self.before.id else f" (now camera {self.after.id})"
        return f"camera {self.before.id}{own}: {old} → {new}, {' and '.join(parts)}"


def write_changed(sparse: Path, cameras: Mapping[int, Camera], changes: Mapping[int, CameraFix], out: Path) -> None:
    """Write a copy of a model with changed cameras, in the same format (.bin or .txt).

    Where a change gives images a camera with a new id, rigs and frames are left out: they name the old camera, and
    COLMAP makes trivial ones.

    Args:
        sparse: folder of the model.
        cameras: all cameras of the model, by id.
        changes: the fix of an image's camera, by image id; images that are not in it stay as they are.
        out: folder of the copy, which must not exist; its parents are made.

    Raises:
        ModelError: a file of the model is missing or broken.
        OSError: `out` exists or cannot be written.
        KeyError: a camera has a model that COLMAP does not know, and the format is .bin.
    """
    suffix = choose_format(sparse)
    out.mkdir(parents=True)
    replaced = {change.after.id: change.after for change in changes.values()}
    changed = [replaced.pop(number, camera) for number, camera in cameras.items()] + list(replaced.values())
    if suffix == "bin":
        content = _binary_cameras(changed)
    else:
        rows = [(one.id, one.model, *one.size, *map(repr, one.params)) for one in changed]
        head = (
            "# Camera list with one line of data per camera:\n#   CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]\n"
            f"# Number of cameras: {len(rows)}\n"
        )
        content = (head + "".join(f"{' '.join(map(str, row))}\n" for row in rows)).encode()
    _write(out / f"cameras.{suffix}", iter([content]))
    images = sparse / f"images.{suffix}"
    _write(out / images.name, _edited(images, partial(_changed, changes)))
    is_split = any(change.after.id != change.before.id for change in changes.values())
    for part in _UNCHANGED[:1] if is_split else _UNCHANGED:
        path = sparse / f"{part}.{suffix}"
        if path.is_file():
            shutil.copyfile(path, out / path.name)


def _binary_cameras(cameras: list[Camera]) -> bytes:
    parts = [_COUNT.pack(len(cameras))]
    for one in cameras:
        numbers = one.id, CAMERA_MODELS[one.model].id, *one.size, *one.params
        parts.append(struct.pack(f"<IiQQ{len(one.params)}d", *numbers))
    return b"".join(parts)


def _edited(images: Path, edit: Callable[[Image, Points2D], tuple[Image, Points2D]]) -> Pieces:
    """Yield a file of images, .bin or .txt, with each image changed."""
    files, spelt = (binary, _binary_image) if images.suffix == ".bin" else (text, _text_image)
    if files is binary:
        yield _COUNT.pack(binary.count_images(images))
    for image, keypoints in files.walk_points2d(images):
        yield spelt(*edit(image, keypoints))


def _binary_image(image: Image, keypoints: Points2D) -> bytes:
    record = np.empty(len(keypoints.xy), KEYPOINT)
    record["xy"], record["point3d"] = keypoints.xy, keypoints.point3d_ids
    head = struct.pack("<I7dI", image.id, *image.quat, *image.translation, image.camera_id)
    return head + image.name.encode() + b"\0" + _COUNT.pack(len(record)) + record.tobytes()


def _text_image(image: Image, keypoints: Points2D) -> bytes:
    head = (image.id, *image.quat, *image.translation, image.camera_id, image.name)
    rows = zip(keypoints.xy.tolist(), keypoints.point3d_ids.tolist(), strict=True)
    points = (f"{x!r} {y!r} {-1 if number == NO_POINT3D else number}" for (x, y), number in rows)
    return f"{' '.join(map(str, head))}\n{' '.join(points)}\n".encode()


def _changed(changes: Mapping[int, CameraFix], image: Image, keypoints: Points2D) -> tuple[Image, Points2D]:
    change = changes.get(image.id)
    if change is None:
        return image, keypoints
    xy = keypoints.xy * change.scale + change.shift if change.has_keypoints else keypoints.xy
    return replace(image, camera_id=change.after.id), replace(keypoints, xy=xy)


def write_shifted(sparse: Path, offset: Offset, target: Path) -> None:
    """Write a copy of a model with an offset subtracted from points and cameras, in the same format (.bin or .txt).

    Rigs and frames are left out.

    Args:
        sparse: folder of the model.
        offset: offset in units of the model.
        target: folder of the copy, which must exist; it may be `sparse` itself, and files there are replaced.

    Raises:
        ModelError: a file of the model is missing or broken.
        ValueError: a line of points3D.txt is no point.
        OSError: the copy cannot be written.
    """
    suffix, by = choose_format(sparse), -np.array(offset)
    images, points = sparse / f"images.{suffix}", sparse / f"points3D.{suffix}"
    _write(target / images.name, _edited(images, partial(_placed, by)))
    _write(target / points.name, (_binary_points if suffix == "bin" else _text_points)(points, by))
    _write(target / f"cameras.{suffix}", _pieces(sparse / f"cameras.{suffix}"))


def _placed(by: Floats, image: Image, keypoints: Points2D) -> tuple[Image, Points2D]:
    return replace(image, translation=moved(image, by)), keypoints


def moved(image: Image, by: Floats) -> tuple[float, float, float]:
    """Return the translation of an image in a world moved by `by` [3], in units of the model: t - R by.

    NaN if the quaternion is 0 or not finite.
    """
    return triple(np.array(image.translation) - image.rotation() @ by)


def _binary_points(path: Path, by: Floats) -> Pieces:
    yield _COUNT.pack(binary.count_points(path))
    for heads, elements in binary.walk_points(path):
        heads["xyz"] += by
        yield _together(heads, elements)


def _text_points(path: Path, by: Floats) -> Iterator[bytes]:
    for _, line in text.entries(path):
        number, x, y, z, rest = line.split(maxsplit=4)
        place = " ".join(repr(float(value) + float(step)) for value, step in zip((x, y, z), by, strict=True))
        yield b" ".join([number, place.encode(), rest]) + b"\n"
