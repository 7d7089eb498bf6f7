"""The cameras of a scene as Gaussians see them: how many photographs have a place in their picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from splatbatch.config import Offset
from splatbatch.errors import SceneError
from splatbatch.scene.colmap.types import Camera, Floats, Image
from splatbatch.scene.frame import shifted_image

MOST_NEIGHBOURS = 512
"""Places that are asked for together."""
PAIRS_AT_ONCE = 1 << 14
"""Of a place and a camera: 128 KB for each coordinate of them, which a cache holds."""
WIDER = 0.1
"""Of a picture's sides, by which it counts as larger on each: a Gaussian is no point, and lenses bend."""
STRAIGHT = frozenset({"SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "FULL_OPENCV"})
"""Camera models that see about what a pinhole of their focal length sees; others count as seeing all before them."""
ALL_BEFORE = 1e6
"""As x / z: a thousandth of a degree less than half of all around."""


@dataclass(frozen=True)
class Views:
    """Cameras in the frame of the splats."""

    turns: Floats  # [C, 3, 3], world to camera
    shifts: Floats  # [C, 3]
    reaches: Floats  # [C, 4]: least and greatest x / z, least and greatest y / z

    @staticmethod
    def of_all(parts: Sequence[Views]) -> Views:
        """Return the cameras of some sets as one."""
        arrays = ([getattr(part, name) for part in parts] for name in ("turns", "shifts", "reaches"))
        return Views(*(np.concatenate(one) for one in arrays))

    def __len__(self) -> int:
        return len(self.turns)

    @cached_property
    def centers(self) -> Floats:
        """Return where the cameras stand, [C, 3]."""
        centers: Floats = -np.einsum("cba,cb->ca", self.turns, self.shifts)
        return centers

    def seen_by_fewer(self, places: Floats, least: int) -> NDArray[np.bool_]:
        """Return which places [N, 3] lie in the pictures of fewer than `least` cameras.

        Asked are groups of neighbours: of the cameras that may see a group the nearest first, until enough have.
        """
        fewer = np.ones(len(places), dtype=bool)
        for group in _neighbours(places, np.arange(len(places))):
            fewer[group] = self._of_group(places[group], least)
        return fewer

    def _of_group(self, places: Floats, least: int) -> NDArray[np.bool_]:
        middle = (places.min(axis=0) + places.max(axis=0)) / 2
        radius = float(np.linalg.norm(places - middle, axis=1).max())
        cameras = np.flatnonzero(self._may_see(middle, radius))
        away = np.linalg.norm(self.centers[cameras] - middle, axis=1)
        cameras = cameras[np.argsort(away, kind="stable")]
        counts, asked, open_ = np.zeros(len(places), dtype=np.int64), 0, np.arange(len(places))
        while asked < len(cameras) and len(open_):
            some = cameras[asked : asked + max(1, PAIRS_AT_ONCE // len(open_))]
            counts[open_] += self._looked(some, places[open_])[0].sum(axis=0)
            open_ = open_[counts[open_] < least]
            asked += len(some)
        return counts < least

    def _may_see(self, middle: Floats, radius: float) -> NDArray[np.bool_]:
        """Return which cameras have some of a ball in their pictures, as far as each side of these tells, [C]."""
        x, y, z = (self.turns @ middle + self.shifts).T
        left, right, top, bottom = self.reaches.T
        may: NDArray[np.bool_] = z > -radius
        for across, inwards, side in ((x, 1, left), (x, -1, right), (y, 1, top), (y, -1, bottom)):
            may &= inwards * (across - side * z) >= -radius * np.hypot(1, side)
        return may

    def _looked(self, chosen: NDArray[np.intp], places: Floats) -> tuple[NDArray[np.bool_], Floats]:
        """Return which of the chosen cameras sees which place, and in what depth, [c, n] each."""
        x, y, z = (self.turns[chosen, row] @ places.T + self.shifts[chosen, row, None] for row in range(3))
        left, right, top, bottom = (self.reaches[chosen, side, None] for side in range(4))
        seen: NDArray[np.bool_] = (z > 0) & (x >= left * z) & (x <= right * z) & (y >= top * z) & (y <= bottom * z)
        return seen, z

    def median_depth(self, places: Floats) -> float:
        """Return how far before the cameras that see them places [N, 3] lie, in the median; infinity if none does."""
        depths = []
        for start in range(0, len(self), step := max(1, PAIRS_AT_ONCE // max(1, len(places)))):
            seen, depth = self._looked(np.arange(start, min(start + step, len(self))), places)
            depths.append(depth[seen])
        known = np.concatenate(depths) if depths else np.zeros(0)
        return float(np.median(known)) if len(known) else np.inf


def views_of(images: Iterable[Image], cameras: Mapping[int, Camera], offset: Offset) -> Views:
    """Return the cameras of images in a frame; those without a pose or a focal length are left out."""
    turns, shifts, reaches = [], [], []
    for image in images:
        reach, turn = _reach(cameras[image.camera_id]), image.rotation()
        shift = np.array(shifted_image(image, offset).translation)
        if reach is not None and np.isfinite(turn).all() and np.isfinite(shift).all():
            turns.append(turn)
            shifts.append(shift)
            reaches.append(reach)
    shapes = ((turns, (-1, 3, 3)), (shifts, (-1, 3)), (reaches, (-1, 4)))
    return Views(*(np.array(one, dtype=np.float64).reshape(shape) for one, shape in shapes))


def _reach(camera: Camera) -> tuple[float, float, float, float] | None:
    """Return how far a camera sees to each side, as x / z and y / z; None where its file does not tell."""
    if camera.model not in STRAIGHT:
        return (-ALL_BEFORE, ALL_BEFORE, -ALL_BEFORE, ALL_BEFORE)
    try:
        fx, fy, cx, cy = camera.fx, camera.fy, camera.cx, camera.cy
    except SceneError:
        return None
    if not (np.isfinite([fx, fy, cx, cy]).all() and fx > 0 and fy > 0):
        return None
    wide, high = WIDER * camera.width, WIDER * camera.height
    x, y = ((-wide - cx) / fx, (camera.width + wide - cx) / fx), ((-high - cy) / fy, (camera.height + high - cy) / fy)
    return (*x, *y)


def _neighbours(places: Floats, chosen: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Yield groups of the chosen places that lie close to each other: halves of halves, across the widest side."""
    if len(chosen) <= MOST_NEIGHBOURS:
        if len(chosen):
            yield chosen
        return
    axis = int(np.argmax(np.ptp(places[chosen], axis=0)))
    half = len(chosen) // 2
    order = chosen[np.argpartition(places[chosen, axis], half)]
    yield from _neighbours(places, order[:half])
    yield from _neighbours(places, order[half:])
