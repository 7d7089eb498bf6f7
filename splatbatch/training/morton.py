"""Gaussians in Morton order (Morton 1966): neighbours in space are neighbours in memory."""

from __future__ import annotations

import torch
from gsplat.strategy.ops import _update_param_with_optimizer
from torch import Tensor
from torch.nn import Parameter

from splatbatch.training.cuda.native import trial
from splatbatch.training.gaussians import Parameters
from splatbatch.training.optim import Optimizers

DEVIATIONS = 3.0
"""From the middle, on each axis, within which places are told apart."""
BITS = 10
EVERY = 5
"""Refinements between two sorts."""


@torch.no_grad()
def sort(gaussians: Parameters, optimizers: Optimizers, nth: int) -> None:
    """Sort Gaussians and what their optimizers keep, after some refinements."""
    if "morton" not in trial.ON or nth % EVERY:
        return
    order = codes(gaussians["means"]).argsort()
    _update_param_with_optimizer(
        lambda _, value: Parameter(value[order], value.requires_grad),
        lambda _, value: value[order],
        gaussians,
        optimizers,
    )


def codes(means: Tensor) -> Tensor:
    """Return how far along the curve each place lies, [N] int32."""
    spread, middle = torch.std_mean(means, 0)
    places = (means - middle) / (2 * DEVIATIONS * spread.clamp_min(1e-12)) + 0.5
    cells = (places * 2**BITS).nan_to_num().clamp(0, 2**BITS - 1).int()
    for by, mask in ((16, 0x030000FF), (8, 0x0300F00F), (4, 0x030C30C3), (2, 0x09249249)):
        cells = (cells | cells << by) & mask
    along: Tensor = cells[:, 0] | cells[:, 1] << 1 | cells[:, 2] << 2
    return along
