"""Adam for every parameter, with the learning rates of 3DGS, each of which ends at a hundredth of its first value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor
from torch.nn import Parameter

from splatbatch.config import Recipe, Training
from splatbatch.config.schedule import Schedule
from splatbatch.training import cuda
from splatbatch.training.gaussians import Parameters

if TYPE_CHECKING:
    from splatbatch.training.cuda.step import Adam, GradNorms

EPSILON = 1e-15  # 3DGS: gradients of far Gaussians are tiny, the usual 1e-8 would freeze them
LAST_RATE = 0.01
"""Learning rate of a parameter at the last step, as a share of the first (3DGS: of the means alone)."""


class Optimizer(Protocol):
    """Interface of an optimizer of one parameter: the part of torch's that this trainer and gsplat's strategies use."""

    param_groups: list[dict[str, Any]]
    """A list of one group, with the parameter in a list as "params" and the learning rate as "lr"."""
    state: Any
    """Step count and moments, by the parameter; empty before the first step."""

    def step(self) -> Any:
        """Update the parameter in place by its gradient; the result is not used."""
        ...

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradient of the parameter; if `set_to_none` is false, zeros may take its place instead of None."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: learning rate, step count and moments."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        ...


Optimizers = dict[str, Optimizer]


def make_optimizers(gaussians: Parameters, recipe: Recipe, plan: Schedule, scene_scale: float) -> Optimizers:
    """Return one Adam per parameter, by the parameter's name, with the learning rates of a recipe and its schedule.

    `scene_scale` is the extent of the cameras in units of the training frame, a factor of the means' learning rate.
    """
    rates = recipe.learning_rates
    rate = {
        "means": rates.means * scene_scale * plan.means_gain,
        "scales": rates.scales * plan.gain,
        "quats": rates.quats * plan.gain,
        "opacities": rates.opacities,
        "sh0": rates.sh0 * plan.gain,
        "shN": rates.shN * plan.gain,
    }
    return {name: _adam(parameter, rate[name], recipe.training) for name, parameter in gaussians.items()}


def _adam(parameter: Parameter, rate: float, training: Training) -> Optimizer:
    """Return an Adam; on a GPU, one whose step count and learning rate are tensors there, so that it never waits."""
    if not parameter.is_cuda:
        return torch.optim.Adam([{"params": parameter, "lr": rate}], eps=EPSILON)
    if not cuda.serves(parameter, training):
        groups = [{"params": parameter, "lr": torch.tensor(rate, device=parameter.device)}]
        return torch.optim.Adam(groups, eps=EPSILON, fused=True, capturable=True)
    from splatbatch.training.cuda.step import Adam

    return Adam(parameter, rate, EPSILON, cuda.loaded())


def decay(optimizers: Optimizers, means: float, others: float) -> Tensor:
    """Multiply the learning rate of the means by `means` and all others by `others`; return that of the means, [].

    A factor of 1 costs nothing: no kernel is launched.
    """
    for name, optimizer in optimizers.items():
        if (factor := means if name == "means" else others) != 1:
            optimizer.param_groups[0]["lr"] *= factor
    return torch.as_tensor(optimizers["means"].param_groups[0]["lr"])


def move(optimizers: Optimizers, radii: Tensor | None, pulls: Mapping[str, float]) -> GradNorms | None:
    """Update all parameters of one splat and clear their gradients.

    Returns the gradient norms that this package's kernels have computed; None with torch's Adam.

    Args:
        optimizers: optimizers of all parameters, by name.
        radii: [N, 2] or more rows, in px; where 0, for unseen Gaussians, this package's kernels leave the higher
            harmonics unchanged. None: all Gaussians are updated.
        pulls: weights of a strategy's regularisers, whose gradients this package's kernels add; torch's Adam ignores
            them, since they are in the loss by then.
    """
    squares = None
    if isinstance(optimizers["means"], torch.optim.Adam):
        for optimizer in optimizers.values():
            optimizer.step()
    else:
        from splatbatch.training.cuda.step import move as on_gpu

        squares = on_gpu(cast("Mapping[str, Adam]", optimizers), radii, pulls)
    for optimizer in optimizers.values():
        optimizer.zero_grad(set_to_none=True)
    return squares
