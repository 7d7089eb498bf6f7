"""The rules of `merge --clean`, each with its limit and reason; a Gaussian counts for the first rule that applies.

In the order of the rules: faint, oversized, unseen, astray (see `IN_WORDS`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.config import Offset
from splatbatch.errors import SceneError
from splatbatch.scene.colmap.types import Camera, Floats, Image, Mask
from splatbatch.scene.frame import shifted_image
from splatbatch.splats.ply import FloatArray, names_at

BITS = 20
"""Bits of a voxel's index along each axis: about a million voxels; positions farther out are tested by a k-d tree."""
MOST_NEIGHBOURS = 512
"""Largest number of neighbouring positions that are tested together against the cameras."""
PAIRS_AT_ONCE = 1 << 14
"""Approximate number of pairs of a position and a camera tested at once: 128 KB per coordinate, as in a CPU cache."""
WIDER = 0.1
"""Share of a photograph's width and height by which its field of view is enlarged on each side.

The margin is for large Gaussians and for lens distortion, which is ignored.
"""
STRAIGHT = frozenset({"SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "FULL_OPENCV"})
"""COLMAP camera models whose field of view is about that of a pinhole.

A camera of any other model (as fisheye) counts as seeing everything in front of the camera.
"""
ALL_BEFORE = 1e6
"""Field of view, as x / z, of a camera model not in `STRAIGHT`: almost a half space."""
Rows = NDArray[np.intp]
FAINTEST = 0.005
"""Opacity, 0 to 1, below which a Gaussian is removed, as training prunes (Kerbl 2023); below 1/255 none is drawn."""
LARGEST = 0.1
"""Largest standard deviation of a Gaussian, as a share of its distance to the farthest camera of its patch.

The distance is taken as that to the cameras' mean plus the largest distance of a camera from there, an upper bound.
Kerbl 2023 prunes at a tenth of the cameras' extent. The distance used here grows for far Gaussians, so that a far sky
may have large Gaussians.
"""
OPAQUE = 0.1
"""Least opacity, 0 to 1, at which a Gaussian is tested for being a floater: the rules `unseen` and `astray`."""
FEWEST = 3
"""Least number of cameras that must see a Gaussian of at least the opacity `OPAQUE`; fewer do not fix its depth."""
ASTRAY = 0.5
"""Distance from the nearest sparse point beyond which a Gaussian is a floater.

The distance is a share of the median depth of the sparse points in the patch's photographs. Such a Gaussian, if also
between points and cameras, explains only single photographs and is close to their cameras.
"""
IN_WORDS: Mapping[str, str] = {
    "faint": f"opacity below {FAINTEST:g}",
    "oversized": f"a standard deviation above {LARGEST:g} of the distance to the farthest camera of its patch",
    "unseen": f"opacity of at least {OPAQUE:g}, and in the photographs of fewer than {FEWEST} cameras",
    "astray": f"opacity of at least {OPAQUE:g}, between sparse points and cameras of its patch, and farther from all"
    f" points than {ASTRAY:g} of their median depth",
}
MOST_POINTS = 2000
"""Number of sparse points from which the median depth is measured, evenly taken; up to twice as many may be taken."""
_NAMES = names_at(0)
_TAILS = (0.5, 99.5)
"""Percentiles of the points that bound the scene: a lone mismatched point would stretch any box."""


class PointProximity:
    """Test whether positions have a sparse point within a distance.

    The test is exact. A position in the same voxel as a point is near at once; others are looked up in a k-d tree.
    """

    def __init__(self, points: Floats, within: float) -> None:
        """Take sparse points [P, 3] in the frame of the splats, and the distance `within` in units of that frame.

        P may be 0: then every position is far.
        """
        self._points, self._within = points, within
        self._side = within / np.sqrt(3)  # two points in one voxel are no farther apart than `within`
        self._low = points.min(axis=0) if len(points) else np.zeros(3)
        keys, known = self._voxels(points)
        self._voxels_known = np.unique(keys[known])
        self._tree: Any = None

    def are_far(self, places: Floats) -> Mask:
        """Return a mask [N] of the positions [N, 3] that have no sparse point within the distance."""
        keys, known = self._voxels(places)
        at = np.searchsorted(self._voxels_known, keys)
        at[at == len(self._voxels_known)] = 0
        far = np.ones(len(places), dtype=bool)
        if len(self._voxels_known):
            far &= ~(known & (self._voxels_known[at] == keys))
            far[far] = ~np.isfinite(self._nearest(places[far]))
        return far

    def _nearest(self, places: Floats) -> Floats:
        """Return the distance of each position to its nearest point; infinity if that is beyond the limit."""
        from scipy.spatial import cKDTree

        if self._tree is None:
            self._tree = cKDTree(self._points, balanced_tree=False, compact_nodes=False)
        return self._tree.query(places, distance_upper_bound=np.nextafter(self._within, np.inf))[0]

    def _voxels(self, places: Floats) -> tuple[NDArray[np.int64], Mask]:
        """Return the index of each position's voxel, and whether it has one."""
        cells = np.floor((places - self._low) / self._side)
        known = ((cells >= 0) & (cells < 1 << BITS)).all(axis=1)
        x, y, z = np.where(known[:, None], cells, 0).astype(np.int64).T
        return (x << 2 * BITS) | (y << BITS) | z, known


@dataclass(frozen=True)
class CleaningViews:
    """C cameras in the frame of the splats, with their fields of view, to count how many see a Gaussian.

    `len()` is the number of cameras; a set may be empty.
    """

    turns: Floats  # [C, 3, 3], world to camera
    shifts: Floats  # [C, 3]
    reaches: Floats  # [C, 4]: least and greatest x / z, least and greatest y / z

    @staticmethod
    def of_all(parts: Sequence[CleaningViews]) -> CleaningViews:
        """Return the cameras of several sets, at least one, as one set in their order."""
        arrays = ([getattr(part, name) for part in parts] for name in ("turns", "shifts", "reaches"))
        return CleaningViews(*(np.concatenate(one) for one in arrays))

    def __len__(self) -> int:
        return len(self.turns)

    @cached_property
    def centers(self) -> Floats:
        """Return the positions of the cameras in the frame of the splats, [C, 3]."""
        return -np.einsum("cba,cb->ca", self.turns, self.shifts)

    def seen_by_fewer(self, places: Floats, least: int) -> Mask:
        """Return a mask [N] of the positions [N, 3] that are in the field of view of fewer than `least` cameras.

        A camera whose view of a position is blocked by something else counts as seeing the position. Neighbouring
        positions are tested together, against the nearest cameras first.
        """
        fewer = np.ones(len(places), dtype=bool)
        for group in _neighbours(places, np.arange(len(places))):
            fewer[group] = self._of_group(places[group], least)
        return fewer

    def _of_group(self, places: Floats, least: int) -> Mask:
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

    def _may_see(self, middle: Floats, radius: float) -> Mask:
        """Return which cameras may see a part of a ball, [C]; a conservative test against each side of the picture."""
        x, y, z = (self.turns @ middle + self.shifts).T
        left, right, top, bottom = self.reaches.T
        may: Mask = z > -radius
        for across, inwards, side in ((x, 1, left), (x, -1, right), (y, 1, top), (y, -1, bottom)):
            may &= inwards * (across - side * z) >= -radius * np.hypot(1, side)
        return may

    def _looked(self, chosen: NDArray[np.intp], places: Floats) -> tuple[Mask, Floats]:
        """Return which chosen cameras see which positions, and the depths, [c, n] each."""
        x, y, z = (self.turns[chosen, row] @ places.T + self.shifts[chosen, row, None] for row in range(3))
        left, right, top, bottom = (self.reaches[chosen, side, None] for side in range(4))
        seen: Mask = (z > 0) & (x >= left * z) & (x <= right * z) & (y >= top * z) & (y <= bottom * z)
        return seen, z

    def median_depth(self, places: Floats) -> float:
        """Return the median depth of positions [N, 3] over all pairs of a position and a camera that sees it.

        In units of the splats' frame; infinity if no camera sees any position.
        """
        depths = []
        for start in range(0, len(self), step := max(1, PAIRS_AT_ONCE // max(1, len(places)))):
            seen, depth = self._looked(np.arange(start, min(start + step, len(self))), places)
            depths.append(depth[seen])
        known = np.concatenate(depths) if depths else np.zeros(0)
        return float(np.median(known)) if len(known) else np.inf


def views_of(images: Iterable[Image], cameras: Mapping[int, Camera], offset: Offset) -> CleaningViews:
    """Return the cameras of images with `offset` subtracted from their positions, in the order of the images.

    Images without a finite pose are left out, and those of a camera model of `STRAIGHT` without finite intrinsics and
    positive focal lengths.

    Args:
        images: of a COLMAP model.
        cameras: of the same model, by camera id.
        offset: what to subtract from the model's coordinates, in its unit.

    Raises:
        KeyError: `cameras` lacks the camera of an image.
    """
    turns, shifts, reaches = [], [], []
    for image in images:
        reach = _reach(cameras[image.camera_id])
        if reach is not None and image.has_pose():
            turns.append(image.rotation())
            shifts.append(shifted_image(image, offset).translation)
            reaches.append(reach)
    shapes = ((turns, (-1, 3, 3)), (shifts, (-1, 3)), (reaches, (-1, 4)))
    return CleaningViews(*(np.array(one, dtype=np.float64).reshape(shape) for one, shape in shapes))


def _reach(camera: Camera) -> tuple[float, float, float, float] | None:
    """Return the field of view of a camera, as least and greatest x / z and y / z; None without a focal length."""
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
    """Yield the chosen positions in groups of neighbours, by repeated halving across the widest side."""
    if len(chosen) <= MOST_NEIGHBOURS:
        if len(chosen):
            yield chosen
        return
    axis = int(np.argmax(np.ptp(places[chosen], axis=0)))
    half = len(chosen) // 2
    order = chosen[np.argpartition(places[chosen, axis], half)]
    yield from _neighbours(places, order[:half])
    yield from _neighbours(places, order[half:])


def faint(rows: FloatArray) -> Mapping[str, Mask]:
    """Return a mask [N] of the rows with an opacity below `FAINTEST`, under the name of the rule.

    No other rule applies to a backdrop, whose sky may be large and far. Columns of `rows` are ordered as by `names_at`.
    """
    return {"faint": opacities(rows) < FAINTEST}


class PatchRules:
    """The cleaning rules for the Gaussians of one patch, with its cameras and sparse points."""

    def __init__(self, everyone: CleaningViews, own: CleaningViews, points: Floats) -> None:
        """Take cameras and points in the frame of the splats.

        Args:
            everyone: cameras of all patches.
            own: cameras of this patch, at least one.
            points: sparse points of this patch, [P, 3]; without any that its cameras see, no Gaussian is removed as
                astray.
        """
        self._everyone, self._own = everyone, own
        centers = own.centers
        self._middle = centers.mean(axis=0)
        self._radius = float(np.linalg.norm(centers - self._middle, axis=1).max())
        inner = np.percentile(points, _TAILS, axis=0) if len(points) else centers
        around = np.concatenate([inner, centers])
        self._low, self._high = around.min(axis=0), around.max(axis=0)
        some = points[:: max(1, len(points) // MOST_POINTS)]
        self._tracks = PointProximity(points, ASTRAY * own.median_depth(some)) if len(points) else None

    def removed(self, rows: FloatArray) -> Mapping[str, Mask]:
        """Return a mask [N] of the rows to remove for each rule, by its name; no row is in two masks.

        `rows` are [N, properties], with the properties in the order of `names_at`.
        """
        means, opaque = rows[:, :3].astype(np.float64), opacities(rows)
        found = {"faint": opaque < FAINTEST}
        start = rows.shape[1] - len(_NAMES) + _NAMES.index("scale_0")  # harmonics stand before
        sizes = np.exp(rows[:, start : start + 3].max(axis=1).astype(np.float64))
        away = np.linalg.norm(means - self._middle, axis=1) + self._radius
        found["oversized"] = ~found["faint"] & (sizes > LARGEST * away)
        judged = np.flatnonzero((opaque >= OPAQUE) & ~found["oversized"])
        unseen = judged[self._everyone.seen_by_fewer(means[judged], FEWEST)]
        found["unseen"] = _mask(unseen, len(rows))
        seen = np.setdiff1d(judged, unseen, assume_unique=True)
        among = seen[((means[seen] >= self._low) & (means[seen] <= self._high)).all(axis=1)]
        astray = among[self._tracks.are_far(means[among])] if self._tracks else among[:0]
        found["astray"] = _mask(astray, len(rows))
        return found


def opacities(rows: FloatArray) -> Floats:
    """Return the opacities, 0 to 1, [N], of rows [N, properties] with the properties in the order of `names_at`."""
    logits = rows[:, rows.shape[1] - len(_NAMES) + _NAMES.index("opacity")].astype(np.float64)
    return 1 / (1 + np.exp(-np.clip(logits, -30, 30)))


def _mask(places: Rows, num: int) -> Mask:
    mask = np.zeros(num, dtype=bool)
    mask[places] = True
    return mask
