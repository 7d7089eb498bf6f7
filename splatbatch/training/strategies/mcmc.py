"""`mcmc`: gsplat's MCMCStrategy, never waiting for the GPU."""

from __future__ import annotations

from typing import Any

from gsplat.strategy import MCMCStrategy
from torch import Tensor

from splatbatch.config import Recipe
from splatbatch.config.schedule import Schedule
from splatbatch.training.gaussians import Parameters
from splatbatch.training.optim import Optimizers
from splatbatch.training.rendering.render import Rendering
from splatbatch.training.strategies.cpu_ops import use_cpu_ops
from splatbatch.training.strategies.noise import inject_noise

MCMC_OPACITY_REGULARISER = 0.01  # 3DGS-MCMC (Kheradmand 2024), section 4; gsplat's preset
MCMC_SCALE_REGULARISER = 0.01


class Mcmc:
    """3DGS-MCMC (Kheradmand 2024): move dead Gaussians onto live ones, add 5 % at a time up to the cap, explore."""

    def __init__(
        self, gaussians: Parameters, optimizers: Optimizers, recipe: Recipe, plan: Schedule, scale: float
    ) -> None:
        del scale
        use_cpu_ops()
        self._gaussians, self._optimizers, self._plan = gaussians, optimizers, plan
        self._rule = MCMCStrategy(cap_max=recipe.training.cap(), min_opacity=recipe.refinement.prune_opa)
        self._noise_lr = recipe.refinement.noise_lr
        self._binoms = self._rule.initialize_state()["binoms"].to(gaussians["means"].device)

    def regularise(self, loss: Tensor) -> Tensor:
        """Add the sizes and opacities that the rule keeps small."""
        opacities, scales = self._gaussians["opacities"].sigmoid(), self._gaussians["scales"].exp()
        return loss + MCMC_OPACITY_REGULARISER * opacities.mean() + MCMC_SCALE_REGULARISER * scales.mean()

    def step_pre_backward(self, rendering: Rendering) -> None:
        """Keep nothing."""

    def step_post_backward(self, rendering: Rendering, means_rate: Tensor) -> None:
        """Explore: move every Gaussian a little, the more transparent it is the more."""
        del rendering
        inject_noise(self._gaussians, means_rate * self._noise_lr)

    def refine(self, step: int) -> bool:
        """Relocate what is dead, and add."""
        plan = self._plan
        if not plan.refine_start < step < plan.refine_stop or step % plan.refine_every:
            return False
        self._rule._relocate_gs(self._gaussians, self._optimizers, self._binoms)
        self._rule._add_new_gs(self._gaussians, self._optimizers, self._binoms)
        return True

    def limit(self, most: int) -> None:
        """Add no further than that."""
        self._rule.cap_max = most

    def state(self) -> dict[str, Any]:
        """Return nothing: all that the rule goes by are the Gaussians."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Remember nothing."""
