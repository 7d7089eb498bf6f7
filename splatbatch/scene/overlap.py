"""The share of a surface that too few places see, computed from poses and points before training.

There a splat is a guess: held-out photographs are shown 5 to 10 dB worse, after 30,000 steps no better than after 7,000
(docs/benchmarks.md, "Overlap").
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.colmap.types import Floats, centers_of, finite
from splatbatch.scene.coverage_mask import is_seen, views_of

CELLS = 300
"""Approximate number of cells of a flat surface; each counts once, however many points lie in it."""
MOST_POINTS = 20_000
"""Most points that are sorted into cells, evenly taken."""
MOST_CENTERS = 400
"""Number of camera positions, evenly taken, that the distance of a point from the nearest camera is measured to."""
EDGE = 2.0
"""Percent of the points at either end of each axis that are left out: stray points lie there."""
LEAST_POINTS = 3
"""A cell with fewer points is left out: they are strays."""
LEAST_CELLS = 50
"""Fewest cells from which a share is computed."""
NOTHING = np.zeros((0, 3)), 0.0
FAR = 3.0
"""Points farther than this multiple of the median distance to the nearest photograph are background."""


def surface_cells(points: Floats, centers: Floats) -> tuple[Floats, float]:
    """Return the middles of the cells [c, 3] of a surface without its background, and the side of a cell.

    Args:
        points: points on the surface, [n, 3].
        centers: camera centres of the photographs, [s, 3].
    """
    points, centers = finite(points[:: max(1, len(points) // MOST_POINTS)]), finite(centers)
    if not len(points) or not len(centers):
        return NOTHING
    some = centers[:: max(1, len(centers) // MOST_CENTERS)]
    far = np.sqrt(np.min([((points - one) ** 2).sum(axis=1) for one in some], axis=0))
    points = points[far <= FAR * np.median(far)]
    low, high = np.percentile(points, (EDGE, 100 - EDGE), axis=0)
    _, *longest = np.sort(high - low)
    side = float(np.sqrt(np.prod(longest) / CELLS))
    if not side > 0:
        return NOTHING
    inner = points[((points >= low) & (points <= high)).all(axis=1)]
    _, cell, num = np.unique(np.floor((inner - low) / side), axis=0, return_inverse=True, return_counts=True)
    sums = np.stack([np.bincount(cell.reshape(-1), axis) for axis in inner.T], axis=1)
    return (sums / num[:, None])[num >= LEAST_POINTS], side


def share_seen_by_few(model: Reconstruction, holdout: Collection[str] = ()) -> float | None:
    """Return the share of the surface that training photographs see from fewer than three places; None: unknown.

    Places are at least 2 degrees apart, as for covered pixels. Occlusion is ignored, and the background is left out.
    Unlike there, rigs are not read: photographs of one moment that lie so far apart are several places.

    Args:
        model: a model in the coordinates of its files.
        holdout: names of photographs that are not trained on.
    """
    cells, _ = surface_cells(model.points.xyz, centers_of(model.images))
    views = [one for one in views_of(model) if one.name not in holdout]
    return float(1 - is_seen(cells, views).mean()) if len(cells) >= LEAST_CELLS and views else None
