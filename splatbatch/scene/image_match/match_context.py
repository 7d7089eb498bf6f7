"""Photographs of a model compared in pairs, under hypotheses: as stored, turned, displaced, other files or cameras."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import islice

import numpy as np

from splatbatch.processes import num_cores
from splatbatch.scene.colmap.types import Camera, Floats, Image, finite
from splatbatch.scene.image_match.displacement_field import (
    DisplacementEquations,
    DisplacementField,
    equations,
    shrunk,
    solved,
)
from splatbatch.scene.image_match.ncc_patches import MatchView, Places, focal_px, image_match
from splatbatch.scene.image_match.pairs import LEAST_POINTS, ImagePair
from splatbatch.scene.photos.headers import Size
from splatbatch.scene.photos.pixels import Greys, decode_grey
from splatbatch.scene.reprojection import project

UNLIKE, ALIKE = 0.3, 0.5
"""Mean correlation below which two photographs show different things, and from which on they show the same.

Correlated are small squares about the points that both see. Intact: 0.76 to 0.98; other, turned or mirrored
photographs: -0.1 to 0.2.
"""
LEAST_SIDE = 600
"""Photographs are compared reduced, by a whole number that leaves no side shorter than this, in pixels.

It is the largest such number, for JPEG maybe a smaller one. Smaller photographs stay as they are.
"""
_KEPT = 256  # pictures in memory
_GROUPS_LEFT_OUT = 8
_LEAST_PICTURE = 48  # px: smaller ones show no squares


Decoder = Callable[[str], Greys | None]
"""Returns the grey picture [H, W] of a photograph by its path; None: it cannot be decoded."""


def grey_photographs(least_side: int = LEAST_SIDE) -> Decoder:
    """Return a decoder that reduces photographs in size; the 256 used last stay in memory.

    Args:
        least_side: shortest side in pixels to which photographs are reduced; see `LEAST_SIDE`.
    """
    return lru_cache(_KEPT)(partial(decode_grey, least_side=least_side))


@dataclass(frozen=True, eq=False)
class Relabeling:
    """A hypothesis of how photographs belong to their images: turned, of other files or cameras, or displaced.

    A part that is None is as stored.
    """

    words: str
    """Description of the photographs under the hypothesis, for findings: "turned by 180 degrees".

    Empty: no finding quotes it.
    """
    remedy: str = ""
    """What to do if the hypothesis holds; empty: findings do not take their remedy from here."""
    place: Callable[[Size, Size], Places] | None = None
    """Returns the map from places in the camera's image to places in the photograph, given both sizes in pixels."""
    camera: Callable[[Camera], Camera | None] | None = None
    """Returns the camera to use instead of an image's own; it returns None if the hypothesis does not apply to it.

    Its errors are passed on by the methods of `MatchContext` that take hypotheses.
    """
    path: Mapping[int, str | None] | None = None
    """Files to use instead of the images' own, by index; an image that is not in it, or has None, has no file."""
    displacement: DisplacementField | None = None


AS_IS = Relabeling("as they are")


@dataclass(frozen=True, eq=False)
class MatchContext:
    """Images of a model with the files of their photographs, and the pairs of images that are compared.

    A "row" is the index of an image in `images`.
    """

    images: Sequence[Image]
    cameras: Mapping[int, Camera]
    paths: Mapping[int, str]
    """Path of the photograph of each image, by row; images without a usable photograph are left out."""
    sizes: Mapping[int, Size]
    """Width and height of each of these photographs in pixels, by row."""
    pairs: Sequence[ImagePair]
    pictures: Decoder
    said: dict[tuple[int, int], DisplacementEquations | None] = field(default_factory=dict)
    """Cache of the displacement equations of pairs as stored, by both rows; None: a picture is unusable or small."""

    @classmethod
    def of_files(
        cls,
        images: Sequence[Image],
        cameras: Mapping[int, Camera],
        files: Mapping[str, tuple[str, Size]],
        pairs: Sequence[ImagePair],
        pictures: Decoder,
    ) -> MatchContext:
        """Return the context of a model's pairs.

        Args:
            images: images of the model.
            cameras: cameras of the model, by id.
            files: path and size (px) of each usable photograph, by image name; other images are not compared.
            pairs: pairs of images to compare.
            pictures: decodes photographs, and keeps some.
        """
        known = {row: files[image.name] for row, image in enumerate(images) if image.name in files}
        paths, sizes = {row: path for row, (path, _) in known.items()}, {row: size for row, (_, size) in known.items()}
        return cls(images, cameras, paths, sizes, pairs, pictures)

    @property
    def rows(self) -> list[int]:
        """Rows of the images that are in a pair, in ascending order."""
        return sorted({row for pair in self.pairs for row in (pair.one, pair.other)})

    def decode(self) -> None:
        """Decode the photographs that are in a pair on all cores, the first 256, so that `view` finds them decoded.

        Files that cannot be decoded are no error.
        """
        paths = dict.fromkeys(self.paths[row] for row in self.rows if row in self.paths)
        with ThreadPoolExecutor(num_cores(), thread_name_prefix="decoding") as pool:
            deque(pool.map(self.pictures, islice(paths, _KEPT)), maxlen=0)

    def without(self, rows: Collection[int]) -> MatchContext:
        """Return a copy without the pairs that contain any of the given images."""
        return replace(self, pairs=[pair for pair in self.pairs if pair.one not in rows and pair.other not in rows])

    def touching(self, rows: Collection[int]) -> MatchContext:
        """Return a copy with the pairs that contain any of the given images."""
        return replace(self, pairs=[pair for pair in self.pairs if pair.one in rows or pair.other in rows])

    def of(self, rows: Collection[int]) -> MatchContext:
        """Return a copy with the pairs both of whose images are given; if there are none, like `touching`."""
        both = [pair for pair in self.pairs if pair.one in rows and pair.other in rows]
        return replace(self, pairs=both) if both else self.touching(rows)

    def view(self, row: int, reading: Relabeling = AS_IS) -> MatchView | None:
        """Return the picture of an image with camera and pose under a hypothesis, `reading`.

        None where there is no file, the file cannot be decoded, or the hypothesis does not apply to the camera. Errors
        of the functions `camera` and `place` of the hypothesis are passed on.
        """
        image, path = self.images[row], (self.paths if reading.path is None else reading.path).get(row)
        camera = self.cameras[image.camera_id]
        meant = reading.camera(camera) if reading.camera else camera
        picture = self.pictures(path) if path and meant else None
        if picture is None or meant is None:
            return None
        place = reading.place(camera.size, self.sizes[row]) if reading.place else None
        view = MatchView(picture, meant, image.rotation(), np.array(image.translation), place)
        return replace(view, place=reading.displacement.place(view)) if reading.displacement else view

    def value(self, pair: ImagePair, readings: Mapping[int, Relabeling]) -> float:
        """Return the mean correlation of a pair, -1 to 1; NaN: a picture is unusable, or too few squares are seen.

        Args:
            pair: the pair.
            readings: hypotheses by row; an image without a hypothesis counts as stored.
        """
        one, other = (self.view(row, readings.get(row, AS_IS)) for row in (pair.one, pair.other))
        if one is None or other is None:
            return float("nan")
        found = finite(image_match(pair, one, other))
        return float(found.mean()) if len(found) >= LEAST_POINTS else float("nan")

    def values(self, readings: Mapping[int, Relabeling] = {}, only: Collection[int] | None = None) -> dict[int, float]:
        """Return for each image, by row, the highest correlation among its pairs; NaN where no pair can be compared.

        Args:
            readings: hypotheses by row; images without a hypothesis count as stored.
            only: rows to return; None: all images that are compared.
        """
        rows = self.rows if only is None else only
        found = dict.fromkeys(rows, float("nan"))
        for pair in self.touching(rows).pairs:
            value = self.value(pair, readings)
            for row in {pair.one, pair.other} & found.keys():
                found[row] = float(np.fmax(found[row], value))
        return found

    def mean(self, readings: Mapping[int, Relabeling] = {}) -> float:
        """Return the mean correlation of all pairs; NaN where no pair can be compared.

        Args:
            readings: hypotheses by row; images without a hypothesis count as stored.
        """
        known = [value for pair in self.pairs if np.isfinite(value := self.value(pair, readings))]
        return float(np.mean(known)) if known else float("nan")

    def displacement(self, rows: Collection[int], levels: Sequence[int] = (1,)) -> DisplacementField | None:
        """Return the displacement common to the photographs of the given images; None: too few squares are found again.

        Args:
            rows: rows of the images; other photographs count as not displaced.
            levels: factors by which pictures are reduced, one round each, coarse to fine. Coarse rounds find zooms of
                many percent; fine rounds measure them.
        """
        found: DisplacementField | None = None
        for times in levels:
            reading = Relabeling("", displacement=found) if found else AS_IS
            both = list[tuple[Floats, Floats]]()
            for pair in self.touching(rows).pairs:
                sides = [row in rows for row in (pair.one, pair.other)]
                said = self._said(pair, [reading if is_meant else AS_IS for is_meant in sides], times)
                if said is not None:
                    both.append((said.other * sides[1] - said.one * sides[0], said.steps))
            if more := solved(both, is_common=len(rows) > 1):
                found = found + more if found else more
        return found

    def places(self, rows: Collection[int]) -> Floats:
        """Return where the model puts the points that the given images are compared at, [N, 2].

        In focal lengths from the middle of the photograph; points beyond an edge count as on it.
        """
        found = [np.zeros((0, 2))]
        for pair in self.touching(rows).pairs:
            for image in (self.images[row] for row in (pair.one, pair.other) if row in rows):
                camera = self.cameras[image.camera_id]
                pixels = finite(project(camera, pair.xyz @ image.rotation().T + image.translation))
                half = np.array(camera.size) / 2
                found.append(np.clip(pixels - half, -half, half) / focal_px(camera))
        return np.concatenate(found)

    def displacement_error(self, rows: Collection[int]) -> float:
        """Return the standard error of `displacement`, in focal lengths, by leaving out photographs.

        Up to eight groups of photographs are left out in turn: of `rows`, or of the other images for a single row.
        Infinite where the displacement cannot be computed without one of the groups, or there are fewer than two.
        """
        ours = sorted(rows if len(rows) > 1 else set(self.rows) - set(rows))
        groups = [set(ours[at::_GROUPS_LEFT_OUT]) for at in range(min(len(ours), _GROUPS_LEFT_OUT))]
        found = [self.without(group).displacement(set(rows) - group) for group in groups]
        known = np.array([one.numbers for one in found if one])
        if len(known) < max(2, len(found)):
            return float("inf")
        places = self.places(rows)
        off = [DisplacementField(*numbers).size(places) for numbers in known - known.mean(axis=0)]
        return float(np.sqrt((len(off) - 1) * np.mean(np.square(off))))

    def _said(self, pair: ImagePair, read_as: Sequence[Relabeling], times: int) -> DisplacementEquations | None:
        """Return the displacement equations of a pair in pictures reduced by `times`; None: a picture is unusable."""
        is_plain = times == 1 and all(reading is AS_IS for reading in read_as)
        if is_plain and (pair.one, pair.other) in self.said:
            return self.said[pair.one, pair.other]
        one, other = (self.view(row, reading) for row, reading in zip((pair.one, pair.other), read_as, strict=True))
        is_large = one and other and min(*one.picture.shape, *other.picture.shape) // times >= _LEAST_PICTURE
        found = equations(pair, shrunk(one, times), shrunk(other, times)) if one and other and is_large else None
        if is_plain:
            self.said[pair.one, pair.other] = found
        return found
