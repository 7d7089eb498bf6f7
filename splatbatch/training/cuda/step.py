"""What moves the Gaussians in a step, a kernel each: Adam (Kingma 2015) of a parameter, and the noise of mcmc.

Adam has its rate and its count of steps on the GPU: nothing waits for it. torch's own fused Adam hands out 65,536
elements at a time, so that a splat's positions keep ten of a hundred multiprocessors busy: 0.43 ms per step for
250,000 Gaussians on one H200.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from splatbatch.training.cuda.driver import Kernels, address
from splatbatch.training.cuda.sources import struct

Exploration, Moved = struct("Exploration"), struct("Moved")
BETAS = (0.9, 0.999)


class Adam:
    """As `torch.optim.Adam` for one parameter, as far as gsplat's strategies and a checkpoint look into it.

    No `torch.optim.Optimizer`: making the first one of a process imports torch's compiler, which takes 1.5 s.
    """

    def __init__(self, parameter: Parameter, rate: float, eps: float, kernels: Kernels) -> None:
        on_gpu = torch.tensor(rate, device=parameter.device)
        self.param_groups: list[dict[str, Any]] = [{"params": [parameter], "lr": on_gpu}]
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self._eps, self._kernels = eps, kernels

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
        gradient, rate = parameter.grad.contiguous(), self.param_groups[0]["lr"]
        tensors = (parameter, gradient, state["exp_avg"], state["exp_avg_sq"], state["step"], rate)
        logarithms = (math.log(beta) for beta in BETAS)
        moved = Moved(*map(address, tensors), parameter.numel(), *BETAS, *logarithms, self._eps)
        self._kernels.launch("adam", parameter.numel(), moved)

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


@torch.no_grad()
def explore(
    gaussians: Mapping[str, Tensor], noise: Tensor, strength: Tensor, fading: tuple[float, float], kernels: Kernels
) -> None:
    """Add covariance x noise x strength to the means, in place, less where a Gaussian is opaque.

    Args:
        gaussians: as they are optimised: means, quats, scales, opacities.
        noise: [N, 3], normal.
        strength: [].
        fading: how steeply noise fades out, and above which opacity (3DGS-MCMC, equation 9).
        kernels: where they run.
    """
    names = ("means", "quats", "scales", "opacities")
    tensors = (*(gaussians[name] for name in names), noise, strength)
    num = len(noise)
    kernels.launch("explore", num, Exploration(*map(address, tensors), *fading, num))
