"""When Gaussians are added, moved and removed: gsplat's `default` and `mcmc` behind one signature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from gsplat.strategy import DefaultStrategy, MCMCStrategy
from gsplat.strategy.ops import reset_opa
from torch import Tensor
from torch.optim import Optimizer

from splatbatch.config import Recipe
from splatbatch.config.schedule import Schedule
from splatbatch.training.gaussians import Parameters
from splatbatch.training.rasterize import Rendering
from splatbatch.training.strategy_cpu import use_cpu_ops

MCMC_OPACITY_REGULARISER = 0.01  # 3DGS-MCMC (Kheradmand 2024), section 4; gsplat's preset
MCMC_SCALE_REGULARISER = 0.01

Optimizers = dict[str, Optimizer]


class Strategy(Protocol):
    """A densification rule around the loop's own backward pass."""

    def regularise(self, loss: Tensor) -> Tensor:
        """Add what the rule wants minimised."""
        ...

    def before_backward(self, step: int, rendering: Rendering) -> None:
        """Keep what the rule reads after the backward pass."""
        ...

    def after_step(self, step: int, rendering: Rendering, means_rate: float) -> None:
        """Refine if it is time; `means_rate` is the learning rate of the means."""
        ...

    def limit(self, most: int) -> None:
        """Let there be at most so many Gaussians from now on; more than that are kept."""
        ...

    def state(self) -> dict[str, Any]:
        """Return what the rule remembers, as tensors and plain values, for a checkpoint."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Remember what a checkpoint says, its tensors on the device of the Gaussians."""
        ...


class Default:
    """3DGS (Kerbl 2023): split and duplicate where image-plane gradients are large, prune what is transparent."""

    def __init__(
        self, gaussians: Parameters, optimizers: Optimizers, recipe: Recipe, plan: Schedule, scale: float
    ) -> None:
        settings = recipe.refinement
        self._gaussians, self._optimizers = gaussians, optimizers
        self._reset_every, self._reset_stop = plan.reset_every, plan.reset_stop
        self._rule = _CappedDefault(
            cap_max=recipe.training.cap(),
            prune_opa=settings.prune_opa,
            grow_grad2d=settings.grow_grad2d,
            grow_scale3d=settings.grow_scale3d,
            prune_scale3d=settings.prune_scale3d,
            refine_start_iter=plan.refine_start,
            refine_stop_iter=plan.refine_stop,
            refine_every=plan.refine_every,
            reset_every=plan.reset_every or plan.max_steps + 1,
            absgrad=settings.absgrad,
        )
        self._state = self._rule.initialize_state(scene_scale=scale)

    def regularise(self, loss: Tensor) -> Tensor:
        """Return the loss as it is."""
        return loss

    def before_backward(self, step: int, rendering: Rendering) -> None:
        """Keep the gradients of the projected means."""
        self._rule.step_pre_backward(self._gaussians, self._optimizers, self._state, step, rendering.info)

    def after_step(self, step: int, rendering: Rendering, means_rate: float) -> None:
        """Refine, and reset opacities.

        gsplat 1.5.3 never resets: at strategy/default.py:195 `&` binds tighter than the comparisons beside it
        (mended on its main branch, PR #776). So the reset is ours.
        """
        del means_rate
        self._rule.step_post_backward(
            self._gaussians, self._optimizers, self._state, step, rendering.info, packed=rendering.packed
        )
        if self._reset_every and 0 < step < self._reset_stop and step % self._reset_every == 0:
            reset_opa(self._gaussians, self._optimizers, self._state, value=2 * self._rule.prune_opa)

    def limit(self, most: int) -> None:
        """Grow no further than that."""
        self._rule.cap_max = most

    def state(self) -> dict[str, Any]:
        """Return the gradients added up since the last refinement."""
        return dict(self._state)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on adding up from there."""
        self._state.update(state)


class _CappedDefault(DefaultStrategy):  # type: ignore[misc]
    """gsplat's rule, which knows no cap: at the cap only the neediest Gaussians grow."""

    def __init__(self, cap_max: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.cap_max = cap_max

    @torch.no_grad()
    def _grow_gs(self, params: Parameters, optimizers: Optimizers, state: dict[str, Any], step: int) -> Any:
        room = self.cap_max - len(params["means"])
        if room <= 0:
            return 0, 0
        need = state["grad2d"] / state["count"].clamp_min(1)
        if room < len(need):
            least = need.topk(room).values[-1]
            state["grad2d"].mul_(need >= least)
        return super()._grow_gs(params, optimizers, state, step)


class Mcmc:
    """3DGS-MCMC (Kheradmand 2024): move dead Gaussians onto live ones, add 5 % at a time up to the cap, explore."""

    def __init__(
        self, gaussians: Parameters, optimizers: Optimizers, recipe: Recipe, plan: Schedule, scale: float
    ) -> None:
        del scale
        use_cpu_ops()
        self._gaussians, self._optimizers = gaussians, optimizers
        self._rule = MCMCStrategy(
            cap_max=recipe.training.cap(),
            noise_lr=recipe.refinement.noise_lr,
            refine_start_iter=plan.refine_start,
            refine_stop_iter=plan.refine_stop,
            refine_every=plan.refine_every,
            min_opacity=recipe.refinement.prune_opa,
        )
        self._state = self._rule.initialize_state()

    def regularise(self, loss: Tensor) -> Tensor:
        """Add the sizes and opacities that the rule keeps small."""
        opacities, scales = self._gaussians["opacities"].sigmoid(), self._gaussians["scales"].exp()
        return loss + MCMC_OPACITY_REGULARISER * opacities.mean() + MCMC_SCALE_REGULARISER * scales.mean()

    def before_backward(self, step: int, rendering: Rendering) -> None:
        """Keep nothing."""

    def after_step(self, step: int, rendering: Rendering, means_rate: float) -> None:
        """Relocate and add if it is time; add noise always."""
        self._rule.step_post_backward(
            self._gaussians, self._optimizers, self._state, step, rendering.info, lr=means_rate
        )

    def limit(self, most: int) -> None:
        """Add no further than that."""
        self._rule.cap_max = most

    def state(self) -> dict[str, Any]:
        """Return nothing: all that the rule goes by are the Gaussians."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Remember nothing."""


STRATEGIES: dict[str, Callable[[Parameters, Optimizers, Recipe, Schedule, float], Strategy]] = {
    "default": Default,
    "mcmc": Mcmc,
}
