"""Adam (Kingma 2015) in one kernel per parameter, with its rate and its count of steps on the GPU.

torch's own fused Adam hands out 65,536 elements at a time, so that a splat's positions keep ten of a hundred
multiprocessors busy: 0.43 ms per step for 250,000 Gaussians on one H200.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import Parameter

BLOCK = 1024
BETAS = (0.9, 0.999)


class Adam:
    """As `torch.optim.Adam` for one parameter, as far as gsplat's strategies and a checkpoint look into it.

    No `torch.optim.Optimizer`: making the first one of a process imports torch's compiler, which takes 1.5 s.
    """

    def __init__(self, parameter: Parameter, rate: float, eps: float) -> None:
        on_gpu = torch.tensor(rate, device=parameter.device)
        self.param_groups: list[dict[str, Any]] = [{"params": [parameter], "lr": on_gpu}]
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self._eps = eps

    @torch.no_grad()
    def step(self) -> None:
        """Move the parameter, if it has a gradient; nothing here waits for the GPU."""
        (parameter,) = self.param_groups[0]["params"]
        if parameter.grad is None:
            return
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        num, gradient, rate = parameter.numel(), parameter.grad.contiguous(), self.param_groups[0]["lr"]
        _adam[(triton.cdiv(num, BLOCK),)](
            *(parameter, gradient, state["exp_avg"], state["exp_avg_sq"], state["step"], rate),
            *(num, *BETAS, self._eps, BLOCK),
        )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradient."""
        del set_to_none
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        (parameter,) = self.param_groups[0]["params"]
        return {"lr": self.param_groups[0]["lr"], "state": dict(self.state[parameter])}

    def load_state_dict(self, record: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, on the device of the parameter."""
        (parameter,) = self.param_groups[0]["params"]
        self.param_groups[0]["lr"] = record["lr"].to(parameter.device)
        moved: dict[str, Tensor] = {name: value.to(parameter.device) for name, value in record["state"].items()}
        self.state.clear()
        self.state[parameter] = moved


@triton.jit(do_not_specialize=["num"])
def _adam(values, gradients, means, squares, steps, rate, num, beta1, beta2, eps, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < num
    step, rate = tl.load(steps), tl.load(rate)
    gradient = tl.load(gradients + place, inside, other=0.0)
    mean = beta1 * tl.load(means + place, inside, other=0.0) + (1 - beta1) * gradient
    square = beta2 * tl.load(squares + place, inside, other=0.0) + (1 - beta2) * gradient * gradient
    tl.store(means + place, mean, inside)
    tl.store(squares + place, square, inside)
    # both averages start at 0 and are too small by 1 - beta^step
    correction1, correction2 = 1 - tl.exp(step * tl.log(beta1)), 1 - tl.exp(step * tl.log(beta2))
    move = rate / correction1 * mean / (tl.sqrt(square / correction2) + eps)
    tl.store(values + place, tl.load(values + place, inside, other=0.0) - move, inside)
