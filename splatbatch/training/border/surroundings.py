"""What a patch with a core is bounded by and drawn against: its border, and the backdrop behind it.

A patch without a core has neither, and trains as if this module were not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from splatbatch.config import Offset
from splatbatch.scene.partition.border import Border
from splatbatch.training.photos.frame import Frame

EXTENT_SIGMAS = 3.0
"""Standard deviations that a Gaussian counts as reaching: what is beyond has 1 % of its opacity."""


@dataclass(frozen=True)
class Bounds:
    """A border in the frame that is trained in, on the device that trains."""

    axes: Tensor  # [3, 3], rows are unit vectors
    core: Tensor  # [2, 3], lower and upper, infinite where no other core is
    reach: Tensor  # [2, 3]
    margin: float

    @classmethod
    def of(cls, border: Border, frame: Frame, offset: Offset) -> Bounds:
        """Return a border as it lies in a frame of a model whose offset was taken off."""
        axes = np.array(border.axes)
        middle = (frame.center + np.array(offset)) @ axes.T

        def trained(lower: tuple[float, ...], upper: tuple[float, ...]) -> Tensor:
            return torch.from_numpy((np.array([lower, upper]) - middle) / frame.unit).float()

        core, reach = (trained(box.lower, box.upper) for box in (border.core, border.reach))
        return cls(torch.from_numpy(axes).float(), core, reach, border.margin / frame.unit)

    def to(self, device: torch.device) -> Bounds:
        """Return the bounds on a device."""
        return replace(self, axes=self.axes.to(device), core=self.core.to(device), reach=self.reach.to(device))

    def holds(self, means: Tensor) -> Tensor:
        """Return which places [N, 3] lie within reach, [N]."""
        places = means @ self.axes.T
        return ((places >= self.reach[0]) & (places < self.reach[1])).all(dim=-1)

    def largest_scales(self, means: Tensor) -> Tensor:
        """Return how large a Gaussian at each place may be, [N]: it reaches no further than to the nearest border or,
        close to that, than the margin over it."""
        places = means @ self.axes.T
        beyond = torch.maximum(self.core[0] - places, places - self.core[1]).amax(dim=-1)  # negative inside the core
        return beyond.abs().clamp_min(self.margin) / EXTENT_SIGMAS


@dataclass(frozen=True)
class Surroundings:
    """What lies around a patch; nothing, for a patch without a core."""

    bounds: Bounds | None = None
    backdrop: Mapping[str, Tensor] = field(default_factory=dict)
    """Gaussians of the whole scene outside the patch's reach, frozen; none where there is no backdrop."""
    within: Mapping[str, Tensor] = field(default_factory=dict)
    """Those within reach, which are never drawn with the patch's own: they tell which pixels show the patch."""
    cover: Mapping[str, Tensor] = field(default_factory=dict)
    """Some of those within, which a patch begins with: parts of what is too large near the border."""

    def to(self, device: torch.device) -> Surroundings:
        """Return the surroundings on a device."""
        backdrop, within = (
            {name: value.to(device) for name, value in values.items()} for values in (self.backdrop, self.within)
        )
        return Surroundings(self.bounds.to(device) if self.bounds else None, backdrop, within)

    @property
    def num_behind(self) -> int:
        """Return how many Gaussians the backdrop has."""
        return len(self.backdrop["means"]) if self.backdrop else 0

    def drawn_with(self, gaussians: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return all that is drawn: the patch's own Gaussians first, then the backdrop's, which get no gradient."""
        if not self.backdrop:
            return gaussians
        return {name: torch.cat((value, self.backdrop[name])) for name, value in gaussians.items()}

    def to_hash(self) -> dict[str, Tensor]:
        """Return all that a training depends on here; nothing, for a patch without a core."""
        bounds = vars(self.bounds) | {"margin": torch.tensor(self.bounds.margin)} if self.bounds else {}
        return {**bounds, **self.backdrop, **{f"{name} within": value for name, value in self.within.items()}}

    @torch.no_grad()
    def outside(self, gaussians: Mapping[str, Tensor]) -> Tensor | None:
        """Return which of the patch's own Gaussians have left its reach, [N]; None where nothing bounds it."""
        return None if self.bounds is None else ~self.bounds.holds(gaussians["means"])

    @torch.no_grad()
    def hold_back(self, gaussians: Mapping[str, Tensor]) -> None:
        """Make Gaussians smaller, in place, that reach too far over the border."""
        if self.bounds is not None:
            largest = self.bounds.largest_scales(gaussians["means"]).log()
            gaussians["scales"].copy_(torch.minimum(gaussians["scales"], largest[:, None]))


NONE = Surroundings()
