"""Interface of densification strategies: hooks within a training step, and `refine` between steps."""

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
    """Base class of densification strategies; a strategy overrides the hooks that it needs.

    `regularise`, `step_pre_backward` and `step_post_backward` are part of the step. They do the same in every step and
    never wait for the device. So a step can be recorded as a CUDA graph and replayed.
    """

    gaussians: Parameters
    """Parameters that are optimised; a strategy replaces them in this dictionary when their number changes."""
    optimizers: Optimizers
    recipe: Recipe
    plan: Schedule
    scene_scale: float
    """Extent of the cameras ("cameras extent" of 3DGS), in units of the training frame."""
    border: PatchBorder = NONE
    """Border of the patch: Gaussians beyond its reach are removed or relocated."""
    pruning_views: PruningViews | None = None
    """Photographs on which the importance of Gaussians is measured; None: nothing is pruned by importance."""

    regulariser_weights: ClassVar[Mapping[str, float]] = MappingProxyType({})
    """Weights of the mean opacity and the mean scale in the loss, by parameter name; empty: no regulariser."""

    def __post_init__(self) -> None:
        """Initialise the state of the strategy."""

    def regularise(self, loss: Tensor) -> Tensor:
        """Return the loss plus the regularisers of the strategy, weighted by `regulariser_weights`."""
        return loss

    def step_pre_backward(self, rendering: Rendering) -> None:
        """Retain the gradients of the rendering that the strategy reads after the backward pass."""

    def step_post_backward(self, rendering: Rendering, means_rate: Tensor) -> None:
        """Accumulate statistics or perturb Gaussians after the update; `means_rate` is the means' learning rate, []."""

    def refine(self, step: int) -> bool:
        """Densify and prune if this step is due; return whether recorded steps are invalid from now on."""
        raise NotImplementedError

    def has_grown(self, step: int) -> bool:
        """Return whether growth has ended after this step, so that early stopping may call `end` without a loss."""
        raise NotImplementedError

    def end(self) -> None:
        """Stop densifying and relocating from now on, for the tail of a run that ends early."""
        raise NotImplementedError

    def limit(self, most: int) -> None:
        """Set the number of Gaussians up to which the strategy adds new ones; a larger number is not reduced."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return the state of the strategy for a checkpoint, without the Gaussians, as tensors and plain values."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state from a checkpoint; its tensors are on the device of the Gaussians."""
