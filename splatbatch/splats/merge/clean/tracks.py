"""The triangulated points of a scene as Gaussians see them: whether one is near."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.types import Floats

BITS = 20
"""Of the number of a voxel along each axis; beyond a million of them the tree is asked."""


class Tracks:
    """Tells which places have a point within a distance; voxels answer for nearly all of them, a tree for the rest."""

    def __init__(self, points: Floats, within: float) -> None:
        """Take points [P, 3] in the frame of the splats."""
        self._points, self._within = points, within
        self._side = within / np.sqrt(3)  # two places in one voxel are no farther apart than `within`
        self._low = points.min(axis=0) if len(points) else np.zeros(3)
        keys, known = self._voxels(points)
        self._voxels_known = np.unique(keys[known])
        self._tree: Any = None

    def are_far(self, places: Floats) -> NDArray[np.bool_]:
        """Return which places [N, 3] have no point within the distance."""
        keys, known = self._voxels(places)
        at = np.searchsorted(self._voxels_known, keys)
        at[at == len(self._voxels_known)] = 0
        far = np.ones(len(places), dtype=bool)
        if len(self._voxels_known):
            far &= ~(known & (self._voxels_known[at] == keys))
            far[far] = ~np.isfinite(self._nearest(places[far]))
        return far

    def _nearest(self, places: Floats) -> Floats:
        """Return how near the nearest point of each place is; infinity if that is beyond the distance."""
        from scipy.spatial import cKDTree

        if self._tree is None:
            self._tree = cKDTree(self._points, balanced_tree=False, compact_nodes=False)
        near: Floats = self._tree.query(places, distance_upper_bound=np.nextafter(self._within, np.inf))[0]
        return near

    def _voxels(self, places: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the number of the voxel of each place, and whether it has one."""
        cells = np.floor((places - self._low) / self._side)
        known = ((cells >= 0) & (cells < 1 << BITS)).all(axis=1)
        x, y, z = np.where(known[:, None], cells, 0).astype(np.int64).T
        return (x << 2 * BITS) | (y << BITS) | z, known
