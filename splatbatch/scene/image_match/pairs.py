"""Chooses which images of a model are compared, and at which points.

Chosen are neighbours that see the same points, at different places of the photograph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from splatbatch.groups import grouped
from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.colmap.types import Floats, Image, Ints, elements_of, finite, places_in, rotations_of
from splatbatch.scene.reprojection import project

GROUPS = 8
"""Number of groups of three neighbours that are compared by default; see `pairs_of`.

`verify-dims --deep` compares all photographs.
"""
POINTS = 48
"""Most points of a pair at which the two photographs are compared."""
LEAST_POINTS = 16
"""Fewest points that two images must share to be compared."""
_ASKED, _SHORTLIST = 400, 12  # points that partners are counted at; candidates whose displacement is computed
_FAR = 0.15  # of the side: points displaced by more make a pair no better
_STILL = 0.05  # what a pair without any displacement is worth


@dataclass(frozen=True, eq=False)
class ImagePair:
    """Two images of a model, `one` and `other`, by index in the model's images, with n points that both see."""

    one: int
    other: int
    xyz: Floats  # [n, 3]
    greys: Floats  # [n], 0 to 255, as the model has them


def pairs_of(model: Reconstruction, groups: int | None, about: Sequence[int] | None = None) -> list[ImagePair]:
    """Return pairs of neighbours to compare, in groups of three spread over all cameras, sorted by image index.

    Neighbours see many common points, show them at different places of the photograph, and lie in two directions. If
    not, photographs that are all turned or exchanged alike would still match where cameras stand still or move along
    one line. Empty without tracks; pairs that share fewer than `LEAST_POINTS` points are left out.

    Args:
        model: a model that was read with its tracks.
        groups: number of groups; up to as many more are formed about images of cameras without any. 0: no pairs. None:
            every image of `about` is paired with up to two neighbours, which are not paired with each other.
        about: indices of the images that groups are formed about; None: all images.
    """
    tracks = model.points.tracks
    if tracks is None or not len(tracks.image_ids) or groups == 0:
        return []
    finder, found = _PartnerFinder(model), dict[tuple[int, int], ImagePair]()
    for row in _spread(model.images, range(len(model.images)) if about is None else about, groups):
        near = finder.partners(row)
        group = [(row, other) for other in near]
        if groups is not None and len(near) > 1:
            group.append((near[0], near[1]))
        for a, b in group:
            key = (min(a, b), max(a, b))
            if key not in found and len(points := finder.shared(*key)) >= LEAST_POINTS:
                found[key] = ImagePair(*key, model.points.xyz[points], model.points.rgb[points] @ _TO_GREY)
    return [found[key] for key in sorted(found)]


_TO_GREY = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601, as Pillow's "L"


def _spread(images: Sequence[Image], rows: Sequence[int], most: int | None) -> list[int]:
    """Return rows of images, spread evenly over the cameras; all of them if there are at most `most`.

    Besides, up to three of each camera that would have none, so that each of these can be judged by itself; of these up
    to `most`.
    """
    if most is None or len(rows) <= most:
        return list(rows)
    order = sorted(rows, key=lambda row: (images[row].camera_id, row))
    chosen = [order[(2 * step + 1) * len(order) // (2 * most)] for step in range(most)]
    missed = grouped((images[row].camera_id, row) for row in order)
    for row in chosen:
        missed.pop(images[row].camera_id, None)
    return [*chosen, *[row for of_one in missed.values() for row in of_one[:: -(-len(of_one) // 3)]][:most]]


class _PartnerFinder:
    """Finds partners of images by the tracks of a model; the points that an image sees are looked up once."""

    def __init__(self, model: Reconstruction) -> None:
        tracks = model.points.tracks
        assert tracks is not None  # noqa: S101 - see pairs_of
        ids = np.array([image.id for image in model.images], dtype=np.int64)
        self._model, self._starts = model, tracks.starts
        self._rotations = rotations_of(model.images)
        self._rows: Ints = places_in(ids, tracks.image_ids)  # of each sighting
        self._of_image = tracks.by_image()
        self._seen: dict[int, Ints] = {}

    def seen(self, row: int) -> Ints:
        """Return the points that an image sees, as sorted rows."""
        if row not in self._seen:
            own = self._of_image.get(self._model.images[row].id, np.zeros(0, np.int64))
            points = np.unique(np.searchsorted(self._starts, own, side="right") - 1)
            self._seen[row] = points[np.isfinite(self._model.points.xyz[points]).all(axis=1)]
        return self._seen[row]

    def shared(self, one: int, other: int) -> Ints:
        """Return up to `POINTS` of the points that both images see, evenly taken."""
        both = np.intersect1d(self.seen(one), self.seen(other), assume_unique=True)
        count = min(POINTS, len(both))
        return both[np.arange(count) * len(both) // max(1, count)]

    def partners(self, row: int) -> list[int]:
        """Return up to two images that share most points with this one and show them displaced."""
        points = self.seen(row)
        points = points[:: len(points) // _ASKED or 1]
        others = self._rows[elements_of(self._starts, points)]
        counts = np.bincount(others[(others >= 0) & (others != row)], minlength=len(self._model.images))
        near = [int(other) for other in np.argsort(-counts, kind="stable")[:_SHORTLIST] if counts[other]]
        owner = np.repeat(points, np.diff(self._starts)[points])
        apart = {other: self._apart(row, other, owner[others == other]) for other in near}
        found: list[int] = []
        while len(found) < 2 and (left := [other for other in near if other not in found]):
            found.append(max(left, key=lambda other: counts[other] * self._worth(row, found, other, apart)))
        return found

    def _apart(self, one: int, other: int, points: Ints) -> Floats:
        """Return the median displacement of points from one image to the other, as shares of the side, [2]."""
        pixels = []
        for row in (one, other):
            image = self._model.images[row]
            camera = self._model.cameras[image.camera_id]
            with np.errstate(all="ignore"):
                local = self._model.points.xyz[points] @ self._rotations[row].T + image.translation
                pixels.append(project(camera, local) / max(camera.size))
        moved = finite(pixels[1] - pixels[0])
        return np.median(moved, axis=0) if len(moved) else np.zeros(2)

    def _worth(self, row: int, found: Sequence[int], other: int, apart: Mapping[int, Floats]) -> float:
        value = min(1.0, _STILL + float(np.linalg.norm(apart[other])) / _FAR)
        if not found:
            return value
        (ax, ay), (bx, by) = apart[found[0]], apart[other]
        sine = abs(ax * by - ay * bx) / max(float(np.hypot(ax, ay) * np.hypot(bx, by)), 1e-12)
        cameras = [self._model.images[each].camera_id for each in (row, found[0], other)]
        return value * (0.4 + 0.6 * sine) * (2.0 if len(set(cameras[:2])) == 1 and cameras[2] != cameras[0] else 1.0)
