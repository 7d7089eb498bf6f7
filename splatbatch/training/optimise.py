"""Adam for every parameter, with the field's learning rates; the rate of the means decays to a hundredth."""

from __future__ import annotations

import torch

from splatbatch.config import Recipe
from splatbatch.config.schedule import Schedule
from splatbatch.training.gaussians import Parameters
from splatbatch.training.strategy import Optimizers

EPSILON = 1e-15  # 3DGS: gradients of far Gaussians are tiny, the usual 1e-8 would freeze them
LAST_MEANS_RATE = 0.01


def make_optimizers(gaussians: Parameters, recipe: Recipe, plan: Schedule, scene_scale: float) -> Optimizers:
    """Return one Adam per parameter, as gsplat's strategies want them."""
    rates = recipe.learning_rates
    rate = {
        "means": rates.means * scene_scale * plan.means_gain,
        "scales": rates.scales * plan.gain,
        "quats": rates.quats * plan.gain,
        "opacities": rates.opacities,
        "sh0": rates.sh0 * plan.gain,
        "shN": rates.shN * plan.gain,
    }
    return {
        name: torch.optim.Adam([{"params": parameter, "lr": rate[name]}], eps=EPSILON, fused=parameter.is_cuda)
        for name, parameter in gaussians.items()
    }


def decay(optimizers: Optimizers, plan: Schedule) -> float:
    """Lower the rate of the means by one step's share; return it."""
    group = optimizers["means"].param_groups[0]
    group["lr"] *= LAST_MEANS_RATE ** (1 / plan.max_steps)
    return float(group["lr"])
