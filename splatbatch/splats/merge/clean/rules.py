"""The rules of cleaning, each with its number and reason; a Gaussian goes by the first that it breaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.types import Floats
from splatbatch.splats.merge.clean.tracks import Tracks
from splatbatch.splats.merge.clean.views import Views
from splatbatch.splats.merge.regions import Mask
from splatbatch.splats.ply import FloatArray, names_at

Rows = NDArray[np.intp]

FAINTEST = 0.005
"""Opacity below which training itself prunes (Kerbl 2023); below 1/255 rasterisers draw nothing at all."""
LARGEST = 0.1
"""Standard deviation, of the way to the farthest camera: Kerbl 2023 prunes at a tenth of the cameras' extent; the way
there grows with the distance, so that a sky far out may have large Gaussians."""
OPAQUE = 0.1
"""Opacity from which on a floater is seen as one."""
FEWEST = 3
"""Cameras that must see what is opaque: what one or two see, they alone have placed."""
ASTRAY = 0.5
"""Of the median depth of the points in their photographs: so far from all of them, and yet among the cameras, hangs
what explains single photographs, close to their cameras."""
IN_WORDS: Mapping[str, str] = {
    "faint": f"opacity below {FAINTEST:g}",
    "oversized": f"a standard deviation above {LARGEST:g} of the way to the farthest camera of its patch",
    "unseen": f"opacity from {OPAQUE:g} on, and in the pictures of fewer than {FEWEST} cameras of any patch",
    "astray": f"opacity from {OPAQUE:g} on, between points and cameras of its patch, and farther than {ASTRAY:g} of"
    " their median distance from all points of tracks",
}
OF_BACKDROP = ("faint",)
"""Rules that hold for the backdrop too: sky is far from all points, and large."""
MOST_POINTS = 2000
"""Whose depth is looked at."""
_NAMES = names_at(0)
_TAILS = (0.5, 99.5)
"""Percent of the points between which they count: a lone mismatched point would stretch any box."""


@dataclass(frozen=True)
class Faint:
    """Near-transparent Gaussians go: all that is asked of a backdrop."""

    def removed(self, rows: FloatArray) -> Mapping[str, Mask]:
        """Return by rule which rows [N, properties of ours] go."""
        return {"faint": opacities(rows) < FAINTEST}


class OfPatch:
    """All rules, for the Gaussians of a patch."""

    def __init__(self, everyone: Views, own: Views, points: Floats) -> None:
        """Take the cameras of all patches, those of this one, and the points [P, 3] around it, in the splats' frame."""
        self._everyone, self._own = everyone, own
        centers = own.centers
        self._middle = centers.mean(axis=0)
        self._radius = float(np.linalg.norm(centers - self._middle, axis=1).max())
        inner = np.percentile(points, _TAILS, axis=0) if len(points) else centers
        around = np.concatenate([inner, centers])
        self._low, self._high = around.min(axis=0), around.max(axis=0)
        some = points[:: max(1, len(points) // MOST_POINTS)]
        self._tracks = Tracks(points, ASTRAY * own.median_depth(some)) if len(points) else None

    def removed(self, rows: FloatArray) -> Mapping[str, Mask]:
        """Return by rule which rows [N, properties of ours] go; none by two rules."""
        means, opaque = rows[:, :3].astype(np.float64), opacities(rows)
        found = {"faint": opaque < FAINTEST}
        sizes = np.exp(_scales(rows).max(axis=1).astype(np.float64))
        away = np.linalg.norm(means - self._middle, axis=1) + self._radius
        found["oversized"] = ~found["faint"] & (sizes > LARGEST * away)
        judged = np.flatnonzero((opaque >= OPAQUE) & ~found["oversized"])
        unseen = judged[self._everyone.seen_by_fewer(means[judged], FEWEST)]
        found["unseen"] = _mask(unseen, len(rows))
        found["astray"] = _mask(self._astray(np.setdiff1d(judged, unseen, assume_unique=True), means), len(rows))
        return found

    def _astray(self, judged: Rows, means: Floats) -> Rows:
        if self._tracks is None:
            return judged[:0]
        among = judged[((means[judged] >= self._low) & (means[judged] <= self._high)).all(axis=1)]
        far: Rows = among[self._tracks.are_far(means[among])]
        return far


def opacities(rows: FloatArray) -> Floats:
    """Return the opacities of rows of ours, 0 to 1."""
    logits = rows[:, rows.shape[1] - len(_NAMES) + _NAMES.index("opacity")].astype(np.float64)
    opaque: Floats = 1 / (1 + np.exp(-np.clip(logits, -30, 30)))
    return opaque


def _scales(rows: FloatArray) -> FloatArray:
    start = rows.shape[1] - len(_NAMES) + _NAMES.index("scale_0")  # harmonics stand before
    return rows[:, start : start + 3]


def _mask(places: Rows, num: int) -> Mask:
    mask = np.zeros(num, dtype=bool)
    mask[places] = True
    return mask
