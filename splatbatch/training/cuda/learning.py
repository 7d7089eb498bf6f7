"""Adam within the backward pass of projection: gradients go into their parameters without being written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from splatbatch.training.cuda import native
from splatbatch.training.cuda.adam import BETAS, Adam
from splatbatch.training.cuda.native import trial


@torch.no_grad()
def learner_of(optimizers: Mapping[str, Any]) -> native.Learner | None:
    """Return how a step learns that begins now, which is counted; None where its gradients must be written down."""
    adams = {name: optimizer for name, optimizer in optimizers.items() if isinstance(optimizer, Adam)}
    if "adam" not in trial.ON or len(adams) < len(optimizers) or native.chosen() is None:
        return None
    states = {name: adam.moments() for name, adam in adams.items()}
    torch._foreach_add_([state["step"] for state in states.values()], 1)
    moments = {
        name: native.Moments(state["exp_avg"], state["exp_avg_sq"], adams[name].param_groups[0]["lr"], state["step"])
        for name, state in states.items()
    }
    return native.Learner(moments, BETAS, adams["means"].eps, "sparse" in trial.ON)
