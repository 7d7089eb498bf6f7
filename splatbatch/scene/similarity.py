"""Similarity transforms: rotation, scale and translation of the world, given or fitted to points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splatbatch.scene.colmap.types import Floats


@dataclass(frozen=True, eq=False)
class Similarity:
    """The transform x -> scale * rotation @ x + translation."""

    rotation: Floats  # [3, 3]; its determinant is -1 for one that mirrors
    translation: Floats  # [3]
    scale: float

    def inverse(self) -> Similarity:
        """Return the inverse transform."""
        back = self.rotation.T
        return Similarity(back, -back @ self.translation / self.scale, 1 / self.scale)

    def after(self, first: Similarity) -> Similarity:
        """Return the composition: `first`, then this transform."""
        moved = self.scale * self.rotation @ first.translation + self.translation
        return Similarity(self.rotation @ first.rotation, moved, self.scale * first.scale)

    def of_points(self, points: Floats) -> Floats:
        """Return the transformed points [N, 3]; overflow gives infinity or NaN, without a warning."""
        with np.errstate(all="ignore"):  # what overflows is told of as no place
            return self.scale * points @ self.rotation.T + self.translation

    def of_pose(self, rotation: Floats, center: Floats) -> tuple[Floats, Floats]:
        """Return the rotation (from the world) and the centre of a camera in the transformed world."""
        return rotation @ self.rotation.T, self.of_points(center[None])[0]

    def matrix(self) -> list[list[float]]:
        """Return the transform as a 4x4 matrix of lists, for JSON."""
        rows = np.eye(4)
        rows[:3, :3], rows[:3, 3] = self.scale * self.rotation, self.translation
        return rows.tolist()


IDENTITY = Similarity(np.eye(3), np.zeros(3), 1.0)


def fitted_similarity(source: Floats, target: Floats, weights: Floats, *, is_mirrored: bool = False) -> Similarity:
    """Return the similarity that maps `source` to `target` with least squares (Umeyama 1991).

    Args:
        source: points before, [n, 3].
        target: points after, [n, 3].
        weights: weight of each point, [n].
        is_mirrored: whether the transform mirrors.
    """
    weights = weights / weights.sum()
    middle, other = weights @ source, weights @ target
    a, b = source - middle, target - other
    u, values, vt = np.linalg.svd((b * weights[:, None]).T @ a)
    sign = np.array([1.0, 1.0, np.sign(np.linalg.det(u @ vt)) * (-1.0 if is_mirrored else 1.0)])
    rotation = (u * sign) @ vt
    scale = float((values * sign).sum() / max(float(weights @ (a**2).sum(axis=1)), 1e-300))
    return Similarity(rotation, other - scale * rotation @ middle, scale)
