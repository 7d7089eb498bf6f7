"""Adam within the backward pass of projection, run on the CPU lane by lane, moves what torch's Adam moves."""

from __future__ import annotations

import pytest
import torch
from blending_reference import relative
from emulated_native import COMPILER, emulated, shared_folder
from test_native_projection import a_shot, some_gaussians
from torch import Tensor

from splatbatch.training.cuda import native

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU")
RATE, EPSILON, BETAS = 0.01, 1e-15, (0.9, 0.999)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> native.Library:
    return emulated(shared_folder(tmp_path_factory))


def loss_of(sight: native.Sight) -> Tensor:
    seen, parts = sight.radii.amin(-1) > 0, []
    for value in sight.footprints:
        weights = torch.linspace(0.5, 1.5, value.numel()).view_as(value)
        parts.append((value * weights)[seen].sum())
    return torch.stack(parts).sum()


def learnt(shots: list[native.Shot], library: native.Library, *, skips_unseen: bool) -> dict[str, Tensor]:
    leaves = {name: value.requires_grad_() for name, value in some_gaussians().items()}
    rate, steps = torch.tensor(RATE), torch.zeros(())
    moments = {
        name: native.Moments(*(torch.zeros_like(value, requires_grad=False) for _ in range(2)), rate, steps)
        for name, value in leaves.items()
    }
    for shot in shots:
        steps += 1
        learner = native.Learner(moments, BETAS, EPSILON, skips_unseen)
        loss_of(native.project(leaves, shot, library, learner)).backward()
        assert all(value.grad is None for value in leaves.values())
    return {name: value.detach() for name, value in leaves.items()}


def by_torch(shots: list[native.Shot], library: native.Library) -> tuple[dict[str, Tensor], Tensor]:
    leaves = {name: value.requires_grad_() for name, value in some_gaussians().items()}
    adam, ever = torch.optim.Adam(leaves.values(), RATE, BETAS, EPSILON), torch.zeros(300, dtype=torch.bool)
    for shot in shots:
        sight = native.project(leaves, shot, library)
        loss_of(sight).backward()
        ever |= sight.radii[0].amin(-1) > 0
        adam.step()
        adam.zero_grad()
    return {name: value.detach() for name, value in leaves.items()}, ever


SHOTS = [a_shot(), a_shot(sh_degree=2, width=41), a_shot(antialiased=True)]


def test_what_is_learnt_is_what_torch_learns(library: native.Library) -> None:
    before, ours, (theirs, _) = some_gaussians(), learnt(SHOTS, library, skips_unseen=False), by_torch(SHOTS, library)
    for name, value in theirs.items():
        assert relative(ours[name] - before[name], (value - before[name]).double()) < 1e-3, name


def test_the_higher_harmonics_of_what_is_not_seen_may_be_left(library: native.Library) -> None:
    before, ours, (theirs, ever) = some_gaussians(), learnt(SHOTS, library, skips_unseen=True), by_torch(SHOTS, library)
    assert torch.equal(ours["shN"][~ever], before["shN"][~ever])
    assert not torch.equal(ours["shN"][ever], before["shN"][ever])
    for name in ("means", "quats", "scales", "opacities", "sh0"):
        assert relative(ours[name] - before[name], (theirs[name] - before[name]).double()) < 0.03, (
            name
        )  # colours differ a little
