"""The share of a surface that was photographed from too few positions, computed from poses and points before training.

Where a surface is seen from too few positions, its splat is a guess. There held-out photographs are rendered 5 to 10 dB
worse (PSNR), after 30,000 steps no better than after 7,000 (docs/benchmarks.md, "Overlap").
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.colmap.types import Floats, centers_of, finite
from splatbatch.scene.coverage_mask import is_seen, views_of

CELLS = 300
"""Approximate number of cells (cubes of space) into which a flat surface is cut; the share is one of cells."""
MOST_POINTS = 20_000
"""Approximate number of points, evenly taken, that are sorted into cells."""
MOST_CENTERS = 400
"""Approximate number of cameras, evenly taken, among which the nearest to each point is searched."""
EDGE = 2.0
"""Percent of the points at either end of each axis that are left out, since stray points lie there."""
LEAST_POINTS = 3
"""Fewest points of a cell that counts; the points of other cells are taken for strays."""
LEAST_CELLS = 50
"""Fewest cells from which a share is computed; with fewer the share is unknown."""
NOTHING = np.zeros((0, 3)), 0.0
FAR = 3.0
"""Points farther from their nearest camera than this multiple of the median distance are background."""


def surface_cells(points: Floats, centers: Floats) -> tuple[Floats, float]:
    """Return the cells of a surface without its background: mean point of each cell, [c, 3], and side of a cell.

    Both are in units of the model. The array is empty and the side 0 if no point or no camera is finite. Likewise if
    the points lie on a line along an axis. Cells with fewer than `LEAST_POINTS` are left out.

    Args:
        points: points on the surface, [n, 3]; points that are not finite are left out.
        centers: camera centres of the photographs, [s, 3]; centres that are not finite are left out.
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
    """Return the share (0 to 1) of the surface that training photographs see from fewer than three positions.

    Positions are at least 2 degrees apart, as for covered pixels. Occlusion is ignored, and the background is left out.
    Unlike for covered pixels, rigs are not read: photographs of one moment may count as several positions.

    Returns None if there are fewer than `LEAST_CELLS` cells, or no training photograph with a usable pose and lens.

    Args:
        model: a model in the coordinates of its files.
        holdout: names of photographs that are not trained on; empty: all are.
    """
    cells, _ = surface_cells(model.points.xyz, centers_of(model.images))
    views = [one for one in views_of(model) if one.name not in holdout]
    return float(1 - is_seen(cells, views).mean()) if len(cells) >= LEAST_CELLS and views else None
