"""Local coordinate frames, of a training or a camera: the model's frame, less its offset, shifted and scaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from splatbatch.scene.colmap.types import Floats, Image

ROUNDING = 1e-12  # of the largest coordinate: what float64 loses in R^T t, with a margin


@dataclass(frozen=True)
class LocalFrame:
    """A shifted and scaled frame: local = (model - origin) / scale, where model has its offset subtracted.

    A patch is trained in such a frame (`frame_of`). Each photograph of a whole scene is rendered in a frame around its
    camera (`camera_frame`), so that float32 loses nothing of the file's precision there.
    """

    origin: Floats  # [3]
    scale: float
    """Length of one unit of this frame, in units of the model."""
    scene_scale: float = 1.0
    """Largest distance of a camera from the cameras' mean, times 1.1, in units of the frame (3DGS: "cameras extent").

    1 for the frame of a single camera, and where all cameras have the same position.
    """

    def to_local(self, points: Floats) -> Floats:
        """Return points [N, 3], given in the model's frame less its offset, in this frame."""
        return (points - self.origin) / self.scale

    def to_model(self, points: Floats) -> Floats:
        """Return points [N, 3], given in this frame, in the model's frame less its offset."""
        return points * self.scale + self.origin

    def viewmat(self, world_to_camera: Floats) -> Floats:
        """Return the matrix [4, 4] from this frame to a camera, whose depths are in units of this frame.

        `world_to_camera` [4, 4] is for points of the model's frame less its offset, and stays unchanged.
        """
        viewmat = world_to_camera.copy()
        viewmat[:3, 3] = (viewmat[:3, 3] + viewmat[:3, :3] @ self.origin) / self.scale
        return viewmat


def frame_of(images: Sequence[Image]) -> LocalFrame:
    """Return the frame in which a patch is trained, in which the cameras' median distance from their mean is 1.

    MCMC's noise and the regularisers are not scale-free, and COLMAP's unit is arbitrary; gsplat's examples scale alike.
    The scale is 1 where all cameras have the same position, and the largest distance where most have.

    Args:
        images: cameras of the model less its offset, at least one.
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
    """Return a frame around a camera, in which the coordinates of a splat file lose no precision in float32.

    Its origin is the camera's position `center` [3], rounded to float32; `scale` is its unit in units of the model.
    """
    return LocalFrame(center.astype(np.float32).astype(np.float64), scale)
