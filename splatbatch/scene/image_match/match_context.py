"""Photographs compared under a reading: as they are, turned, of another folder, with another camera, displaced."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from splatbatch.scene.colmap.types import Camera, Image, finite
from splatbatch.scene.image_match.displacement_field import (
    DisplacementEquations,
    DisplacementField,
    equations,
    shrunk,
    solved,
)
from splatbatch.scene.image_match.ncc_patches import MatchView, Places, image_match
from splatbatch.scene.image_match.pairs import LEAST_POINTS, ImagePair
from splatbatch.scene.photos.pixels import Greys, decode_grey
from splatbatch.scene.photos.sizes import Size

UNLIKE, ALIKE = 0.3, 0.5
"""Mean correlation of the squares of a pair: below the first one of the two shows something else, from the second on
both show the same. Intact: 0.76 to 0.98; other photographs, turned or mirrored ones: -0.1 to 0.2."""
LEAST_SIDE = 600
"""Pictures are made smaller by a whole number as long as no side becomes shorter, in pixels."""
_KEPT = 256  # pictures in memory
_LEAST_PICTURE = 48  # px: smaller ones show no squares


class GreyPhotographs:
    """Photographs in grey, smaller where that is quicker; decoded when asked for, the latest are kept."""

    def __init__(self, least_side: int = LEAST_SIDE) -> None:
        self._least_side = least_side
        self._kept: OrderedDict[str, Greys | None] = OrderedDict()

    def of(self, path: str) -> Greys | None:
        """Return a picture; None where it cannot be decoded."""
        if path not in self._kept:
            self._kept[path] = decode_grey(path, self._least_side)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(path)
        return self._kept[path]

    def read(self, paths: Iterable[str]) -> None:
        """Decode some at once, by all cores."""
        new = [path for path in dict.fromkeys(paths) if path not in self._kept][:_KEPT]
        with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="decoding") as pool:
            self._kept.update(zip(new, pool.map(lambda path: decode_grey(path, self._least_side), new), strict=True))


@dataclass(frozen=True, eq=False)
class Relabeling:
    """How photographs may be meant: a hypothesis."""

    words: str
    """What they are, in words."""
    remedy: str = ""
    place: Callable[[Size, Size], Places] | None = None
    """From places in the camera's image to those in the photograph, by the sizes of both."""
    camera: Callable[[Camera], Camera | None] | None = None
    """Another camera in place of an image's."""
    path: Mapping[int, str | None] | None = None
    """Other files in place of the images' own, by row."""
    displacement: DisplacementField | None = None


AS_IS = Relabeling("as they are")


@dataclass(frozen=True, eq=False)
class MatchContext:
    """Images of a model, the files of their photographs, and which pairs of them are compared."""

    images: Sequence[Image]
    cameras: Mapping[int, Camera]
    paths: Mapping[int, str]
    """By row; images without a photograph that can be used have none."""
    sizes: Mapping[int, Size]
    """Of these photographs."""
    pairs: Sequence[ImagePair]
    pictures: GreyPhotographs
    said: dict[tuple[int, int], DisplacementEquations | None] = field(default_factory=dict)
    """What the shifts of pairs say of photographs as they are."""

    @property
    def rows(self) -> list[int]:
        """The images that are compared, in order."""
        return sorted({row for pair in self.pairs for row in (pair.one, pair.other)})

    def without(self, rows: Collection[int]) -> MatchContext:
        """Return the pairs that have none of some images."""
        return replace(self, pairs=[pair for pair in self.pairs if pair.one not in rows and pair.other not in rows])

    def of(self, rows: Collection[int]) -> MatchContext:
        """Return the pairs of two of some images; where there are none, those that have one of them."""
        both = [pair for pair in self.pairs if pair.one in rows and pair.other in rows]
        return replace(self, pairs=both or [pair for pair in self.pairs if pair.one in rows or pair.other in rows])

    def view(self, row: int, reading: Relabeling = AS_IS) -> MatchView | None:
        """Return the picture of an image with its camera under a reading; None where there is none."""
        image, path = self.images[row], (self.paths if reading.path is None else reading.path).get(row)
        camera = self.cameras[image.camera_id]
        meant = reading.camera(camera) if reading.camera else camera
        picture = self.pictures.of(path) if path and meant else None
        if picture is None or meant is None:
            return None
        place = reading.place(camera.size, self.sizes[row]) if reading.place else None
        view = MatchView(picture, meant, image.rotation(), np.array(image.translation), place)
        return replace(view, place=reading.displacement.place(view)) if reading.displacement else view

    def value(self, pair: ImagePair, one: Relabeling, other: Relabeling) -> float:
        """Return how alike two photographs are; NaN where too little of them can be compared."""
        a, b = self.view(pair.one, one), self.view(pair.other, other)
        if a is None or b is None:
            return float("nan")
        found = image_match(pair, a, b)
        found = finite(found)
        return float(found.mean()) if len(found) >= LEAST_POINTS else float("nan")

    def values(self, readings: Mapping[int, Relabeling] = {}, only: Collection[int] | None = None) -> dict[int, float]:
        """Return for each image its likeness to the photograph that it is most like; NaN where that is not known.

        Args:
            readings: of images that are read in another way, by row.
            only: the images that are asked for.
        """
        found: dict[int, float] = {row: float("nan") for row in (self.rows if only is None else only)}
        for pair in self.pairs:
            if only is None or pair.one in only or pair.other in only:
                value = self.value(pair, *(readings.get(row, AS_IS) for row in (pair.one, pair.other)))
                for row in (pair.one, pair.other):
                    if row in found:
                        found[row] = float(np.fmax(found[row], value))
        return found

    def mean(self, readings: Mapping[int, Relabeling] = {}) -> float:
        """Return the likeness of all pairs; NaN where nothing can be compared."""
        found = [self.value(pair, *(readings.get(r, AS_IS) for r in (pair.one, pair.other))) for pair in self.pairs]
        known = [value for value in found if np.isfinite(value)]
        return float(np.mean(known)) if known else float("nan")

    def displacement(
        self, rows: Collection[int], base: Relabeling = AS_IS, levels: Sequence[int] = (1,)
    ) -> DisplacementField | None:
        """Return the field that the photographs of some images have in common, the others having none.

        Args:
            rows: the images; pairs of two of them count alone, if there are any.
            base: how these are read.
            levels: how much smaller pictures are made, from coarse to fine: zooms of many percent are found so.
        """
        pairs = self.of(rows).pairs
        found: DisplacementField | None = None
        for times in levels:
            reading = replace(base, displacement=found) if found else base
            more = self._more(pairs, rows, reading, times)
            if more is not None:
                found = found + more if found else more
        return found

    def _more(
        self, pairs: Sequence[ImagePair], rows: Collection[int], reading: Relabeling, times: int
    ) -> DisplacementField | None:
        both = []
        for pair in pairs:
            sides = [row in rows for row in (pair.one, pair.other)]
            said = self._said(pair, [reading if is_meant else AS_IS for is_meant in sides], times)
            if said is not None:
                both.append((said.other * sides[1] - said.one * sides[0], said.steps))
        return solved(both, is_common=len(rows) > 1)

    def _said(self, pair: ImagePair, read_as: Sequence[Relabeling], times: int) -> DisplacementEquations | None:
        """Return what the shifts of a pair say, in pictures that are made smaller."""
        is_plain = times == 1 and all(reading is AS_IS for reading in read_as)
        if is_plain and (pair.one, pair.other) in self.said:
            return self.said[pair.one, pair.other]
        one, other = (self.view(row, reading) for row, reading in zip((pair.one, pair.other), read_as, strict=True))
        is_large = one and other and min(*one.picture.shape, *other.picture.shape) // times >= _LEAST_PICTURE
        found = equations(pair, shrunk(one, times), shrunk(other, times)) if one and other and is_large else None
        if is_plain:
            self.said[pair.one, pair.other] = found
        return found
