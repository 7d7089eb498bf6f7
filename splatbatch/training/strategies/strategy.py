"""What every densification rule can do: three things within a training step, and one between steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor

from splatbatch.config import Recipe
from splatbatch.config.schedule import Schedule
from splatbatch.training.border import NONE, PatchBorder
from splatbatch.training.gaussians import Parameters
from splatbatch.training.optim import Optimizers
from splatbatch.training.rendering.view import Rendering
from splatbatch.training.strategies.importance import PruningViews


@dataclass(eq=False)
class Strategy:
    """A densification rule around a training step; a rule says only what it does otherwise.

    All but `refine` are part of the step itself: they do the same things in every step, on the device, and never wait
    for it, so that a step can be recorded and replayed.
    """

    gaussians: Parameters
    """What is optimised; their number changes in place."""
    optimizers: Optimizers
    recipe: Recipe
    plan: Schedule
    scene_scale: float
    """Reach of the cameras, in units of the Gaussians."""
    border: PatchBorder = NONE
    """Of the patch: a Gaussian that has left it does not count as alive."""
    pruning_views: PruningViews | None = None
    """Photographs that tell what Gaussians are worth; None: nothing is pruned by that."""

    regulariser_weights: ClassVar[Mapping[str, float]] = MappingProxyType({})
    """Weights of mean opacity and mean scale in what is minimised, by the names of their parameters."""

    def __post_init__(self) -> None:
        """Make what the rule remembers."""

    def regularise(self, loss: Tensor) -> Tensor:
        """Add what the rule wants minimised, as its regulariser weights say."""
        return loss

    def step_pre_backward(self, rendering: Rendering) -> None:
        """Keep what the rule reads after the backward pass."""

    def step_post_backward(self, rendering: Rendering, means_rate: Tensor) -> None:
        """Note what the rule goes by, and move what it moves in every step; `means_rate` is the means' rate, []."""

    def refine(self, step: int) -> bool:
        """Add, move and remove Gaussians if it is time; return whether steps are different from now on."""
        raise NotImplementedError

    def has_grown(self, step: int) -> bool:
        """Return whether the rule adds no Gaussians any more after a step, and `end` takes nothing from the splat."""
        raise NotImplementedError

    def end(self) -> None:
        """Refine no more from now on."""
        raise NotImplementedError

    def limit(self, most: int) -> None:
        """Let there be at most so many Gaussians from now on; more than that are kept."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return what the rule remembers besides the Gaussians, as tensors and plain values, for a checkpoint."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Remember what a checkpoint says, its tensors on the device of the Gaussians."""
