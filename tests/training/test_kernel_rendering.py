"""A whole rendering by our kernels for GPUs, run on the CPU, is the CPU rasteriser's, gradients included."""

from __future__ import annotations

import pytest
import torch
from blending_reference import relative
from emulated_kernels import COMPILER, OnCpu

from splatbatch.training import loss
from splatbatch.training.cuda import rasterization
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, RenderCamera, Rendering

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU")
WAYS: dict[str, tuple[RasterOptions, int | None]] = {
    "plain, and counted": (RasterOptions(), None),
    "absgrad": (RasterOptions(absgrad=True), 3000),
    "antialiased": (RasterOptions(antialiased=True), 3000),
}


def a_scene() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"means": (3,), "scales": (3,), "quats": (4,), "opacities": (), "sh0": (1, 3), "shN": (15, 3)}
    spreads = {"means": 0.6, "scales": 0.3, "quats": 1.0, "opacities": 1.0, "sh0": 0.5, "shN": 0.1}
    values = {name: torch.randn(400, *shape, generator=generator) * spreads[name] for name, shape in shapes.items()}
    values["scales"] -= 3
    return {name: value.requires_grad_() for name, value in values.items()}


def a_view() -> RenderCamera:
    viewmat = torch.eye(4)
    viewmat[2, 3] = 3.0
    return RenderCamera(viewmat, torch.tensor([[100.0, 0, 50], [0, 100, 40], [0, 0, 1]]), 101, 77)


def derived(gaussians: dict[str, torch.Tensor], rendering: Rendering, *, absgrad: bool) -> dict[str, torch.Tensor]:
    pulled = rendering.info.get("rows", rendering.info.get("means2d"))  # of ours, of others
    pulled.retain_grad()
    weights = torch.linspace(0.5, 1.5, rendering.colors.numel()).view_as(rendering.colors)
    (rendering.colors * weights).mean().backward()
    found = {name: value.grad for name, value in gaussians.items()} | {"means2d": pulled.grad[..., :2]}
    if absgrad:
        found["absgrad"] = pulled.grad[..., 10:] if "rows" in rendering.info else pulled.absgrad
    return found


@pytest.mark.parametrize("way", WAYS)
def test_both_draw_and_derive_the_same(way: str, kernels: OnCpu) -> None:
    options, capacity = WAYS[way]
    mine, theirs = a_scene(), a_scene()
    ours = rasterization.rasterize(mine, a_view(), options, capacity, kernels)
    book = rasterize(theirs, a_view(), options)
    gradients, expected = (derived(*one, absgrad=options.absgrad) for one in ((mine, ours), (theirs, book)))
    assert gradients.keys() == expected.keys()
    assert len(expected) >= 7
    assert float(loss.psnr(ours.colors.detach(), book.colors.detach())) > 80
    for name, value in expected.items():
        assert value is not None and relative(gradients[name], value) < 1e-4, name
