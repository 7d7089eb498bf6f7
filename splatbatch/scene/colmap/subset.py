"""Part of a model as files: some photographs, some points; ids, keypoints and their order stay the source's.

It is written here and not by pycolmap, which holds every keypoint as an object: 5,000 photographs would take minutes
and more memory than most machines have. What is written is read back and checked by pycolmap in the tests.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from splatbatch.files import open_regular, write_whole
from splatbatch.scene.colmap.binary import ELEMENT, KEYPOINT, POINT
from splatbatch.scene.colmap.rigs import Rigs, frames_bytes, rigs_bytes
from splatbatch.scene.colmap.sightings import NONE, Mask, Sightings
from splatbatch.scene.colmap.types import CAMERA_MODELS, NO_POINT3D

_COUNT = struct.Struct("<Q")
_AT_ONCE = 1 << 16  # points
Pieces = Iterator[bytes]


@dataclass(frozen=True, eq=False)
class Subset:
    """Some photographs of a model, with the points that they see."""

    sightings: Sightings
    photos: Mask  # [I]
    points: Mask  # [P]
    rigs: Rigs | None = None
    """Of the whole model."""

    def write(self, folder: Path) -> str:
        """Write the files into a folder, and return their hash.

        Raises:
            OSError: one cannot be written.
        """
        digest = hashlib.sha256()
        for name, pieces in self.files():
            digest.update(name.encode() + b"\0")

            def fill(file: object, pieces: Pieces = pieces) -> None:
                for piece in pieces:
                    digest.update(piece)
                    file.write(piece)  # type: ignore[attr-defined]

            write_whole(folder / name, fill)
        return digest.hexdigest()

    def hash(self) -> str:
        """Return the hash of the files, which are not written."""
        digest = hashlib.sha256()
        for name, pieces in self.files():
            digest.update(name.encode() + b"\0")
            for piece in pieces:
                digest.update(piece)
        return digest.hexdigest()

    def files(self) -> Iterator[tuple[str, Pieces]]:
        """Yield the names of the files with what they hold, sorted by name."""
        rigs = self._rigs()
        yield "cameras.bin", self._cameras(rigs)
        if rigs:
            yield "frames.bin", iter([frames_bytes(rigs)])
        yield "images.bin", self._images()
        yield "points3D.bin", self._points()
        if rigs:
            yield "rigs.bin", iter([rigs_bytes(rigs)])

    def _rigs(self) -> Rigs | None:
        ids = {self.sightings.images[index].id for index in np.flatnonzero(self.photos)}
        return self.rigs.of(ids) if self.rigs else None

    def _cameras(self, rigs: Rigs | None) -> Pieces:
        used = {self.sightings.images[index].camera_id for index in np.flatnonzero(self.photos)}
        used |= rigs.camera_ids() if rigs else set()
        yield _COUNT.pack(len(used))
        for number in sorted(used):
            camera = self.sightings.cameras[number]
            sizes = (camera.id, CAMERA_MODELS[camera.model].id, camera.width, camera.height)
            yield struct.pack(f"<IiQQ{len(camera.params)}d", *sizes, *camera.params)

    def _images(self) -> Pieces:
        of, ids = self.sightings, self.sightings.points.ids
        yield _COUNT.pack(int(self.photos.sum()))
        order = sorted(np.flatnonzero(self.photos).tolist(), key=lambda index: of.images[index].id)
        for index in order:
            image, row = of.images[index], slice(of.first_keypoint[index], of.first_keypoint[index + 1])
            point = of.point_of_keypoint[row]
            keypoints = np.empty(len(point), KEYPOINT)
            keypoints["xy"] = of.xy[row]
            is_kept = (point != NONE) & self.points[point]
            keypoints["point3d"] = np.where(is_kept, ids[point], np.uint64(NO_POINT3D)) if len(ids) else NO_POINT3D
            head = struct.pack("<I7dI", image.id, *image.quat, *image.translation, image.camera_id)
            yield head + image.name.encode() + b"\0" + _COUNT.pack(len(point)) + keypoints.tobytes()

    def _points(self) -> Pieces:
        """Yield the points with what is left of their tracks, some at a time."""
        chosen = np.flatnonzero(self.points)
        yield _COUNT.pack(len(chosen))
        for first in range(0, len(chosen), _AT_ONCE):
            yield self._some_points(chosen[first : first + _AT_ONCE])

    def _some_points(self, chosen: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bytes:
        of, source = self.sightings, self.sightings.points
        lengths = np.diff(of.starts)[chosen]
        begins = np.cumsum(lengths) - lengths
        at = np.repeat(of.starts[chosen] - begins, lengths) + np.arange(int(lengths.sum()))
        is_kept = self.photos[of.photo[at]]
        at, rank = at[is_kept], np.repeat(np.arange(len(chosen)), lengths)[is_kept]
        heads = np.zeros(len(chosen), POINT)
        heads["id"], heads["xyz"] = source.ids[chosen], source.xyz[chosen]
        heads["rgb"], heads["error"] = source.rgb[chosen], source.errors[chosen]
        heads["length"] = np.bincount(rank, minlength=len(chosen))
        elements = np.empty(len(at), ELEMENT)
        elements["image"] = np.array([image.id for image in of.images], dtype=np.uint32)[of.photo[at]]
        elements["point2d"] = of.keypoint[at]
        return _together(heads, elements)


def _together(
    heads: np.ndarray[tuple[int], np.dtype[np.void]], elements: np.ndarray[tuple[int], np.dtype[np.void]]
) -> bytes:
    """Return records, each followed by its elements."""
    lengths = heads["length"].astype(np.int64)
    sizes = POINT.itemsize + ELEMENT.itemsize * lengths
    begins = np.cumsum(sizes) - sizes
    places = begins[:, None] + np.arange(POINT.itemsize)
    data, is_element = np.empty(int(sizes.sum()), np.uint8), np.ones(int(sizes.sum()), dtype=bool)
    is_element[places] = False
    data[places] = heads.view(np.uint8).reshape(-1, POINT.itemsize)
    data[is_element] = elements.view(np.uint8)
    return data.tobytes()


def hash_of_files(folder: Path, names: list[str]) -> str | None:
    """Return the hash of files as `Subset.write` does; None if one cannot be read."""
    digest = hashlib.sha256()
    try:
        for name in sorted(names):
            digest.update(name.encode() + b"\0")
            with open_regular(folder / name) as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
    except OSError:
        return None
    return digest.hexdigest()
