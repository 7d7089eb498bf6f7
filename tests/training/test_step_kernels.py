"""Adam and mcmc's noise in kernels of ours, run on the CPU, are those of torch."""

from __future__ import annotations

import copy

import pytest
import torch
from emulated_kernels import COMPILER, OnCpu

from splatbatch.config import Recipe
from splatbatch.training.cuda.step import Adam, accumulate_grad2d, move, perturb_means
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


def test_all_parameters_move_at_once_as_one_by_one_and_pulls_are_those_of_a_loss(kernels: OnCpu) -> None:
    torch.manual_seed(0)
    shapes, pulls = {"means": (70, 3), "scales": (70, 3), "opacities": (70,)}, {"scales": 2.0, "opacities": 3.0}
    ours = {name: torch.nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()}
    theirs = {name: torch.nn.Parameter(value.detach().clone()) for name, value in ours.items()}
    adams = {name: Adam(value, 0.01, 1e-15, kernels) for name, value in ours.items()}
    optimizer = torch.optim.Adam(theirs.values(), lr=0.01, eps=1e-15)
    for _ in range(3):
        for name, value in ours.items():
            value.grad = torch.randn(shapes[name])
            theirs[name].grad = value.grad.clone()
        (2 * theirs["scales"].exp().mean() + 3 * theirs["opacities"].sigmoid().mean()).backward()
        optimizer.step()
        move(adams, None, pulls)
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-5) for name in shapes)


def test_higher_harmonics_stay_as_they_are_where_a_gaussian_is_not_seen(kernels: OnCpu) -> None:
    shapes = {"sh0": (5, 1, 3), "shN": (5, 15, 3)}
    values = {name: torch.nn.Parameter(torch.ones(shape)) for name, shape in shapes.items()}
    adams = {name: Adam(value, 0.01, 1e-15, kernels) for name, value in values.items()}
    for name, value in values.items():
        value.grad = torch.ones(shapes[name])
    move(adams, torch.tensor([[1, 1], [0, 0], [2, 3], [0, 0], [1, 0]], dtype=torch.int32))
    moved = (values["shN"] != 1).flatten(1).all(1)
    assert moved.tolist() == [True, False, True, False, False]
    assert bool((values["sh0"] != 1).all())
    assert torch.equal(adams["shN"].made()["exp_avg"][:, 0, 0] != 0, moved)


def test_norms_of_gradients_are_known_by_parameter(kernels: OnCpu) -> None:
    values = {
        name: torch.nn.Parameter(torch.zeros(shape)) for name, shape in {"means": (300, 3), "scales": (7, 3)}.items()
    }
    for value in values.values():
        value.grad = torch.randn(value.shape)
    squares = move({name: Adam(value, 0.01, 1e-15, kernels) for name, value in values.items()})
    assert squares is not None
    assert {name: float(norm) for name, norm in squares.norms().items()} == pytest.approx(
        {name: float(value.grad.norm()) for name, value in values.items() if value.grad is not None}
    )


def test_what_default_grows_by_is_added_up_where_a_gaussian_is_seen(kernels: OnCpu) -> None:
    torch.manual_seed(0)
    rows, radii = torch.randn(40, 12), torch.randint(0, 2, (40, 2), dtype=torch.int32)
    sums, counts, seen = torch.ones(37), torch.ones(37), (radii[:37] > 0).all(1)
    accumulate_grad2d(rows[:, :2], radii, sums, counts, (20.0, 10.0), kernels)
    pull = torch.hypot(rows[:37, 0] * 20, rows[:37, 1] * 10)
    assert torch.allclose(sums, 1 + torch.where(seen, pull, 0))
    assert torch.equal(counts, 1 + seen.float())


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
    perturb_means(ours, torch.randn(500, 3), strength, (mcmc.STEEPNESS, mcmc.TRANSPARENT), kernels)
    moved = (theirs["means"] - values["means"]).norm()
    assert moved > 1
    assert float((ours["means"] - theirs["means"]).norm() / moved) < 1e-5
