"""Our blending kernels on a GPU: what float64 says, what gsplat says, recorded as a CUDA graph, and without waits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from blending_reference import Derived, Picture, a_picture, derive, reference, relative, some_slopes

from splatbatch.training import loss
from splatbatch.training.cuda import native, photometric
from splatbatch.training.cuda.native.library import compiled
from splatbatch.training.cuda.photometric import even

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
]
PICTURES = {
    "an odd size": lambda: a_picture(900, (137, 151), padding=300),
    "more than 256 in a tile": lambda: a_picture(2000, (33, 17), largest=4.0, opacity=0.03),
    "opaque ones, which end pixels": lambda: a_picture(2000, (120, 90), largest=20.0, opacity=0.95),
    "huge ones": lambda: a_picture(40, largest=400.0),
    "empty lists": lambda: replace(a_picture(5), ids=torch.zeros(0).int(), offsets=torch.zeros(1, 2, 3).int()),
    "masked tiles": lambda: replace(a_picture(90), masks=torch.tensor([[[True, False, True]] * 2])),
}


@pytest.fixture(autouse=True)
def _own_stream() -> Iterator[None]:
    with torch.cuda.stream(torch.cuda.Stream()):
        yield


def drawn(picture: Picture, *, by_gsplat: bool = False, absgrad: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    size = picture.width, picture.height
    if by_gsplat:
        from gsplat.cuda._wrapper import rasterize_to_pixels

        options = {"masks": picture.masks, "absgrad": absgrad}
        image, alphas = rasterize_to_pixels(*picture.inputs, *size, 16, picture.offsets, picture.ids, **options)
    else:
        lists = native.Lists(picture.offsets, picture.ids, picture.masks, picture.offsets.shape[-1], *size)
        image, alphas = native.blend(picture.inputs, lists, compiled(), absgrad=absgrad)
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


def test_they_are_built_and_chosen() -> None:
    assert native.why_not_here() == ""
    assert native.chosen() is compiled()
    assert native.is_built()


def test_processes_that_build_at_once_all_succeed(tmp_path: Path) -> None:
    code = "from splatbatch.training.cuda import native; print(repr(native.why_not_here()), native.is_built())"
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(tmp_path), "TORCH_CUDA_ARCH_LIST": "7.5"}
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=120)[0].splitlines()[-1] for process in running] == ["'' True"] * 3
    assert len([*tmp_path.rglob("*.so")]) == 1


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
    value = native.photometric_loss(seen, (target, None), 0.2, compiled())
    expected = loss.photometric_loss(*loss.masked(double, (levels / 255).double(), mask), 0.2)
    torch.autograd.backward([value, expected])
    assert single.grad is not None and double.grad is not None
    assert abs(value.item() / expected.item() - 1) <= 1e-5
    assert relative(single.grad, double.grad) <= 1e-4


@pytest.mark.parametrize("num_coefficients", [0, 2, 4])
def test_the_loss_of_an_evened_photograph_is_tritons(num_coefficients: int) -> None:
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (298, 407, 3), device="cuda").to(torch.uint8)
    pixels[:80] = 255
    K = torch.tensor([[400.0, 0, 203], [0, 400, 149], [0, 0, 1]], device="cuda")
    tone = torch.tensor([0.8, 1.0, 1.2, 1 / 252**2, -0.1, 0.05, 0.1, -0.2], device="cuda")[: 4 + num_coefficients]
    render, gradients = torch.rand(298, 407, 3, device="cuda") * 1.3, []
    for is_ours in (True, False):
        leaf = render.clone().requires_grad_()
        target = even(leaf, pixels, tone, K)
        if is_ours:
            value = native.photometric_loss(leaf, (target, pixels), 0.2, compiled())
        else:
            value = photometric.photometric_loss(leaf, target, 0.2, pixels)
        (gradient,) = torch.autograd.grad(value, leaf)
        gradients.append(gradient)
    assert relative(gradients[0], gradients[1].double()) <= 1e-4


def test_they_can_be_built_by_a_process_that_sees_no_gpu(tmp_path: Path) -> None:
    built = f"built({torch.cuda.get_device_capability()}).is_file()"
    code = f"import torch; from {compiled.__module__} import built; print({built}, torch.cuda.is_initialized())"
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True False"
