"""The border of a patch in the frame that is trained in: what lies within reach, and how large it may be there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from splatbatch.config import Offset
from splatbatch.scene.partition.border import Border
from splatbatch.training.frame import LocalFrame

EXTENT_SIGMAS = 3.0
"""Standard deviations that a Gaussian counts as reaching: what is beyond has 1 % of its opacity."""


@dataclass(frozen=True)
class Boundary:
    """A border in the frame that is trained in, on the device that trains."""

    axes: Tensor  # [3, 3], rows are unit vectors
    core: Tensor  # [2, 3], lower and upper, infinite where no other core is
    reach: Tensor  # [2, 3]
    margin: float

    @classmethod
    def of(cls, border: Border, frame: LocalFrame, offset: Offset) -> Boundary:
        """Return a border as it lies in a frame of a model whose offset was taken off."""
        axes = np.array(border.axes)
        middle = (frame.origin + np.array(offset)) @ axes.T

        def trained(lower: tuple[float, ...], upper: tuple[float, ...]) -> Tensor:
            return torch.from_numpy((np.array([lower, upper]) - middle) / frame.scale).float()

        core, reach = (trained(box.lower, box.upper) for box in (border.core, border.reach))
        return cls(torch.from_numpy(axes).float(), core, reach, border.margin / frame.scale)

    def to(self, device: torch.device) -> Boundary:
        """Return the bounds on a device."""
        return replace(self, axes=self.axes.to(device), core=self.core.to(device), reach=self.reach.to(device))

    def contains(self, means: Tensor) -> Tensor:
        """Return which places [N, 3] lie within reach, [N]."""
        places = means @ self.axes.T
        return ((places >= self.reach[0]) & (places < self.reach[1])).all(dim=-1)

    def largest_scales(self, means: Tensor) -> Tensor:
        """Return how large a Gaussian at each place may be, [N]: it reaches no further than to the nearest border or,
        close to that, than the margin over it."""
        places = means @ self.axes.T
        beyond = torch.maximum(self.core[0] - places, places - self.core[1]).amax(dim=-1)  # negative inside the core
        return beyond.abs().clamp_min(self.margin) / EXTENT_SIGMAS
