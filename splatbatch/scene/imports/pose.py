"""Poses as other programs write them: matrices from camera to world; and worlds as similarities of each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from splatbatch.scene.colmap.types import Floats

OPENGL = np.diag([1.0, -1.0, -1.0])
"""Camera axes of OpenGL and Blender (y up, looking along -z) to those of COLMAP (y down, looking along z)."""
_SHEAR = 1e-3
"""Largest deviation from a rotation, after a common scale is taken out, that passes for rounding."""
_LAST_ROW = 1e-6


class NoPose(ValueError):
    """A matrix is no pose; the message says why."""


@dataclass(frozen=True, eq=False)
class Similarity:
    """x -> scale * rotation @ x + translation."""

    rotation: Floats  # [3, 3]
    translation: Floats  # [3]
    scale: float

    def inverse(self) -> Similarity:
        """Return what undoes it."""
        back = self.rotation.T
        return Similarity(back, -back @ self.translation / self.scale, 1 / self.scale)

    def after(self, first: Similarity) -> Similarity:
        """Return what comes of `first`, then this one."""
        moved = self.scale * self.rotation @ first.translation + self.translation
        return Similarity(self.rotation @ first.rotation, moved, self.scale * first.scale)

    def of_points(self, points: Floats) -> Floats:
        """Return points [N, 3] moved."""
        with np.errstate(all="ignore"):  # what overflows is told of as no place
            moved: Floats = self.scale * points @ self.rotation.T + self.translation
        return moved

    def of_pose(self, rotation: Floats, center: Floats) -> tuple[Floats, Floats]:
        """Return a camera's rotation from the world and its centre, in the world that this leads to."""
        return rotation @ self.rotation.T, self.of_points(center[None])[0]

    def matrix(self) -> list[list[float]]:
        """Return it as a 4x4 matrix, as JSON has it."""
        rows = np.eye(4)
        rows[:3, :3], rows[:3, 3] = self.scale * self.rotation, self.translation
        return rows.tolist()


IDENTITY = Similarity(np.eye(3), np.zeros(3), 1.0)


def as_matrix(value: Any) -> Floats:
    """Return a 4x4 matrix (or its first three rows) that JSON or XML gave, as [3, 4].

    Raises:
        NoPose: it has another shape, or holds what is no finite number.
    """
    try:
        matrix = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise NoPose("is no matrix of numbers") from error
    if matrix.shape == (16,):
        matrix = matrix.reshape(4, 4)
    if matrix.shape not in ((4, 4), (3, 4)):
        raise NoPose(f"has the shape {'x'.join(map(str, matrix.shape))}, not 4x4")
    if not np.isfinite(matrix).all():
        raise NoPose("holds what is no finite number")
    if len(matrix) == 4 and np.abs(matrix[3] - (0, 0, 0, 1)).max() > _LAST_ROW:
        raise NoPose(f"has the last row {', '.join(f'{value:g}' for value in matrix[3])}, not 0, 0, 0, 1")
    return matrix[:3]


def similarity_of(matrix: Floats) -> Similarity:
    """Return a matrix [3, 4] as a similarity.

    Raises:
        NoPose: it mirrors, shears, or has no volume.
    """
    linear = matrix[:, :3]
    size = np.abs(np.linalg.det(linear)) ** (1 / 3)
    if not size > 1e-12:
        raise NoPose("has no rotation: its determinant is 0")
    if np.linalg.det(linear) < 0:
        raise NoPose("mirrors (its determinant is negative): one axis is turned round")
    left, stretch, right = np.linalg.svd(linear / size)
    if np.abs(stretch - 1).max() > _SHEAR:
        raise NoPose(f"is no rotation: it stretches by {stretch.max():.4g} and {stretch.min():.4g}")
    scale = 1.0 if abs(size - 1) < _LAST_ROW else float(size)
    return Similarity(left @ right, matrix[:, 3].copy(), scale)
