"""Updates of Gaussians by this package's kernels: Adam (Kingma 2015), gradient statistics, and the noise of `mcmc`.

Learning rate and step count of Adam are on the GPU, so that the host never waits. torch's own fused Adam hands out
65,536 elements at a time, so that a splat's positions keep ten of a hundred multiprocessors busy: 0.43 ms per step for
250,000 Gaussians on one H200.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from splatbatch.training.cuda.driver import Kernels, address
from splatbatch.training.cuda.sources import constant, struct

Exploration, Moved, Watching = struct("Exploration"), struct("Moved"), struct("Watching")
STEP_THREADS, WARP, NUMBERS = constant("STEP_THREADS"), constant("WARP"), constant("NUMBERS")
BETAS = (0.9, 0.999)


class Adam:
    """Adam for one parameter on a GPU, with the attributes of `torch.optim.Adam` that gsplat's strategies use.

    The class does not derive from `torch.optim.Optimizer`, whose first instance in a process imports torch's compiler,
    which takes 1.5 s. `parameter` is on a GPU; `rate` is its first learning rate, `eps` the term of Adam that avoids a
    division by zero; `kernels` are launched.
    """

    def __init__(self, parameter: Parameter, rate: float, eps: float, kernels: Kernels) -> None:
        on_gpu = torch.tensor(rate, device=parameter.device)
        self.param_groups: list[dict[str, Any]] = [{"params": [parameter], "lr": on_gpu}]
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self.eps, self.kernels = eps, kernels

    def step(self) -> None:
        """Update the parameter in place if it has a gradient; does not wait for the GPU."""
        move({"": self})

    @property
    def parameter(self) -> Parameter:
        """Return the parameter that is optimised; strategies replace it when the number of Gaussians changes."""
        parameter: Parameter = self.param_groups[0]["params"][0]
        return parameter

    def made(self) -> dict[str, Any]:
        """Return the state of the parameter (step count and moments), which is created, as zeros, at first use."""
        parameter = self.parameter
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradient of the parameter to None, whatever `set_to_none` says."""
        del set_to_none
        self.parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return learning rate, step count and moments for a checkpoint, not copied; "state" is empty before a step."""
        return {"lr": self.param_groups[0]["lr"], "state": dict(self.state[self.parameter])}

    def load_state_dict(self, record: Mapping[str, Any]) -> None:
        """Restore learning rate, step count and moments from a record of `state_dict`, on the parameter's device."""
        parameter = self.parameter
        self.param_groups[0]["lr"] = record["lr"].to(parameter.device)
        moved: dict[str, Tensor] = {name: value.to(parameter.device) for name, value in record["state"].items()}
        self.state.clear()
        self.state[parameter] = moved


@dataclass(frozen=True)
class GradNorms:
    """Gradient norms of a step, as partial sums of squares; each replay of a CUDA graph overwrites the sums."""

    parts: Tensor
    """Sums of squared gradients by warp of the kernel, parameter after parameter."""
    ends: Mapping[str, int]
    """Index in `parts` after the last sum of each parameter, by the parameter's name, in the order of `parts`."""

    def norms(self) -> dict[str, Tensor]:
        """Return the norm of each parameter's gradient, [], by name; computed on the GPU without waiting."""
        starts = (0, *self.ends.values())
        return {name: self.parts[start:end].sum().sqrt() for start, (name, end) in zip(starts, self.ends.items())}  # noqa: B905


@torch.no_grad()
def move(
    adams: Mapping[str, Adam], radii: Tensor | None = None, pulls: Mapping[str, float] | None = None
) -> GradNorms | None:
    """Update the parameters of up to six Adams that have gradients, in one kernel; does not wait for the GPU.

    Returns the gradient norms; None if no parameter has a gradient. Gradients are not cleared.

    Args:
        adams: optimizers by the names of one splat's parameters.
        radii: [N, 2] or more rows, int32, px; where 0, for unseen Gaussians, higher harmonics and their moments stay
            unchanged. None: all Gaussians are updated.
        pulls: weights of mean opacity and mean scale in the loss, by the names of their parameters; None: no
            regularisers.
    """
    gradients = {
        name: adam.parameter.grad.contiguous() for name, adam in adams.items() if adam.parameter.grad is not None
    }
    if not gradients:
        return None
    states = {name: adams[name].made() for name in gradients}
    torch._foreach_add_([state["step"] for state in states.values()], 1)
    moved, ends = Moved(), dict[str, int]()
    for index, (name, gradient) in enumerate(gradients.items()):
        adam, state, num = adams[name], states[name], gradient.numel()
        moved.values[index], moved.gradients[index] = address(adam.parameter), address(gradient)
        moved.means[index], moved.squares[index] = address(state["exp_avg"]), address(state["exp_avg_sq"])
        moved.steps[index], moved.rates[index] = address(state["step"]), address(adam.param_groups[0]["lr"])
        ends[name] = moved.ends[index] = moved.ends[max(0, index - 1)] + -(-num // (NUMBERS * STEP_THREADS))
        moved.nums[index], moved.are_logits[index] = num, name == "opacities"
        moved.if_seen[index] = gradient[0].numel() if radii is not None and name == "shN" else 0
        moved.pulls[index] = (pulls or {}).get(name, 0.0) / max(1, num)
    squares = gradient.new_empty(ends[name] * STEP_THREADS // WARP)
    moved.radii, moved.norms, moved.eps = address(radii), address(squares), adam.eps
    moved.beta1, moved.beta2, moved.log_beta1, moved.log_beta2 = *BETAS, *map(math.log, BETAS)
    adam.kernels.launch("adam", ends[name] * STEP_THREADS, moved)
    return GradNorms(squares, {name: end * STEP_THREADS // WARP for name, end in ends.items()})


@torch.no_grad()
def accumulate_grad2d(
    pulls: Tensor, radii: Tensor, sums: Tensor, counts: Tensor, halves: tuple[float, float], kernels: Kernels
) -> None:
    """Accumulate, in place, image-plane gradients and view counts of the first `len(sums)` Gaussians of a rendering.

    Args:
        pulls: [N, 2] or more columns, gradients of the projected means.
        radii: [N, 2], int32, px; 0: the Gaussian is not seen.
        sums: [n], n at most N, sums of the lengths of gradients, in half image sizes.
        counts: [n], numbers of views that have seen each Gaussian.
        halves: half of width and height, px.
        kernels: kernels to launch.
    """
    rows = pulls if pulls.stride(1) == 1 else pulls.contiguous()
    tensors = (rows, radii.contiguous(), sums, counts)
    kernels.launch("watch", len(sums), Watching(*map(address, tensors), *halves, rows.stride(0), len(sums)))


@torch.no_grad()
def perturb_means(
    gaussians: Mapping[str, Tensor], noise: Tensor, strength: Tensor, fading: tuple[float, float], kernels: Kernels
) -> None:
    """Add covariance x noise x strength to the means of Gaussians, in place; the more opaque, the less is added.

    Args:
        gaussians: parameters before activation: means, quats, scales, opacities.
        noise: [N, 3], drawn from a normal distribution.
        strength: [], on the GPU.
        fading: slope and midpoint of the sigmoid by which noise fades with the opacity (3DGS-MCMC, equation 9).
        kernels: kernels to launch.
    """
    names = ("means", "quats", "scales", "opacities")
    tensors = (*(gaussians[name] for name in names), noise, strength)
    num = len(noise)
    kernels.launch("explore", num, Exploration(*map(address, tensors), *fading, num))
