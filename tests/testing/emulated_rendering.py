"""A whole rendering as on a GPU, on the CPU: our CUDA C++ emulated, Triton interpreted; run as a program.

    emulated_rendering.py FOLDER

Prints one JSON object: for each way of drawing, how far image and gradients are from the CPU rasteriser's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from blending_reference import relative
from emulated_native import emulated

from splatbatch.training import loss
from splatbatch.training.cuda import native, rasterization
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, Rendering, View

WAYS = {
    "plain": RasterOptions(),
    "absgrad": RasterOptions(absgrad=True),
    "antialiased": RasterOptions(antialiased=True),
}
CAPACITIES = {"absgrad": 3000, "antialiased": 3000}
"""Plain ones are counted."""


def a_scene() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"means": (3,), "scales": (3,), "quats": (4,), "opacities": (), "sh0": (1, 3), "shN": (15, 3)}
    spreads = {"means": 0.6, "scales": 0.3, "quats": 1.0, "opacities": 1.0, "sh0": 0.5, "shN": 0.1}
    values = {name: torch.randn(400, *shape, generator=generator) * spreads[name] for name, shape in shapes.items()}
    values["scales"] -= 3
    return {name: value.requires_grad_() for name, value in values.items()}


def a_view() -> View:
    viewmat = torch.eye(4)
    viewmat[2, 3] = 3.0
    return View(viewmat, torch.tensor([[100.0, 0, 50], [0, 100, 40], [0, 0, 1]]), 101, 77)


def derived(gaussians: dict[str, torch.Tensor], rendering: Rendering) -> dict[str, torch.Tensor]:
    means2d = rendering.info["means2d"]
    means2d.retain_grad()
    weights = torch.linspace(0.5, 1.5, rendering.colors.numel()).view_as(rendering.colors)
    (rendering.colors * weights).mean().backward()
    found = {name: value.grad for name, value in gaussians.items()} | {"means2d": means2d.grad}
    if hasattr(means2d, "absgrad"):
        found["absgrad"] = means2d.absgrad
    return found


def compared(options: RasterOptions, library: native.Library, capacity: int | None) -> dict[str, float]:
    native.chosen = lambda: library
    mine, theirs = a_scene(), a_scene()
    ours, book = rasterization.rasterize(mine, a_view(), options, capacity), rasterize(theirs, a_view(), options)
    gradients, expected = derived(mine, ours), derived(theirs, book)
    assert gradients.keys() == expected.keys()
    errors = {name: relative(gradients[name], value) for name, value in expected.items()}
    return {"psnr": float(loss.psnr(ours.colors.detach(), book.colors.detach())), **errors}


def main() -> None:
    library = emulated(Path(sys.argv[1]))
    print(json.dumps({name: compared(options, library, CAPACITIES.get(name)) for name, options in WAYS.items()}))


if __name__ == "__main__":
    main()
