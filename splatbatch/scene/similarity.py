"""Similarity transforms of the world (rotation, scale and translation), given or fitted to points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splatbatch.scene.colmap.types import Floats


@dataclass(frozen=True, eq=False)
class Similarity:
    """The transform of points x -> scale * rotation @ x + translation."""

    rotation: Floats  # [3, 3]; its determinant is -1 for one that mirrors
    translation: Floats  # [3]
    scale: float

    def inverse(self) -> Similarity:
        """Return the inverse transform; `scale` must not be 0."""
        back = self.rotation.T
        return Similarity(back, -back @ self.translation / self.scale, 1 / self.scale)

    def after(self, first: Similarity) -> Similarity:
        """Return the composition, a transform that applies `first` and then this transform."""
        moved = self.scale * self.rotation @ first.translation + self.translation
        return Similarity(self.rotation @ first.rotation, moved, self.scale * first.scale)

    @np.errstate(all="ignore")  # what overflows is told of as no place
    def of_points(self, points: Floats) -> Floats:
        """Return points [N, 3] after the transform; overflow gives infinity or NaN, without a warning."""
        return self.scale * points @ self.rotation.T + self.translation

    def of_pose(self, rotation: Floats, center: Floats) -> tuple[Floats, Floats]:
        """Return the pose of a camera after the transform: rotation from world to camera, [3, 3], and centre, [3].

        Args:
            rotation: rotation from world to camera before, [3, 3].
            center: camera centre in the world before, [3].
        """
        return rotation @ self.rotation.T, self.of_points(center[None])[0]

    def matrix(self) -> list[list[float]]:
        """Return the transform as a 4x4 matrix for JSON: a list of four rows, the last 0 0 0 1."""
        rows = np.eye(4)
        rows[:3, :3], rows[:3, 3] = self.scale * self.rotation, self.translation
        return rows.tolist()


IDENTITY = Similarity(np.eye(3), np.zeros(3), 1.0)


def fitted_similarity(source: Floats, target: Floats, weights: Floats, *, is_mirrored: bool = False) -> Similarity:
    """Return the similarity that maps `source` to `target` with least squares (Umeyama 1991).

    Args:
        source: finite points before, [n, 3].
        target: the same points after, [n, 3].
        weights: weight of each point, [n]; the sum must not be 0.
        is_mirrored: whether the transform must mirror (determinant -1); else it must not.
    """
    weights = weights / weights.sum()
    middle, other = weights @ source, weights @ target
    a, b = source - middle, target - other
    u, values, vt = np.linalg.svd((b * weights[:, None]).T @ a)
    sign = np.array([1.0, 1.0, np.sign(np.linalg.det(u @ vt)) * (-1.0 if is_mirrored else 1.0)])
    rotation = (u * sign) @ vt
    scale = float((values * sign).sum() / max(float(weights @ (a**2).sum(axis=1)), 1e-300))
    return Similarity(rotation, other - scale * rotation @ middle, scale)
