"""Local coordinate frames, of a training or a camera, within the frame of the model with its offset subtracted."""

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
    """A shifted and scaled frame: local = (model - origin) / scale, where model has its offset subtracted.

    A patch is trained in one, see `frame_of`. Each photograph of a whole scene is rendered in one around its camera, so
    that float32 loses nothing of the file's precision there.
    """

    origin: Floats  # [3]
    scale: float
    scene_scale: float = 1.0
    """Largest distance of a camera from their mean, times 1.1, in units of the frame (3DGS: "cameras extent")."""

    def to_local(self, points: Floats) -> Floats:
        """Return points of the model's frame [N, 3] in this frame."""
        return (points - self.origin) / self.scale

    def to_model(self, points: Floats) -> Floats:
        """Return points of this frame [N, 3] in the model's frame."""
        return points * self.scale + self.origin

    def viewmat(self, world_to_camera: Floats) -> Floats:
        """Return the world-to-camera matrix [4, 4] of a camera of the model for points of this frame."""
        viewmat = world_to_camera.copy()
        viewmat[:3, 3] = (viewmat[:3, 3] + viewmat[:3, :3] @ self.origin) / self.scale
        return viewmat


def frame_of(images: Sequence[Image]) -> LocalFrame:
    """Return the frame in which a patch is trained, in which the cameras' median distance from their mean is 1.

    MCMC's noise and the regularisers are not scale-free, and COLMAP's unit is arbitrary; gsplat's examples scale alike.
    The scale is 1 where all cameras have the same position.
    """
    centers = np.array([image.center() for image in images])  # [n, 3]
    middle = centers.mean(axis=0)
    distances = np.linalg.norm(centers - middle, axis=1)
    unit, reach = float(np.median(distances)), float(distances.max())
    if reach <= ROUNDING * float(np.abs(centers).max()):  # all cameras at one position, up to rounding
        return LocalFrame(middle, scale=1.0)
    unit = unit if unit > 1e-6 * reach else reach  # most cameras at one position
    return LocalFrame(middle, unit, scene_scale=1.1 * reach / unit)


def camera_frame(center: Floats, scale: float) -> LocalFrame:
    """Return a frame whose origin is a camera's, rounded to float32, so that a file's coordinates lose no precision."""
    return LocalFrame(center.astype(np.float32).astype(np.float64), scale)
