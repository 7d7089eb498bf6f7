"""A training with our CUDA C++ kernels draws and learns what one with gsplat's does, recorded, and without waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from gpu_waits import waits_in

from splatbatch.config import Recipe
from splatbatch.config.schedule import schedule
from splatbatch.training import loss
from splatbatch.training.cuda import native
from splatbatch.training.cuda_graph import GraphedStep
from splatbatch.training.optim import make_optimizers
from splatbatch.training.photos.views import Photo
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.tile_capacity import TileCapacity
from splatbatch.training.rendering.view import RasterOptions, Rendering, View
from splatbatch.training.step import Step
from splatbatch.training.strategies import STRATEGIES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
]


@pytest.fixture(autouse=True)
def _own_stream() -> Iterator[None]:
    with torch.cuda.stream(torch.cuda.Stream()):
        yield


def use_gsplats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "chosen", lambda: None)


def some_gaussians(num: int = 20_000) -> dict[str, torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    shapes = {"means": (3,), "scales": (3,), "quats": (4,), "opacities": (), "sh0": (1, 3), "shN": (15, 3)}
    spreads = {"means": 0.7, "scales": 0.4, "quats": 1.0, "opacities": 1.0, "sh0": 0.5, "shN": 0.1}
    values = {name: torch.randn(num, *shape, generator=generator) * spreads[name] for name, shape in shapes.items()}
    values["scales"] -= 3.5
    return {name: torch.nn.Parameter(value.cuda()) for name, value in values.items()}


def some_photos(count: int = 6) -> tuple[Photo, ...]:
    photos = []
    for index in range(count):
        viewmat = torch.eye(4)
        viewmat[:3, 3] = torch.tensor([0.2 * index - 0.5, 0.1 * index, 3.0])
        K = torch.tensor([[400.0, 0, 203], [0, 400, 149], [0, 0, 1]])
        pixels = torch.randint(0, 256, (298, 407, 3), generator=torch.Generator().manual_seed(index)).to(torch.uint8)
        photos.append(Photo(f"{index}.png", View(viewmat.cuda(), K.cuda(), 407, 298), pixels.cuda()))
    return tuple(photos)


def drawn(options: dict[str, object]) -> tuple[Rendering, dict[str, torch.Tensor]]:
    gaussians = some_gaussians()
    rendering = rasterize(gaussians, some_photos(1)[0].view, RasterOptions(**options))  # type: ignore[arg-type]
    means2d = rendering.info["means2d"]
    means2d.retain_grad()
    weights = torch.linspace(0.5, 1.5, rendering.colors.numel(), device="cuda").view_as(rendering.colors)
    (rendering.colors * weights).mean().backward()
    gradients = {name: value.grad for name, value in gaussians.items()} | {"means2d": means2d.grad}
    if options.get("absgrad"):
        gradients["absgrad"] = means2d.absgrad
    return rendering, gradients


OPTIONS = [{}, {"antialiased": True}, {"sh_degree": 1}, {"sh_degree": 0}, {"absgrad": True}]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_rendering_and_its_gradients_are_gsplats(options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.chosen() is not None
    ours, our_gradients = drawn(options)
    use_gsplats(monkeypatch)
    theirs, their_gradients = drawn(options)
    assert float(loss.psnr(ours.colors.detach(), theirs.colors.detach())) > 70
    assert float(((ours.info["radii"] > 0) != (theirs.info["radii"] > 0)).float().mean()) < 1e-3
    for name, gradient in their_gradients.items():
        assert float((our_gradients[name] - gradient).norm() / gradient.norm().clamp_min(1e-12)) < 1e-3, name


def a_step() -> tuple[Step, tuple[Photo, ...]]:
    recipe = Recipe.model_validate({"training": {"strategy": "default", "max_steps": 7000}})
    gaussians, plan, photos = some_gaussians(), schedule(recipe), some_photos()
    optimizers = make_optimizers(gaussians, recipe, plan, 1.0)
    rule = STRATEGIES["default"](gaussians, optimizers, recipe, plan, 1.0)
    capacity = TileCapacity(gaussians, photos, RasterOptions.of(recipe))
    return Step(gaussians, optimizers, rule, recipe, plan, capacity), photos


def test_recorded_steps_never_wait_and_learn_what_gsplats_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = []
    for is_ours in (True, False):
        if not is_ours:
            use_gsplats(monkeypatch)
        step, photos = a_step()
        step(photos[0], 3)
        run = GraphedStep(step)
        assert waits_in(run, photos, 60) == []
        losses.append(float(step.derive(photos[0], 3)[0]))
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
