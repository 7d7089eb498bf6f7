"""The linear system of tones: which unknown each observation knows of, solved without the points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.colors.residuals import Observations, falloff_of, shading_of

DENSE = 3000
"""Up to so many photographs the system is solved as a dense matrix."""
TINY = 1e-9  # of the mean of the diagonal: what fixes the gauge


class Design:
    """Which unknown each observation knows of; made once, weighted many times."""

    def __init__(self, seen: Observations, bends: NDArray[np.bool_]) -> None:
        from scipy.sparse import csr_matrix

        self._seen, self._bends = seen, bends
        self._num_photos = len(seen.camera)
        number = np.cumsum(bends) - 1  # of the cameras that bend
        camera = seen.camera[seen.photo]
        row = np.flatnonzero(bends[camera])
        column = self._num_photos + 2 * number[camera[row]]
        rows = np.concatenate([np.arange(len(seen.photo)), row, row])
        columns = np.concatenate([seen.photo, column, column + 1])
        square = seen.radius[row]
        values = np.concatenate([np.ones(len(seen.photo)), square, square**2])
        shape = (len(seen.photo), self._num_photos + 2 * int(bends.sum()))
        self._design = csr_matrix((values, (rows, columns)), shape)
        ones = np.ones(len(seen.photo))
        self._tracks = csr_matrix((ones, (seen.point, np.arange(len(ones)))))  # [points, O]

    def fit(self, weights: Floats, tilts: Floats) -> tuple[Floats, Floats]:
        """Return gains and vignetting at these weights and tilts.

        Vignetting is the same in all channels, so that only their mean tells of it, and it can be solved with that
        alone.
        """
        seen, num = self._seen, self._num_photos
        weighted = self._design.multiply(weights[:, None]).tocsr()
        matrix, rest = self._reduced(weighted, weights)
        vignetting = np.zeros((len(self._bends), 2))
        color = seen.color - shading_of(seen, tilts)[:, None]
        mean = color.mean(axis=1, keepdims=True)
        if self._bends.any():
            found = _solved(matrix, rest(mean))[:, 0]
            vignetting[self._bends] = found[num:].reshape(-1, 2)
        evened = color - falloff_of(seen, vignetting)[:, None]
        gains = _solved(matrix[:num, :num], rest(evened)[:num])
        return gains - gains.mean(axis=0), vignetting

    def _reduced(self, weighted: Any, weights: Floats) -> tuple[Any, Any]:
        """Return the matrix of photographs and cameras without the points, and what makes its right-hand sides."""
        from scipy.sparse import diags

        per_point = 1 / np.maximum(self._tracks @ weights, 1e-12)
        links = self._tracks @ weighted  # [points, unknowns]
        matrix = self._design.T @ weighted - links.T @ (diags(per_point) @ links)

        def rest(color: Floats) -> Floats:
            means = per_point[:, None] * (self._tracks @ (weights[:, None] * color))
            right: Floats = weighted.T @ color - links.T @ means
            return right

        return matrix.tocsc(), rest


def _solved(matrix: Any, right: Floats) -> Floats:
    """Return the solution of a matrix that knows its unknowns up to a constant."""
    from scipy.sparse import identity
    from scipy.sparse.linalg import splu

    size = matrix.shape[0]
    tiny = TINY * float(matrix.diagonal().mean()) + 1e-12
    if size <= DENSE:
        found: Floats = np.linalg.solve(matrix.toarray() + tiny * np.eye(size), right)
        return found
    solved: Floats = splu(matrix + tiny * identity(size, format="csc")).solve(right)
    return solved
