"""Our blending kernels on a GPU: what float64 says, what gsplat says, recorded as a CUDA graph, and without waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from blending_reference import Derived, Picture, a_picture, derive, reference, relative, some_slopes

from splatbatch.training.cuda import native
from splatbatch.training.cuda.native.blend import Backward, Way
from splatbatch.training.cuda.native.library import compiled

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
]
PACKED = (("PACKED", 1), ("GROUP", 32), ("BACKWARD_WARPS", 2))
WAYS: dict[str, tuple[Backward, tuple[tuple[str, int], ...]]] = {
    "pixels": ("pixels", ()),
    "pixels-packed": ("pixels", PACKED),
    "buckets": ("buckets", ()),
    "buckets-packed": ("buckets", PACKED),
}
PICTURES = {
    "an odd size": lambda: a_picture(900, (137, 151), padding=300),
    "more than 256 in a tile": lambda: a_picture(2000, (33, 17), largest=4.0, opacity=0.03),
    "opaque ones, which end pixels": lambda: a_picture(2000, (120, 90), largest=20.0, opacity=0.95),
    "huge ones": lambda: a_picture(40, largest=400.0),
    "four colours": lambda: a_picture(300, channels=4),
    "empty lists": lambda: replace(a_picture(5), ids=torch.zeros(0).int(), offsets=torch.zeros(1, 2, 3).int()),
    "masked tiles and a background": lambda: replace(
        a_picture(90), masks=torch.tensor([[[True, False, True]] * 2]), background=torch.tensor([[0.2, 0.9, 0.4]])
    ),
}


@pytest.fixture(autouse=True)
def _own_stream() -> Iterator[None]:
    with torch.cuda.stream(torch.cuda.Stream()):
        yield


def the_way(name: str) -> Way:
    backward, defines = WAYS[name]
    return Way(compiled(defines), backward)


def drawn(picture: Picture, way: Way | None, *, absgrad: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw our way; None: gsplat's."""
    gaussians = (picture.means2d, picture.conics, picture.colors, picture.opacities)
    lists = (picture.width, picture.height, 16, picture.offsets, picture.ids)
    options = {"backgrounds": picture.background, "masks": picture.masks, "absgrad": absgrad}
    if way is None:
        from gsplat.cuda._wrapper import rasterize_to_pixels

        image, alphas = rasterize_to_pixels(*gaussians, *lists, **options)
    else:
        image, alphas = native.blend(gaussians, lists, way, **options)
    return image[0], alphas[0, ..., 0]


def derived(picture: Picture, name: str, *, absgrad: bool = False) -> tuple[Derived, torch.Tensor]:
    sure = reference(picture)[2]
    v = some_slopes(picture, sure)
    return derive(picture, lambda one: drawn(one, the_way(name), absgrad=absgrad), v), sure


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("named", PICTURES)
def test_what_is_drawn_and_derived_is_what_float64_says(named: str, name: str) -> None:
    picture = PICTURES[named]().to("cuda")
    made, sure = derived(picture, name)
    expected = derive(picture, lambda one: reference(one)[:2], some_slopes(picture, sure))
    assert float(((made.image - expected.image).abs() * sure[..., None]).max()) < 1e-4
    for key, gradient in expected.gradients.items():
        assert relative(made.gradients[key], gradient) < 3e-4, key


@pytest.mark.parametrize("name", WAYS)
def test_gsplat_says_the_same_of_absolute_gradients_too(name: str) -> None:
    picture = a_picture(3000, (200, 150)).to("cuda")
    made, sure = derived(picture, name, absgrad=True)
    theirs = derive(picture, lambda one: drawn(one, None, absgrad=True), some_slopes(picture, sure))
    assert made.absgrad is not None and theirs.absgrad is not None
    assert relative(made.absgrad, theirs.absgrad) < 1e-3
    for key, gradient in theirs.gradients.items():
        assert relative(made.gradients[key], gradient) < 1e-3, key


@pytest.mark.parametrize("name", WAYS)
def test_a_recording_draws_and_derives_the_same_again(name: str) -> None:
    picture, way = a_picture(2000, (120, 90), padding=100).to("cuda"), the_way(name)
    v = some_slopes(picture, torch.ones(90, 120, dtype=torch.bool, device="cuda"))
    once, graph = derive(picture, lambda one: drawn(one, way), v), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    graph.capture_begin(capture_error_mode="thread_local")
    recorded = derive_unasked(picture, way, v)
    graph.capture_end()
    for _ in range(3):
        graph.replay()
    assert torch.equal(recorded.image, once.image)
    for key, gradient in once.gradients.items():
        assert relative(recorded.gradients[key], gradient.double()) < 1e-5, key


def derive_unasked(picture: Picture, way: Way, v: tuple[torch.Tensor, torch.Tensor]) -> Derived:
    """Derive without asking on the host whether there are gradients of alpha."""
    leaves = {name: getattr(picture, name).clone().requires_grad_() for name in ("means2d", "conics", "colors")}
    leaves["opacities"] = picture.opacities.clone().requires_grad_()
    image, alphas = drawn(replace(picture, **leaves), way)
    gradients = torch.autograd.grad((image, alphas), list(leaves.values()), v)
    return Derived(image.detach(), alphas.detach(), dict(zip(leaves, gradients, strict=True)))


@pytest.mark.parametrize("name", native.WAYS)
def test_what_the_environment_asks_for_is_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.CHOICE, name)
    native.why_not_here.cache_clear()
    assert native.why_not_here() == ""
    way = native.chosen()
    assert way is not None
    assert (way.backward, way.projects) == native.WAYS[name]
    monkeypatch.setenv(native.CHOICE, "gsplat")
    assert native.chosen() is None
