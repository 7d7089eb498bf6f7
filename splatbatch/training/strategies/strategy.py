"""What every densification rule can do: three things within a training step, and one between steps."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor

from splatbatch.training.border import NONE, PatchBorder
from splatbatch.training.rendering.view import Rendering
from splatbatch.training.strategies.importance import PruningViews


class Strategy:
    """A densification rule around a training step; a rule says only what it does otherwise.

    All but `refine` are part of the step itself: they do the same things in every step, on the device, and never wait
    for it, so that a step can be recorded and replayed.
    """

    _surroundings: PatchBorder = NONE
    _album: PruningViews | None = None

    def within(self, surroundings: PatchBorder) -> None:
        """Keep to what bounds the patch: a Gaussian that has left it does not count as alive."""
        self._surroundings = surroundings

    def judge_by(self, album: PruningViews) -> None:
        """Tell by these photographs, between steps, what Gaussians are worth."""
        self._album = album

    regulariser_weights: Mapping[str, float] = MappingProxyType({})
    """Weights of mean opacity and mean scale in what is minimised, by the names of their parameters."""

    def regularise(self, loss: Tensor) -> Tensor:
        """Add what the rule wants minimised, as its pulls say."""
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
