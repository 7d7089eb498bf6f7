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

from splatbatch.training.cuda import native
from splatbatch.training.cuda.native.library import compiled

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
