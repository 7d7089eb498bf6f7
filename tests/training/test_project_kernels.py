"""Our projection kernels, run on the CPU lane by lane, see and derive what the CPU rasteriser does, in float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from blending_reference import COLUMNS, relative
from emulated_kernels import COMPILER, OnCpu
from torch import Tensor

from splatbatch.training.cpu import Ellipsoids, PinholeCameras, view_colors
from splatbatch.training.cpu.projection import ProjectedGaussians, project
from splatbatch.training.cuda.project import ProjectionInput
from splatbatch.training.cuda.project import project as ours_of

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU"),
    pytest.mark.usefixtures("what_is_not_written_is_nan"),
]


def some_gaussians(num: int = 300, num_higher: int = 15) -> dict[str, Tensor]:
    """Gaussians before, beside and behind a camera; some too faint, some right at its lens, some needles."""
    generator = torch.Generator().manual_seed(3)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "means": noise(num, 3) * torch.tensor([1.5, 1.5, 2.0]),
        "quats": noise(num, 4) * 3,
        "scales": noise(num, 3) - 3,
        "opacities": noise(num) * 3,
        "sh0": noise(num, 1, 3),
        "shN": noise(num, num_higher, 3) * 0.3,
    }


def a_shot(**changed: object) -> ProjectionInput:
    angle = torch.tensor(0.3)
    viewmat = torch.eye(4)
    viewmat[:2, :2] = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
    viewmat[:3, 3] = torch.tensor([0.2, -0.1, 2.5])
    K = torch.tensor([[90.0, 0, 41], [0, 80, 22], [0, 0, 1]])
    return replace(ProjectionInput(viewmat, K, 83, 51, 3, 0.01, 1e10, antialiased=False), **changed)  # type: ignore[arg-type]


def by_the_book(gaussians: dict[str, Tensor], shot: ProjectionInput) -> tuple[ProjectedGaussians, Tensor]:
    """Return what the CPU's projection and colours are, [1, N, ...]."""
    camera = PinholeCameras(
        shot.viewmat[None].double(), shot.K[None].double(), shot.width, shot.height, shot.near_plane, shot.far_plane
    )
    ellipsoids = Ellipsoids(
        gaussians["means"], gaussians["quats"], gaussians["scales"].exp(), gaussians["opacities"].sigmoid()
    )
    rotation, translation = shot.viewmat[:3, :3].double(), shot.viewmat[:3, 3].double()
    directions = gaussians["means"] + rotation.T @ translation
    colors = view_colors(directions[None], gaussians["sh0"], gaussians["shN"], shot.sh_degree)
    return project(ellipsoids, camera, antialiased=shot.antialiased), colors


SHOTS = {
    "plain": a_shot(),
    "antialiased": a_shot(antialiased=True),
    "degree 0": a_shot(sh_degree=0),
    "degree 1": a_shot(sh_degree=1),
    "degree 2": a_shot(sh_degree=2),
    "a far near plane": a_shot(near_plane=2.0, far_plane=4.0),
    "an odd size": a_shot(width=97, height=33),
}


@pytest.mark.parametrize("named", SHOTS)
def test_what_is_seen_is_what_float64_says(named: str, kernels: OnCpu) -> None:
    gaussians, shot = some_gaussians(), SHOTS[named]
    ours = ours_of(gaussians, shot, kernels)
    book, colors = by_the_book({name: value.double() for name, value in gaussians.items()}, shot)
    seen = book.radii[0].amin(1) > 0
    assert 30 < int(seen.sum()) < 270
    assert torch.equal(ours.radii, book.radii)
    for name, columns in COLUMNS.items():
        expected = colors if name == "colors" else getattr(book, name)
        assert relative(ours.rows[0, :, columns][seen], expected[0][seen]) < 1e-5, name
    touches = ours.counts > 0
    assert relative(ours.distances[touches], book.depths[0][touches]) < 1e-6


def test_tiles_are_counted_and_distances_are_depths(kernels: OnCpu) -> None:
    gaussians, shot = some_gaussians(), a_shot()
    ours = ours_of(gaussians, shot, kernels)
    radii, means = ours.radii[0].double(), torch.nan_to_num(ours.rows[0, :, :2]).double()
    most = torch.tensor([-(-shot.width // 16), -(-shot.height // 16)])
    first = torch.minimum(((means - radii) / 16).floor().clamp_min(0), most)
    last = torch.minimum(((means + radii) / 16).ceil().clamp_min(0), most)
    seen = radii.amin(1) > 0
    expected = torch.where(seen, (last - first).prod(1), 0).int()
    assert torch.equal(ours.counts, expected)
    touches = expected > 0
    assert torch.isfinite(ours.distances[touches]).all()
    assert torch.isinf(ours.distances[~touches]).all()


@pytest.mark.parametrize("named", SHOTS)
def test_gradients_are_those_of_float64(named: str, kernels: OnCpu) -> None:
    gaussians, shot = some_gaussians(), SHOTS[named]
    single = {name: value.clone().requires_grad_() for name, value in gaussians.items()}
    double = {name: value.double().requires_grad_() for name, value in gaussians.items()}
    ours = ours_of(single, shot, kernels)
    book, colors = by_the_book(double, shot)
    seen = (book.radii[0].amin(1) > 0)[None]
    loss, expected = torch.zeros(()), torch.zeros((), dtype=torch.float64)
    for name, columns in COLUMNS.items():
        theirs = colors if name == "colors" else getattr(book, name)
        v = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(len(name)))
        v /= theirs.detach()[seen].abs().mean()
        loss = loss + (ours.rows[..., columns] * v)[seen].sum()
        expected = expected + (theirs * v.double())[seen].sum()
    mine = torch.autograd.grad(loss, list(single.values()))
    right = torch.autograd.grad(expected, list(double.values()), materialize_grads=True)
    for name, got, wanted in zip(gaussians, mine, right, strict=True):
        assert relative(got, wanted) < 1e-4, name
        assert torch.equal(got[~seen[0]], torch.zeros_like(got[~seen[0]]))


def test_fewer_coefficients_than_fifteen_are_fine(kernels: OnCpu) -> None:
    gaussians = some_gaussians(40, num_higher=3)
    leaves = {name: value.clone().requires_grad_() for name, value in gaussians.items()}
    ours = ours_of(leaves, a_shot(sh_degree=1), kernels)
    seen = ours.radii[0].amin(1) > 0
    ours.rows[0, :, 6:9][seen].sum().backward()
    assert leaves["shN"].grad is not None
    assert leaves["shN"].grad.shape == (40, 3, 3)
    assert leaves["shN"].grad[seen].abs().sum() > 0


def test_no_gaussians_at_all_are_fine(kernels: OnCpu) -> None:
    leaves = {name: value.requires_grad_() for name, value in some_gaussians(0).items()}
    ours_of(leaves, a_shot(), kernels).rows.sum().backward()
    assert leaves["shN"].grad is not None


def test_a_gaussian_that_is_not_a_number_is_not_seen(kernels: OnCpu) -> None:
    for name in ("means", "quats", "scales", "opacities"):
        gaussians = some_gaussians(40)
        gaussians[name][:] = torch.nan
        ours = ours_of(gaussians, a_shot(), kernels)
        assert not ours.radii.any(), name
