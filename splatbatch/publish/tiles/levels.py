"""Levels of detail: half as many Gaussians each, until a tile holds all that are left.

The most important quarter stays as it is; of the others, the faintest first, two neighbours become one with their
common mass, mean, covariance and colour, weighed by importance: opacity times area. Of the trained quarry that leaves
39 dB from where the level changes, 4 dB more than merging all alike. A tile is refined while its usual Gaussian is some
pixels wide; CesiumJS leaves out what is narrower than 1.4.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from splatbatch.splats.ply import FloatArray, Gaussians
from splatbatch.splats.shapes import covariances

Rows = npt.NDArray[np.intp]
KEPT = 0.25
"""Of all Gaussians, that are in the next level as they are. From 0.15 to 0.45 the trained quarry looks alike."""
FAR_COEFFICIENTS = 3
"""Of the colour's direction that far levels keep: degree 1."""
FAINTEST, FULLEST = 1e-4, 0.999
"""Opacities that a merged Gaussian may have."""
LARGEST_LOG, SMALLEST_LOG = 30.0, -30.0
CELLS = 1 << 10
"""Along each axis, of the curve that neighbours are taken from."""


def some(gaussians: Gaussians, rows: Rows | slice) -> Gaussians:
    """Return some Gaussians."""
    return Gaussians(**{name: values[rows] for name, values in vars(gaussians).items()})


def joined(one: Gaussians, other: Gaussians) -> Gaussians:
    """Return the Gaussians of both."""
    return Gaussians(**{name: np.concatenate([values, vars(other)[name]]) for name, values in vars(one).items()})


def importance(gaussians: Gaussians) -> FloatArray:
    """Return opacity times area of each, [N]: what it can cover of a picture."""
    found: FloatArray = _opacities(gaussians.opacities) * _areas(gaussians.scales)
    return found


def usual_size(gaussians: Gaussians) -> float:
    """Return the size of the Gaussian in the middle of all importance: its standard deviation, across."""
    weights, sizes = importance(gaussians), np.sqrt(_areas(gaussians.scales))
    order = np.argsort(sizes)
    so_far = np.cumsum(weights[order].astype(np.float64))
    return float(sizes[order][np.searchsorted(so_far, so_far[-1] / 2)])


def halved(gaussians: Gaussians) -> Gaussians:
    """Return half as many Gaussians: the most important as they are, of the faintest one in place of two neighbours.

    Their colours hardly change with direction.
    """
    goal, kept = (len(gaussians) + 1) // 2, int(KEPT * len(gaussians))
    order = np.argsort(-importance(gaussians))
    left = some(gaussians, order[kept:])
    while len(left) > goal - kept:
        num = min(len(left) - (goal - kept), len(left) // 2)
        faintest_first = np.argsort(importance(left))
        left = joined(_paired(some(left, faintest_first[: 2 * num])), some(left, faintest_first[2 * num :]))
    return _far_colours(joined(some(gaussians, order[:kept]), left))


def _paired(gaussians: Gaussians) -> Gaussians:
    """Return one Gaussian in place of two neighbours each, of an even number."""
    ordered = some(gaussians, along_curve(gaussians.means))
    return _merged(some(ordered, slice(0, None, 2)), some(ordered, slice(1, None, 2)))


def along_curve(means: FloatArray) -> Rows:
    """Return the order of places [N, 3] along Morton's curve: who stands side by side lies side by side."""
    low, high = np.percentile(means, (1, 99), axis=0)
    inside = np.clip((means - low) / np.maximum(high - low, 1e-12).max(), 0, 1)
    cells = (inside * (CELLS - 1)).astype(np.uint32)
    code = _spread(cells[:, 0]) | _spread(cells[:, 1]) << np.uint32(1) | _spread(cells[:, 2]) << np.uint32(2)
    return np.argsort(code, kind="stable")


def _spread(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return 10 bits with two zeros between each."""
    for shift, mask in ((16, 0x030000FF), (8, 0x0300F00F), (4, 0x030C30C3), (2, 0x09249249)):
        values = (values | values << np.uint32(shift)) & np.uint32(mask)
    return values


def _merged(one: Gaussians, other: Gaussians) -> Gaussians:
    """Return one Gaussian for each pair, with the moments of both."""
    weights = np.stack([importance(one), importance(other)]).astype(np.float64)
    total = np.maximum(weights.sum(axis=0), 1e-30)
    share = (weights / total).astype(np.float32)

    def mean(first: FloatArray, second: FloatArray) -> FloatArray:
        shape = (-1, *[1] * (first.ndim - 1))
        found: FloatArray = share[0].reshape(shape) * first + share[1].reshape(shape) * second
        return found

    apart = one.means - other.means
    spread = (share[0] * share[1])[:, None, None] * apart[:, :, None] * apart[:, None, :]
    common = mean(covariances(one.scales, one.quats), covariances(other.scales, other.quats)) + spread
    variances, axes = np.linalg.eigh(common.astype(np.float64))
    scales = (0.5 * np.log(np.maximum(variances, 1e-24))).astype(np.float32)
    opacities = np.clip(total / _areas(scales), FAINTEST, FULLEST)
    return Gaussians(
        means=mean(one.means, other.means),
        scales=scales,
        quats=turns(axes),
        opacities=np.log(opacities / (1 - opacities)).astype(np.float32),
        sh0=mean(one.sh0, other.sh0),
        shN=mean(one.shN, other.shN),
    )


def _far_colours(gaussians: Gaussians) -> Gaussians:
    """Return Gaussians with the higher harmonics left blank: readers want the same number in all tiles."""
    blank = gaussians.shN.copy()
    blank[:, FAR_COEFFICIENTS:] = 0
    return replace(gaussians, shN=blank)


def turns(axes: npt.NDArray[np.float64]) -> FloatArray:
    """Return the rotations w x y z [N, 4] of orthonormal axes [N, 3, 3], columns; left-handed ones have one turned."""
    rotation = axes.copy()
    rotation[np.linalg.det(rotation) < 0, :, 0] *= -1
    x, y, z = rotation[:, 0, 0], rotation[:, 1, 1], rotation[:, 2, 2]
    squares = np.stack([1 + x + y + z, 1 + x - y - z, 1 - x + y - z, 1 - x - y + z], axis=1)
    parts = np.sqrt(np.maximum(squares, 0)) / 2  # sizes of w x y z
    signs = np.ones_like(parts)
    odd = rotation - rotation.transpose(0, 2, 1)
    even = rotation + rotation.transpose(0, 2, 1)
    with_w = np.stack([np.ones(len(x)), odd[:, 2, 1], odd[:, 0, 2], odd[:, 1, 0]], axis=1)
    with_x = np.stack([odd[:, 2, 1], np.ones(len(x)), even[:, 0, 1], even[:, 0, 2]], axis=1)
    with_y = np.stack([odd[:, 0, 2], even[:, 0, 1], np.ones(len(x)), even[:, 1, 2]], axis=1)
    with_z = np.stack([odd[:, 1, 0], even[:, 0, 2], even[:, 1, 2], np.ones(len(x))], axis=1)
    largest = parts.argmax(axis=1)
    signs = np.stack([with_w, with_x, with_y, with_z], axis=1)[np.arange(len(x)), largest]
    found: FloatArray = (parts * np.where(signs < 0, -1, 1)).astype(np.float32)
    return found


def _opacities(logits: FloatArray) -> FloatArray:
    found: FloatArray = np.reciprocal(1 + np.exp(-np.clip(logits, -30, 30)))
    return found


def _areas(scales: FloatArray) -> FloatArray:
    """Return the product of the two largest standard deviations, [N]."""
    found: FloatArray = np.exp(np.clip(scales.sum(axis=1) - scales.min(axis=1), SMALLEST_LOG, LARGEST_LOG))
    return found
