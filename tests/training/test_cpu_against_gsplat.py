"""The CPU path against gsplat: its torch reference, its strategies, and its CUDA extension, which must stay asleep."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cpu_scenes import HEIGHT, WIDTH, cameras, ellipsoids, relative_error, trainable, view
from gsplat import DefaultStrategy, MCMCStrategy
from gsplat.cuda._torch_impl import _fully_fused_projection, _quat_scale_to_covar_preci, _spherical_harmonics
from gsplat.strategy import ops
from torch import Tensor

from splatbatch.training.cpu import Ellipsoids, PinholeCameras, project, view_colors
from splatbatch.training.loss import photometric_loss
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions
from splatbatch.training.strategies.mcmc import compute_relocation, use_our_relocation

NUM_STEPS = 60


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    torch.set_num_threads(1)


def projected_by_gsplat(world: Ellipsoids, camera: PinholeCameras) -> list[Tensor]:
    """means2d, depths, conics, and opacities compensated for antialiasing."""
    covars, _ = _quat_scale_to_covar_preci(world.quats, world.scales)
    size = camera.width, camera.height
    _, means2d, depths, conics, compensations = _fully_fused_projection(
        world.means, covars, camera.viewmats, camera.Ks, *size, calc_compensations=True
    )
    return [means2d, depths, conics, world.opacities * compensations]


def test_projection_equals_gsplats_torch_reference():
    world, camera = ellipsoids(trainable()), cameras(num=2)
    ours = project(world, camera, antialiased=True)
    seen = (ours.radii > 0).all(-1)
    assert seen.sum() > 100
    theirs = projected_by_gsplat(world, camera)
    for mine, reference in zip((ours.means2d, ours.depths, ours.conics, ours.opacities), theirs, strict=True):
        assert relative_error(mine[seen], reference[seen]) < 1e-10


def test_gradients_of_the_projection_equal_gsplats_torch_reference():
    gaussians, camera = trainable(), cameras(num=2)
    ours = project(ellipsoids(gaussians), camera, antialiased=True)
    seen = (ours.radii > 0).all(-1)
    means2d, _, conics, opacities = projected_by_gsplat(ellipsoids(gaussians), camera)
    leaves = [gaussians[name] for name in ("means", "quats", "scales", "opacities")]
    pairs = (ours.means2d, means2d), (ours.conics, conics), (ours.opacities, opacities)
    for mine, reference in pairs:
        actual = torch.autograd.grad(mine[seen].sin().sum(), leaves, retain_graph=True, materialize_grads=True)
        expected = torch.autograd.grad(reference[seen].sin().sum(), leaves, retain_graph=True, materialize_grads=True)
        assert all((a - e).abs().max() <= 1e-10 * e.abs().max() for a, e in zip(actual, expected, strict=True))


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_spherical_harmonics_equal_gsplats_torch_reference(degree):
    gaussians = trainable()
    coefficients = torch.cat((gaussians["sh0"], gaussians["shN"]), 1)
    expected = (_spherical_harmonics(degree, gaussians["means"], coefficients) + 0.5).clamp_min(0)
    actual = view_colors(gaussians["means"][None], gaussians["sh0"], gaussians["shN"], degree)[0]
    assert relative_error(actual, expected) < 1e-10


@pytest.mark.parametrize("degree", [2, 4])
def test_a_degree_without_coefficients_is_refused(degree):
    with pytest.raises(ValueError, match=f"sh_degree {degree}"):
        view_colors(torch.ones(1, 1, 3), torch.ones(1, 1, 3), torch.ones(1, 3, 3), degree)


def relocated(opacity: float, copies: int) -> tuple[float, float]:
    """Equation 9 of 3DGS-MCMC as it is written: the new opacity, and the factor of the scales."""
    new = 1 - (1 - opacity) ** (1 / copies)
    total = 0.0
    for i in range(1, copies + 1):
        for k in range(i):
            total += math.comb(i - 1, k) * (-1) ** k * new ** (k + 1) / math.sqrt(k + 1)
    return new, opacity / total


def test_relocation_equals_a_float64_loop():
    opacities, ratios = torch.rand(100).clamp(0.01, 0.99), torch.randint(1, 52, (100,))
    binoms = MCMCStrategy().initialize_state()["binoms"]
    new_opacities, new_scales = compute_relocation(opacities, torch.ones(100, 3), ratios, binoms)
    expected = [relocated(o, n) for o, n in zip(opacities.double().tolist(), ratios.tolist(), strict=True)]
    assert new_opacities.tolist() == pytest.approx([opacity for opacity, _ in expected], rel=1e-5)
    assert new_scales[:, 1].tolist() == pytest.approx([factor for _, factor in expected], rel=1e-5)


def train(strategy: DefaultStrategy | MCMCStrategy, *, num_dead: int = 0) -> torch.nn.ParameterDict:
    """Fit noise for a few steps, as a training loop would; `num_dead` Gaussians are faint and out of sight."""
    use_our_relocation()
    ops.quat_scale_to_covar_preci = _quat_scale_to_covar_preci  # gsplat takes it from its CUDA extension alone
    gaussians = torch.nn.ParameterDict(trainable(150, torch.float32))
    gaussians["means"].data[:num_dead, 2], gaussians["opacities"].data[:num_dead] = -50.0, -8.0
    optimizers = {name: torch.optim.Adam([values], lr=1e-3) for name, values in gaussians.items()}
    strategy.check_sanity(gaussians, optimizers)
    state = strategy.initialize_state()
    absgrad = getattr(strategy, "absgrad", False)
    extra = {"lr": 1e-6} if isinstance(strategy, MCMCStrategy) else {"packed": False}
    photo = torch.rand(HEIGHT, WIDTH, 3)
    for step in range(NUM_STEPS):
        rendering = rasterize(gaussians, view(), RasterOptions(absgrad=absgrad))
        strategy.step_pre_backward(gaussians, optimizers, state, step, rendering.info)
        photometric_loss(rendering.colors, photo).backward()
        for optimizer in optimizers.values():
            optimizer.step()
            optimizer.zero_grad()
        strategy.step_post_backward(gaussians, optimizers, state, step, rendering.info, **extra)
    return gaussians


@pytest.mark.all
@pytest.mark.parametrize("absgrad", [False, True])
def test_the_default_strategy_grows_and_prunes(absgrad):
    strategy = DefaultStrategy(refine_start_iter=10, refine_every=10, grow_grad2d=2e-4, absgrad=absgrad)
    gaussians = train(strategy, num_dead=20)
    assert len(gaussians["means"]) > 150
    assert (gaussians["means"][:, 2] > -20).all()


@pytest.mark.all
def test_the_mcmc_strategy_grows_to_its_cap_and_relocates_the_dead():
    gaussians = train(MCMCStrategy(cap_max=180, refine_start_iter=5, refine_every=10), num_dead=20)
    assert len(gaussians["means"]) == 180
    assert (gaussians["means"][:, 2] > -20).all()
    assert all(values.isfinite().all() for values in gaussians.values())


@pytest.mark.all
def test_gsplats_cuda_extension_is_never_imported_on_cpu():
    code = """
import sys, torch, test_cpu_against_gsplat as tests
torch.set_num_threads(1)
tests.train(tests.DefaultStrategy(refine_start_iter=10, refine_every=10))
tests.train(tests.MCMCStrategy(refine_start_iter=10, refine_every=10))
sys.exit("gsplat.cuda._backend" in sys.modules)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, env=environment, check=True)
