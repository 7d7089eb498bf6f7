"""The coordinates of splats: COLMAP's world, minus an offset where float32 cannot separate neighbouring points.

A float32 has 24 bits: at UTM northings (4.5e6 m) neighbouring numbers lie 0.5 m apart, and a splat stored there looks
like a staircase. The offset is subtracted from float64 when a model is read, and never added to float32 again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from splatbatch.config import NO_OFFSET, Offset
from splatbatch.scene.colmap.copies import moved
from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.colmap.types import Floats, Image, centers_of, finite, triple

FINEST = 100
"""Fewest float32 steps between neighbouring points with which float32 is fine enough for a scene."""
MILLIMETRE = 0.001
"""Largest float32 step that always suffices once an offset is subtracted, in metres.

Scenes that need an offset have coordinates of a map, whose unit is the metre.
"""
FAR = 4
"""Largest coordinate, in half widths of the scene, up to which no offset is used: it would gain under two bits."""
TAILS = (0.1, 99.9)
"""Percentiles of the points between which the extent is measured, so that a single mismatched point does not count."""
MOST_SAMPLES = 512
"""Approximate number of points whose nearest neighbours are searched to measure the spacing."""


@dataclass(frozen=True)
class ModelExtent:
    """Box of the cameras and points of a model, and the spacing of its points; in units of the model.

    `low` and `high` are the corners [x, y, z] with the smallest and largest coordinates. Points beyond
    `TAILS` do not count.
    """

    low: Offset
    high: Offset
    spacing: float | None = None
    """Median distance of a point to its nearest neighbour, over a sample; points that stand there twice do not count.

    None: no such point has a neighbour, or the model lies so near the origin that no offset is needed.
    """

    def loses(self, offset: Offset = NO_OFFSET) -> bool:
        """Return whether float32 is too coarse for the model's points after an offset is subtracted.

        False if `spacing` is None, or the model then lies within `FAR` of its half widths from the origin.
        """
        return self.spacing is not None and self._outgrows(offset, self.spacing)

    def is_coarse(self, offset: Offset) -> bool:
        """Return whether an offset does not serve the model: float32 steps exceed `MILLIMETRE` and are coarse for it.

        Coarse is fewer than `FINEST` steps between neighbouring points, or any step if `spacing` is None. No offset is
        coarse after which the model lies within `FAR` of its half widths from the origin.
        """
        return self.step(offset) > MILLIMETRE and self._outgrows(offset, self.spacing or 0.0)

    def step(self, offset: Offset) -> float:
        """Return the float32 step at the largest coordinate after the offset is subtracted, in units of the model."""
        return float(np.spacing(np.float32(_reach(self, offset))))

    def middle(self) -> Offset:
        """Return the centre of the box, rounded to whole units of the model, as an offset."""
        return triple(np.round(np.add(self.low, self.high) / 2) + 0.0)  # no -0

    def _outgrows(self, offset: Offset, spacing: float) -> bool:
        half = max(np.subtract(self.high, self.low)) / 2
        return _reach(self, offset) > FAR * half and self.step(offset) * FINEST > spacing


def span_of(model: Reconstruction) -> ModelExtent | None:
    """Return the extent of a model; None if neither a point nor a camera has a finite position."""
    return span_between(finite(model.points.xyz), finite(centers_of(model.images)))


def span_between(points: Floats, centers: Floats) -> ModelExtent | None:
    """Return the extent of points and cameras; None if there are neither.

    Args:
        points: finite positions, [N, 3]; those outside the percentiles `TAILS` of an axis do not count.
        centers: finite camera centres, [n, 3]; all count.
    """
    if not len(points) and not len(centers):
        return None
    cut = np.percentile(points, TAILS, axis=0) if len(points) else centers
    places = np.concatenate([cut, centers])
    low, high = places.min(axis=0), places.max(axis=0)
    span = ModelExtent(triple(low), triple(high))
    if _reach(span, NO_OFFSET) <= FAR * float((high - low).max()) / 2:
        return span
    return replace(span, spacing=_median_distance(points))


def offset_for(spans: Collection[ModelExtent]) -> Offset:
    """Return the offset of a batch in whole units, the middle of all patches.

    `NO_OFFSET` (three zeros) where float32 is fine enough for every patch, or there is no patch.
    """
    if not any(span.loses() for span in spans):
        return NO_OFFSET
    low = np.min([span.low for span in spans], axis=0)
    high = np.max([span.high for span in spans], axis=0)
    return ModelExtent(triple(low), triple(high)).middle()


def shared_offset(spans: Mapping[str, ModelExtent], kept: Offset | None = None) -> tuple[Offset, tuple[str, ...]]:
    """Return the offset that patches share, and the names of the patches that lie too far away for it.

    Where one offset cannot serve all patches, the offset `kept` is taken if it serves any patch. Else the offset is
    chosen for the patches near the median of all. The names are in the order of `spans`; none if all are served.

    Args:
        spans: extents of the patches by name, at least one.
        kept: offset of splats that exist already; None: there are no splats.
    """
    whole = offset_for(spans.values())
    if not any(span.is_coarse(whole) for span in spans.values()):
        return whole, ()
    middles = np.array([span.middle() for span in spans.values()])
    center = middles[np.argmin(np.linalg.norm(middles - np.median(middles, axis=0), axis=1))]
    places = [*([] if kept is None else [kept]), triple(center)]
    groups = ((place, [name for name in spans if not spans[name].is_coarse(place)]) for place in places)
    place, near = next(group for group in groups if group[1])
    middle = offset_for([spans[name] for name in near])
    is_served = place != kept and not any(spans[name].is_coarse(middle) for name in near)
    return middle if is_served else place, tuple(name for name in spans if name not in near)


def shifted(model: Reconstruction, offset: Offset) -> Reconstruction:
    """Return a model with the offset subtracted from points and cameras; the same object for `NO_OFFSET`."""
    if offset == NO_OFFSET:
        return model
    points = replace(model.points, xyz=model.points.xyz - np.array(offset))
    return replace(model, images=tuple(shifted_image(image, offset) for image in model.images), points=points)


def shifted_image(image: Image, offset: Offset) -> Image:
    """Return an image with the offset subtracted from its camera centre; the same object for `NO_OFFSET`."""
    if offset == NO_OFFSET:
        return image
    return replace(image, translation=moved(image, -np.array(offset)))


def _reach(span: ModelExtent, offset: Offset) -> float:
    """Return the largest absolute coordinate after the offset is subtracted."""
    return float(np.abs(np.subtract((span.low, span.high), offset)).max())


def _median_distance(points: Floats) -> float | None:
    """Return the median distance of sampled points to their nearest different point; None if there is none."""
    from scipy.spatial import cKDTree

    if len(points) < 2:
        return None
    sample = points[:: max(1, len(points) // MOST_SAMPLES)]
    tree = cKDTree(points - points.mean(axis=0), balanced_tree=False, compact_nodes=False)
    near, _ = tree.query(sample - points.mean(axis=0), k=2)
    apart: NDArray[np.float64] = near[:, 1][near[:, 1] > 0]
    return float(np.median(apart)) if len(apart) else None
