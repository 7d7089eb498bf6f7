"""Coordinate frames: of the model with its offset taken off, and of a training or a camera, which lies within it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from splatbatch.scene.colmap.types import Image

Floats = NDArray[np.float64]

ROUNDING = 1e-12  # of the largest coordinate: what float64 loses in R^T t, with a margin


@dataclass(frozen=True)
class LocalFrame:
    """A frame within that of the model, whose offset is taken off: local = (model - origin) / scale.

    A patch is trained in one, see `frame_of`; each photograph of a whole scene is rendered in one around its camera, so
    that float32 is as fine there as the file.
    """

    origin: Floats  # [3]
    scale: float
    scene_scale: float = 1.0
    """Reach of the cameras from their middle, in units, with a margin of a tenth (3DGS: "cameras extent")."""

    def to_local(self, points: Floats) -> Floats:
        """Return points of the model [N, 3] in this frame."""
        return (points - self.origin) / self.scale

    def to_model(self, points: Floats) -> Floats:
        """Return points of this frame [N, 3] in the model's."""
        return points * self.scale + self.origin

    def viewmat(self, world_to_camera: Floats) -> Floats:
        """Return the world-to-camera matrix [4, 4] of a camera of the model for points of this frame."""
        viewmat = world_to_camera.copy()
        viewmat[:3, 3] = (viewmat[:3, 3] + viewmat[:3, :3] @ self.origin) / self.scale
        return viewmat


def frame_of(images: Sequence[Image]) -> LocalFrame:
    """Return the frame in which the photographs of a patch are trained; its unit is the reach of the cameras.

    MCMC's noise and the regularisers are not scale-free, and COLMAP's unit is arbitrary. As gsplat's own examples do,
    the cameras' median distance from their middle becomes 1; the splat is written in world coordinates again.
    """
    centers = np.array([image.center() for image in images])  # [n, 3]
    middle = centers.mean(axis=0)
    distances = np.linalg.norm(centers - middle, axis=1)
    unit, reach = float(np.median(distances)), float(distances.max())
    if reach <= ROUNDING * float(np.abs(centers).max()):  # all from one place: the distances are rounding errors
        return LocalFrame(middle, scale=1.0)
    unit = unit if unit > 1e-6 * reach else reach  # most from one place
    return LocalFrame(middle, unit, scene_scale=1.1 * reach / unit)


def camera_frame(center: Floats, scale: float) -> LocalFrame:
    """Return a frame around a camera, whose origin float32 holds exactly: a file's coordinates lose nothing by it."""
    return LocalFrame(center.astype(np.float32).astype(np.float64), scale)
