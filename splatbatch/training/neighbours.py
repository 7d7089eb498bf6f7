"""How far points are from their nearest neighbours, in bounded memory and the same every time."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

NEIGHBOURS = 3  # 3DGS (Kerbl 2023): the first scale is the root mean square distance to three
AT_ONCE = 1 << 16  # points per query: distances and indices of all of them at once would be 64 bytes per point
SMALLEST_SHARE = 1e-3
"""Of the median distance, below which none is taken seriously: points as good as equal would become invisible dots."""

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def neighbour_distance(points: Floats) -> Floats:
    """Return the root mean square distance of points [N, 3] to their three nearest neighbours, [N], never zero.

    Points in the very same place count as one, so that each has the distance to its nearest other place; a point
    without another place has 1.
    """
    distances, nearest = _query(points)
    if len(points) > 1 and not nearest.all():
        # sorting a million points takes twice as long as building the tree: only where there are equal ones
        places, place_of = np.unique(points, axis=0, return_inverse=True)
        distances = _query(places)[0][place_of.reshape(-1)]
    smallest = SMALLEST_SHARE * float(np.median(distances)) if len(points) else 0.0
    return np.maximum(distances, smallest)


def _query(points: Floats) -> tuple[Floats, Floats]:
    """Return root mean square distance [N] and distance to the nearest [N]; ones for a single point."""
    distances, nearest = np.ones(len(points)), np.ones(len(points))
    if len(points) < 2:
        return distances, nearest
    tree = cKDTree(points)
    for start in range(0, len(points), AT_ONCE):
        # in the order of the tree: neighbours after each other find its nodes in the cache, seven times as fast
        chunk = tree.indices[start : start + AT_ONCE]
        near, _ = tree.query(points[chunk], k=min(1 + NEIGHBOURS, len(points)), workers=-1)
        nearest[chunk] = near[:, 1]
        distances[chunk] = np.sqrt((near[:, 1:] ** 2).mean(axis=1))  # the first is the point itself
    return distances, nearest
