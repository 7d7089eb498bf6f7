"""A similarity: a rotation, a scale and a shift of the world; given, or fitted to places before and after."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splatbatch.scene.colmap.types import Floats


@dataclass(frozen=True, eq=False)
class Similarity:
    """x -> scale * rotation @ x + translation."""

    rotation: Floats  # [3, 3]; its determinant is -1 for one that mirrors
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


def fitted_similarity(source: Floats, target: Floats, weights: Floats, *, is_mirrored: bool = False) -> Similarity:
    """Return the similarity that brings `source` to `target`, least squares (Umeyama 1991).

    Args:
        source: [n, 3].
        target: [n, 3].
        weights: of each, [n].
        is_mirrored: it mirrors too.
    """
    weights = weights / weights.sum()
    middle, other = weights @ source, weights @ target
    a, b = source - middle, target - other
    u, values, vt = np.linalg.svd((b * weights[:, None]).T @ a)
    sign = np.array([1.0, 1.0, np.sign(np.linalg.det(u @ vt)) * (-1.0 if is_mirrored else 1.0)])
    rotation = (u * sign) @ vt
    scale = float((values * sign).sum() / max(float(weights @ (a**2).sum(axis=1)), 1e-300))
    return Similarity(rotation, other - scale * rotation @ middle, scale)
