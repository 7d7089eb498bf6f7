"""Our kernels on a GPU, one by one: what float64 says, what gsplat says, recorded as a CUDA graph."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from blending_reference import Derived, Picture, a_picture, derive, reference, relative, rows_of, some_slopes

from splatbatch.config import Recipe
from splatbatch.training import cuda, loss
from splatbatch.training.cuda import driver
from splatbatch.training.cuda.blend import Lists, blend
from splatbatch.training.cuda.compile import PROGRAMS, Cubin, cubin
from splatbatch.training.cuda.loss import normalise, photometric_loss, ssim
from splatbatch.training.cuda.step import Adam
from splatbatch.training.photos import posed_image
from splatbatch.training.rendering.view import RenderCamera
from splatbatch.training.strategies import mcmc

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
    pytest.mark.usefixtures("own_stream"),
]
PICTURES = {
    "an odd size": lambda: a_picture(900, (137, 151), padding=300),
    "more than 256 in a tile": lambda: a_picture(2000, (33, 17), largest=4.0, opacity=0.03),
    "opaque ones, which end pixels": lambda: a_picture(2000, (120, 90), largest=20.0, opacity=0.95),
    "huge ones": lambda: a_picture(40, largest=400.0),
    "empty lists": lambda: replace(a_picture(5), ids=torch.zeros(0).int(), offsets=torch.zeros(1, 2, 3).int()),
    "masked tiles": lambda: replace(a_picture(90), masks=torch.tensor([[[True, False, True]] * 2])),
}


def drawn(picture: Picture, *, by_gsplat: bool = False, absgrad: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    size = picture.width, picture.height
    if by_gsplat:
        from gsplat.cuda._wrapper import rasterize_to_pixels

        options = {"masks": picture.masks, "absgrad": absgrad}
        image, alphas = rasterize_to_pixels(*picture.inputs, *size, 16, picture.offsets, picture.ids, **options)
    else:
        lists = Lists(picture.offsets, picture.ids, picture.masks, picture.offsets.shape[-1], *size)
        image, alphas = blend(rows_of(picture, absgrad=absgrad), lists, cuda.loaded(), absgrad=absgrad)
    return image[0], alphas[0, ..., 0]


def derived(picture: Picture, *, absgrad: bool = False) -> tuple[Derived, torch.Tensor]:
    sure = reference(picture)[2]
    v = some_slopes(picture, sure)
    return derive(picture, lambda one: drawn(one, absgrad=absgrad), v), sure


@pytest.mark.parametrize("named", PICTURES)
def test_what_is_drawn_and_derived_is_what_float64_says(named: str) -> None:
    picture = PICTURES[named]().to("cuda")
    made, sure = derived(picture)
    expected = derive(picture, lambda one: reference(one)[:2], some_slopes(picture, sure))
    assert float(((made.image - expected.image).abs() * sure[..., None]).max()) < 1e-4
    for key, gradient in expected.gradients.items():
        assert relative(made.gradients[key], gradient) < 3e-4, key


def test_gsplat_says_the_same_of_absolute_gradients_too() -> None:
    picture = a_picture(3000, (200, 150)).to("cuda")
    made, sure = derived(picture, absgrad=True)
    theirs = derive(picture, lambda one: drawn(one, by_gsplat=True, absgrad=True), some_slopes(picture, sure))
    assert made.absgrad is not None and theirs.absgrad is not None
    assert relative(made.absgrad, theirs.absgrad) < 1e-3
    for key, gradient in theirs.gradients.items():
        assert relative(made.gradients[key], gradient) < 1e-3, key


def test_a_recording_draws_and_derives_the_same_again() -> None:
    picture = a_picture(2000, (120, 90), padding=100).to("cuda")
    v = some_slopes(picture, torch.ones(90, 120, dtype=torch.bool, device="cuda"))
    once, graph = derive(picture, drawn, v), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    graph.capture_begin(capture_error_mode="thread_local")
    recorded = derive_unasked(picture, v)
    graph.capture_end()
    for _ in range(3):
        graph.replay()
    assert torch.equal(recorded.image, once.image)
    for key, gradient in once.gradients.items():
        assert relative(recorded.gradients[key], gradient.double()) < 1e-5, key


def derive_unasked(picture: Picture, v: tuple[torch.Tensor, torch.Tensor]) -> Derived:
    """Derive without asking on the host whether there are gradients of alpha."""
    leaves = {name: getattr(picture, name).clone().requires_grad_() for name in ("means2d", "conics", "colors")}
    leaves["opacities"] = picture.opacities.clone().requires_grad_()
    image, alphas = drawn(replace(picture, **leaves))
    gradients = torch.autograd.grad((image, alphas), list(leaves.values()), v)
    return Derived(image.detach(), alphas.detach(), dict(zip(leaves, gradients, strict=True)))


def test_processes_that_compile_at_once_all_succeed(tmp_path: Path) -> None:
    code = "import torch; from splatbatch.training import cuda; print(repr(cuda.why_not_here()))"
    environment = {**os.environ, "SPLATBATCH_CACHE": str(tmp_path), "PATH": "", "CUDA_HOME": ""}
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=120)[0].splitlines()[-1] for process in running] == ["''"] * 3
    assert len([*(tmp_path / "kernels").iterdir()]) in (0, len(PROGRAMS))  # none where the wheel has them


def test_a_driver_that_refuses_what_the_wheel_carries_is_given_what_its_own_nvrtc_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def compiled(program: str, capability: tuple[int, int], *, shipped: bool = True) -> Cubin:
        asked.append(program)
        return cubin(program, capability, shipped=shipped)

    monkeypatch.setattr(driver, "cubin", compiled)
    broken = Cubin(b"\x7fELF" + bytes(1000), is_shipped=True)
    monkeypatch.setattr(driver, "compile_all", lambda _: dict.fromkeys(PROGRAMS, broken))
    driver.GpuKernels()
    assert asked == [*PROGRAMS]


@pytest.mark.parametrize("size", [(298, 407), (5, 7), (1357, 1548), (64, 64)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("is_masked", [False, True])
def test_the_loss_is_that_of_float64(size: tuple[int, int], dtype: torch.dtype, is_masked: bool) -> None:
    torch.manual_seed(0)
    levels = torch.randint(0, 256, (*size, 3), device="cuda")
    photo = levels.to(torch.uint8) if dtype == torch.uint8 else levels / 255
    mask = torch.rand(size, device="cuda") > 0.3 if is_masked else None
    # between the levels of the photo: where both are equal, rounding decides the sign of L1's gradient
    render = (torch.randint_like(levels, -20, 275) + torch.rand(*size, 3, device="cuda") * 0.8 + 0.1) / 255
    single, double = render.clone().requires_grad_(), render.double().requires_grad_()
    seen, target = loss.masked(single, photo, mask)
    value = photometric_loss(seen, target, 0.2, cuda.loaded())
    expected = loss.photometric_loss(*loss.masked(double, (levels / 255).double(), mask), 0.2)
    torch.autograd.backward([value, expected])
    assert single.grad is not None and double.grad is not None
    assert abs(value.item() / expected.item() - 1) <= 1e-5
    assert relative(single.grad, double.grad) <= 1e-4


def test_ssim_is_that_of_float64() -> None:
    photo = torch.randint(0, 256, (298, 407, 3), device="cuda").to(torch.uint8)
    render = torch.rand(298, 407, 3, device="cuda")
    assert abs(float(ssim(render, photo, cuda.loaded()) - loss.ssim(render.double(), photo))) <= 1e-5


@pytest.mark.parametrize("size", [(298, 407), (5, 7), (1357, 1548), (64, 64)])
@pytest.mark.parametrize("num_coefficients", [0, 2, 4, 88])
def test_the_loss_with_a_tone_is_that_of_float64(size: tuple[int, int], num_coefficients: int) -> None:
    torch.manual_seed(0)
    height, width = size
    pixels = torch.randint(0, 256, (*size, 3), device="cuda").to(torch.uint8)
    pixels[: height // 4] = 255
    K = torch.tensor([[400.0, 0, width / 2 - 1.5], [0, 400, height / 2 + 2], [0, 0, 1]], device="cuda")
    view = RenderCamera(torch.eye(4, device="cuda"), K, width, height)
    half = (height**2 + width**2) ** 0.5 / 2
    some = [0.8, 1.1, 1.3, half**-2, -0.2, 0.1, 0.15, -0.25, 1.1, 1.0, 0.9, *torch.randn(81).mul(0.2).tolist()]
    tone = torch.tensor(some[: 4 + num_coefficients], device="cuda")
    render = torch.rand(*size, 3, device="cuda").requires_grad_()
    exact = render.detach().double().requires_grad_()
    target = normalise(render, pixels, tone, K, cuda.loaded())
    wanted, exactly_even = posed_image.to_compare(exact, pixels, tone, view)
    assert float((target - exactly_even).abs().max()) <= 1e-5
    value = photometric_loss(render, target, 0.2, cuda.loaded(), pixels)
    torch.autograd.backward([value, loss.photometric_loss(wanted, exactly_even)])
    assert render.grad is not None and exact.grad is not None
    assert float((render.grad - exact.grad).norm() / exact.grad.norm()) <= 1e-3


def test_adam_is_torchs() -> None:
    ours = torch.nn.Parameter(torch.randn(70_001, 3, device="cuda"))
    theirs = torch.nn.Parameter(ours.detach().clone())
    optimizers = Adam(ours, 0.01, 1e-15, cuda.loaded()), torch.optim.Adam([theirs], lr=0.01, eps=1e-15)
    for scale in (1.0, 1e-3, 1e-12, 1.0, 1e-6):
        ours.grad = torch.randn_like(ours) * scale
        theirs.grad = ours.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert float((ours - theirs).detach().abs().max()) < 1e-5


def test_noise_and_relocation_are_gsplats() -> None:
    from gsplat.cuda._wrapper import quat_scale_to_covar_preci
    from gsplat.relocation import compute_relocation
    from gsplat.strategy import MCMCStrategy

    shapes = {"means": (3,), "quats": (4,), "scales": (3,), "opacities": ()}
    values = {name: torch.nn.Parameter(torch.randn(5000, *shape, device="cuda")) for name, shape in shapes.items()}
    with torch.no_grad():
        values["opacities"].sub_(5)
    detached = {name: value.detach().clone() for name, value in values.items()}
    before, opacities, scales = detached["means"], detached["opacities"].sigmoid(), detached["scales"].exp()
    covariances = quat_scale_to_covar_preci(detached["quats"], scales, compute_preci=False)[0]
    torch.manual_seed(0)
    share = torch.sigmoid(100 * (0.005 - opacities)) * 0.7
    expected = torch.einsum("nij,nj->ni", covariances, torch.randn_like(before) * share[:, None])
    torch.manual_seed(0)
    mcmc.inject_noise(values, torch.tensor(0.7, device="cuda"), Recipe().training)
    moved: torch.Tensor = values["means"].detach().sub(before)
    assert relative(moved, expected.double()) < 1e-4

    binoms = MCMCStrategy().initialize_state()["binoms"].cuda()
    ratios = torch.randint(1, 12, (5000,), device="cuda")  # with more of them float32 says other things
    theirs = compute_relocation(opacities.contiguous(), scales, ratios.clone(), binoms)
    for ours, wanted in zip(mcmc.compute_relocation(opacities, scales, ratios, binoms), theirs, strict=True):
        assert relative(ours, wanted.double()) < 1e-3
