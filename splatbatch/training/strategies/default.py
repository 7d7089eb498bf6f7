"""`default`: gsplat's DefaultStrategy with a cap and working opacity resets; no step waits for the GPU."""

from __future__ import annotations

from typing import Any

import torch
from gsplat.strategy import DefaultStrategy
from gsplat.strategy.ops import remove, reset_opa
from torch import Tensor

from splatbatch.training import cuda
from splatbatch.training.gaussians import Parameters
from splatbatch.training.optim import Optimizers
from splatbatch.training.rendering.view import Rendering
from splatbatch.training.strategies.importance import prunable
from splatbatch.training.strategies.strategy import Strategy

MOST_LOGIT = 15.0
"""Largest logit of an opacity before a split; from 17 on, float32 rounds the opacity to 1, and halves become infinite.

A Gaussian is rendered with an opacity of 0.999 at most, which is a logit of 7.
"""


class Default(Strategy):
    """Strategy of 3DGS (Kerbl 2023): split and duplicate where image-plane gradients are large, prune the transparent.

    The two halves of a split Gaussian together have its opacity (Rota Bulo 2024, arXiv 2404.06109). Growth ends at the
    cap. Gaussians outside the bounds of the patch are removed before each refinement.
    """

    def __post_init__(self) -> None:
        settings, plan = self.recipe.refinement, self.plan
        self._rule = _CappedDefault(
            cap_max=self.recipe.training.cap(),
            prune_opa=settings.prune_opa,
            grow_grad2d=settings.grow_grad2d,
            grow_scale3d=settings.grow_scale3d,
            prune_scale3d=settings.prune_scale3d,
            refine_start_iter=plan.refine_start,
            refine_stop_iter=plan.refine_stop,
            refine_every=plan.refine_every,
            reset_every=plan.reset_every or plan.max_steps + 1,
            absgrad=settings.absgrad,
            revised_opacity=True,
        )
        self._watches = True
        self._state = self._rule.initialize_state(scene_scale=self.scene_scale)
        for name in ("grad2d", "count"):
            self._state[name] = torch.zeros_like(self.gaussians["opacities"], requires_grad=False)

    def step_pre_backward(self, rendering: Rendering) -> None:
        """Let autograd retain the gradients of the projected means, until refinement has ended."""
        if self._watches:
            rendering.info["rows" if "rows" in rendering.info else "means2d"].retain_grad()

    def step_post_backward(self, rendering: Rendering, means_rate: Tensor) -> None:
        """Accumulate the gradients of the projected means, until refinement has ended; `means_rate` is not used."""
        del means_rate
        if self._watches:
            self._rule.accumulate_grad2d(self._state, rendering)

    def refine(self, step: int) -> bool:
        """Split, duplicate, prune and reset opacities if the schedule has this step, counted from 0.

        Returns whether recorded steps (CUDA graphs) are invalid. gsplat 1.5.3 never resets opacities: at
        strategy/default.py:195 `&` binds tighter than the comparisons beside it (mended on its main branch, PR #776).
        So opacities are reset here.

        Raises:
            TrainerError: there are no kernels for the GPU.
        """
        plan, has_changed = self.plan, False
        if step >= plan.refine_stop:
            has_changed, self._watches = self._watches, False
        elif step > plan.refine_start and step % plan.refine_every == 0:
            outside = self.border.out_of_bounds(self.gaussians)
            if outside is not None and outside.any():
                remove(self.gaussians, self.optimizers, self._state, outside)
            self._rule.refine(self.gaussians, self.optimizers, self._state, step)
            has_changed = True
        loss_db = self.recipe.refinement.prune_loss_db
        if plan.prune_at and step == plan.prune_at and self.pruning_views and loss_db:
            leaves = prunable(self.gaussians, self.pruning_views, loss_db)  # the Gaussians of least importance
            remove(self.gaussians, self.optimizers, self._state, leaves)
            has_changed |= bool(leaves.any())
        if plan.reset_every and 0 < step < plan.reset_stop and step % plan.reset_every == 0:
            reset_opa(self.gaussians, self.optimizers, self._state, value=2 * self._rule.prune_opa)
            has_changed = True
        return has_changed

    def has_grown(self, step: int) -> bool:
        """Return whether refinement and pruning by importance have ended at this step."""
        return step >= max(self.plan.refine_stop, self.plan.prune_at)

    def limit(self, most: int) -> None:
        """Set the number of Gaussians up to which they are split and duplicated; Gaussians above are kept."""
        self._rule.cap_max = most

    def state(self) -> dict[str, Any]:
        """Return the gradients and view counts accumulated since the last refinement, for a checkpoint; not copied."""
        return dict(self._state)

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the accumulated gradients and view counts of a checkpoint, on the device of the Gaussians."""
        self._state.update(state)


class _CappedDefault(DefaultStrategy):  # type: ignore[misc]
    """gsplat's DefaultStrategy with a cap: close to it, only Gaussians with the largest gradients grow.

    gsplat's `step_post_backward` waits for the GPU three times in every step, and empties torch's memory cache after
    each refinement. So it is not used: accumulation and refinement are called from here.
    """

    def __init__(self, cap_max: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.cap_max = cap_max

    @torch.no_grad()
    def accumulate_grad2d(self, state: dict[str, Any], rendering: Rendering) -> None:
        """Accumulate each Gaussian's image-plane gradient, in half image sizes, and the number of views that see it."""
        info, num = rendering.info, len(state["count"])  # the patch's own Gaussians come before the backdrop
        halves = info["width"] / 2, info["height"] / 2
        if (rows := info.get("rows")) is not None:
            from splatbatch.training.cuda.step import accumulate_grad2d

            pulls = rows.grad[0, :, 10:] if self.absgrad else rows.grad[0]
            accumulate_grad2d(pulls, info["radii"][0], state["grad2d"], state["count"], halves, cuda.loaded())
            return
        means2d = info["means2d"]
        pull = (means2d.absgrad if self.absgrad else means2d.grad)[0, :num]  # [N, 2]; 0 where one is not seen
        state["grad2d"] += torch.hypot(pull[:, 0] * halves[0], pull[:, 1] * halves[1])
        state["count"] += (info["radii"][0, :num] > 0).all(dim=-1)

    @torch.no_grad()
    def refine(self, params: Parameters, optimizers: Optimizers, state: dict[str, Any], step: int) -> None:
        """Split and duplicate, prune, and reset the accumulated gradients."""
        params["opacities"].clamp_(max=MOST_LOGIT)
        self._grow_gs(params, optimizers, state, step)
        self._prune_gs(params, optimizers, state, step)
        state["grad2d"].zero_()
        state["count"].zero_()

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
