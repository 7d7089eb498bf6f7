"""Adam and mcmc's noise in kernels of ours, run on the CPU, are those of torch."""

from __future__ import annotations

import copy

import pytest
import torch
from emulated_kernels import COMPILER, OnCpu

from splatbatch.config import Recipe
from splatbatch.training.cuda.step import Adam, explore
from splatbatch.training.gaussians import Parameters
from splatbatch.training.strategies import mcmc

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU")


def test_adam_is_torchs(kernels: OnCpu) -> None:
    torch.manual_seed(0)
    ours = torch.nn.Parameter(torch.randn(1000, 3))
    theirs = torch.nn.Parameter(ours.detach().clone())
    optimizers = Adam(ours, 0.01, 1e-15, kernels), torch.optim.Adam([theirs], lr=0.01, eps=1e-15)
    for scale in (1.0, 1e-3, 1e-12, 1.0, 1e-6):
        ours.grad = torch.randn(1000, 3) * scale
        theirs.grad = ours.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert float((ours - theirs).detach().abs().max()) < 1e-5


def test_adam_goes_on_from_a_checkpoint(kernels: OnCpu) -> None:
    first = torch.nn.Parameter(torch.ones(5))
    trained = Adam(first, 0.01, 1e-15, kernels)
    first.grad = torch.arange(5.0)
    trained.step()
    second = torch.nn.Parameter(first.detach().clone())
    second.grad = first.grad.clone()
    resumed = Adam(second, 1.0, 1e-15, kernels)
    resumed.load_state_dict(copy.deepcopy(trained.state_dict()))
    trained.step()
    resumed.step()
    assert torch.equal(first, second)


def test_noise_moves_the_means_as_torch_moves_them(kernels: OnCpu) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = {"means": (3,), "quats": (4,), "scales": (3,), "opacities": ()}
    values = {name: torch.randn(500, *shape, generator=generator) for name, shape in shapes.items()}
    values["opacities"] -= 5  # about as opaque as noise fades out at
    ours, theirs = (Parameters({name: value.clone() for name, value in values.items()}) for _ in range(2))
    strength, recipe = torch.tensor(0.7), Recipe()
    torch.manual_seed(3)
    mcmc.inject_noise(theirs, strength, recipe.training)
    torch.manual_seed(3)
    explore(ours, torch.randn(500, 3), strength, (mcmc.STEEPNESS, mcmc.TRANSPARENT), kernels)
    moved = (theirs["means"] - values["means"]).norm()
    assert moved > 1
    assert float((ours["means"] - theirs["means"]).norm() / moved) < 1e-5
