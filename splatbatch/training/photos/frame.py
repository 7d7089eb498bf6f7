"""The frame that is trained in, whose unit is the reach of the cameras."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from splatbatch.scene.colmap.types import Image

ROUNDING = 1e-12  # of the largest coordinate: what float64 loses in R^T t, with a margin


@dataclass(frozen=True)
class TrainingFrame:
    """The frame that is trained in: x = (world - center) / unit.

    MCMC's noise and the regularisers are not scale-free, and COLMAP's unit is arbitrary. As gsplat's own examples do,
    the cameras' median distance from their middle becomes 1; the splat is written in world coordinates again.
    """

    origin: np.ndarray[tuple[int], np.dtype[np.float64]]  # [3]
    scale: float
    scene_scale: float
    """Reach of the cameras from their middle, in units, with a margin of a tenth (3DGS: "cameras extent")."""


def frame_of(images: Sequence[Image]) -> TrainingFrame:
    """Return the frame in which the photographs of a patch are trained."""
    centers = np.array([image.center() for image in images])  # [n, 3]
    middle = centers.mean(axis=0)
    distances = np.linalg.norm(centers - middle, axis=1)
    unit, reach = float(np.median(distances)), float(distances.max())
    if reach <= ROUNDING * float(np.abs(centers).max()):  # all from one place: the distances are rounding errors
        return TrainingFrame(middle, scale=1.0, scene_scale=1.0)
    unit = unit if unit > 1e-6 * reach else reach  # most from one place
    return TrainingFrame(middle, unit, scene_scale=1.1 * reach / unit)
