"""Rotations as matrices and as quaternions [w, x, y, z]."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

F = TypeVar("F", np.float32, np.float64)
FloatArray = NDArray[np.floating[Any]]


@np.errstate(all="ignore")
def from_quats(quats: NDArray[F]) -> NDArray[F]:
    """Return the rotation matrices [I, 3, 3] of quaternions [I, 4], w first, of any length.

    NaN for quaternions whose length, as computed, is 0 or not finite.
    """
    lengths = np.linalg.norm(quats, axis=1, keepdims=True)  # infinite where the squares overflow
    w, x, y, z = (quats / np.where((lengths > 0) & (lengths < np.inf), lengths, np.nan)).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.array(rows).transpose(2, 0, 1)


def to_quats(axes: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the quaternions [N, 4], w first and float32, of orthonormal axes.

    Args:
        axes: the axes as columns, [N, 3, 3]. The first axis is reversed where three axes are left-handed.
    """
    from scipy.spatial.transform import Rotation

    right_handed = axes.copy()
    right_handed[np.linalg.det(axes) < 0, :, 0] *= -1
    return np.roll(Rotation.from_matrix(right_handed).as_quat(), 1, axis=1).astype(np.float32)


def angle(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the angle between two rotation matrices [3, 3] in radians; NaN if a matrix is not finite.

    Computed from the chord, since the arc cosine of the trace is inexact near 0.
    """
    chord = float(np.linalg.norm(one - other))
    return 2 * math.asin(min(1.0, chord / math.sqrt(8))) if math.isfinite(chord) else math.nan


def rotate(points: ArrayLike, turn: FloatArray) -> FloatArray:
    """Return points [N, 3] rotated by `turn`, a quaternion [w, x, y, z] of length 1."""
    axis = turn[1:]
    across = np.cross(axis, np.asarray(points))
    return points + 2 * (turn[0] * across + np.cross(axis, across))


def multiply(turn: FloatArray, quats: FloatArray) -> FloatArray:
    """Return the products of `turn` and quaternions, [N, 4]: the rotations of Gaussians after a further rotation.

    Args:
        turn: quaternion of the further rotation, [w, x, y, z].
        quats: rotations before, [N, 4], w first.
    """
    w, axis, scalars, vectors = turn[0], turn[1:], quats[:, :1], quats[:, 1:]
    scalar = w * scalars - vectors @ axis[:, None]
    vector = w * vectors + scalars * axis + np.cross(axis, vectors)
    return np.concatenate([scalar, vector], axis=1)
