"""How photographs hang together by the points they share: which have too few, and which groups share none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.types import Floats, Ints
from splatbatch.scene.colors.observations import LEAST
from splatbatch.scene.colors.residuals import Observations

LEAST_SHARED = 5
"""Points that two photographs share before they are linked: one or two may be a false match."""
MOST_NEIGHBOURS = 10
"""With which a photograph is compared: those that share the most points with it."""


@dataclass(frozen=True, eq=False)
class Linked:
    """Observations that hang together, and what was left out for that."""

    seen: Observations
    group: Ints  # [num_photos], -1 for a photograph that is left alone
    shared: Any  # [num_photos, num_photos], sparse: points that two of them share


def link(seen: Observations) -> Linked:
    """Return observations of photographs with enough of them, whose tracks stay within a group."""
    from scipy.sparse.csgraph import connected_components

    num = len(seen.camera)
    while True:
        shared = _shared(seen)
        enough = np.bincount(seen.photo, minlength=num) >= LEAST
        groups = connected_components(shared >= LEAST_SHARED, directed=False)[1].astype(np.int64)
        kept = _in_tracks(_split(seen.only(enough[seen.photo]), groups))
        if len(kept.photo) == len(seen.photo):
            return Linked(kept, _renumbered(groups, enough), shared)
        seen = kept


def _split(seen: Observations, groups: Ints) -> Observations:
    """Return observations in which a point that two groups see has become two points."""
    pairs = seen.point * (int(groups.max()) + 1) + groups[seen.photo]
    return replace(seen, point=np.unique(pairs, return_inverse=True)[1].astype(np.int64))


def _in_tracks(seen: Observations) -> Observations:
    """Return the observations of points that two photographs see."""
    photos = _incidence(seen)
    counts = np.asarray(photos.sum(axis=0)).ravel()
    return seen.only(counts[seen.point] > 1)


def _incidence(seen: Observations) -> Any:
    """Return which photograph sees which point, once for each pair, [photos, points]."""
    from scipy.sparse import csr_matrix

    shape = (len(seen.camera), int(seen.point.max(initial=-1)) + 1)
    matrix = csr_matrix((np.ones(len(seen.photo), np.float32), (seen.photo, seen.point)), shape)
    matrix.data[:] = 1  # entries for the same place are added up
    return matrix


def _shared(seen: Observations) -> Any:
    matrix = _incidence(seen)
    return (matrix @ matrix.T).tocsr()


def _renumbered(groups: Ints, is_in: NDArray[np.bool_]) -> Ints:
    found = np.full(len(groups), -1, np.int64)
    found[is_in] = np.unique(groups[is_in], return_inverse=True)[1]
    return found


def neighbours_mean(values: Floats, shared: Any, is_in: NDArray[np.bool_]) -> Floats:
    """Return for each photograph the mean over its nearest ones of values [num_photos], by points that they share."""
    means = np.full(len(values), np.nan)
    for one in np.flatnonzero(is_in):
        start, end = shared.indptr[one : one + 2]
        others, counts = shared.indices[start:end], shared.data[start:end]
        chosen = (others != one) & is_in[others] & (counts >= LEAST_SHARED)
        order = np.argsort(-counts[chosen])[:MOST_NEIGHBOURS]
        if len(order):
            means[one] = np.median(values[others[chosen][order]])
    return means
