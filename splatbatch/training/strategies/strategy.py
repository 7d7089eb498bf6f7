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

    `regularise`, `step_pre_backward` and `step_post_backward` are part of the step: the same in every step, without
    waiting for the device. So a step can be recorded as a CUDA graph and replayed. All other methods are called between
    steps.
    """

    gaussians: Parameters
    """Parameters that are optimised, by name; a strategy replaces them in this dictionary when their number changes."""
    optimizers: Optimizers
    """Optimizer of each parameter, by the parameter's name; adapted together with the parameters."""
    recipe: Recipe
    """Recipe of the run; ValueError is raised at construction if its `cap_max` is a multiple of the sparse points."""
    plan: Schedule
    scene_scale: float
    """Extent of the cameras ("cameras extent" of 3DGS), in units of the training frame."""
    border: PatchBorder = NONE
    """Border of the patch: Gaussians outside its bounds are removed or relocated; by default there are no bounds."""
    pruning_views: PruningViews | None = None
    """Photographs on which the importance of Gaussians is measured; None: nothing is pruned by importance."""

    regulariser_weights: ClassVar[Mapping[str, float]] = MappingProxyType({})
    """Weights of the mean opacity and the mean scale in the loss, by parameter name; empty: no regulariser."""

    def __post_init__(self) -> None:
        """Create the state of the strategy; nothing in this class."""

    def regularise(self, loss: Tensor) -> Tensor:
        """Return the loss, [], plus the regularisers of the strategy; unchanged if the strategy has none."""
        return loss

    def step_pre_backward(self, rendering: Rendering) -> None:
        """Let autograd retain the gradients of the rendering that the strategy reads after the backward pass."""

    def step_post_backward(self, rendering: Rendering, means_rate: Tensor) -> None:
        """Accumulate statistics or perturb Gaussians after the update; `means_rate` is the means' learning rate, []."""

    def refine(self, step: int) -> bool:
        """Densify and prune if the schedule has this step, counted from 0.

        Returns whether recorded steps (CUDA graphs) are invalid, since Gaussians or the strategy's work have changed.
        """
        raise NotImplementedError

    def has_grown(self, step: int) -> bool:
        """Return whether growth has ended at this step, so that early stopping may end the run without a loss."""
        raise NotImplementedError

    def limit(self, most: int) -> None:
        """Set the number of Gaussians up to which the strategy adds new ones; a larger number is not reduced."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return the state of the strategy for a checkpoint, without the Gaussians, as tensors and plain values.

        Empty if the strategy has no state.
        """
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state that `state` returned; its tensors are on the device of the Gaussians."""
