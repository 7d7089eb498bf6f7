"""A patch before its backdrop on a GPU: as on the CPU, recorded or not, packed or not, and never waiting for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gpu_waits import waits_in
from test_kernels import some_gaussians, some_photos

from splatbatch.config import Recipe
from splatbatch.config.schedule import schedule
from splatbatch.training.border import Boundary, PatchBorder
from splatbatch.training.cuda_graph import GraphedStep
from splatbatch.training.optim import make_optimizers
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions
from splatbatch.training.step import Step, TileCapacity
from splatbatch.training.strategies import STRATEGIES
from splatbatch.training.strategies.importance import PruningViews

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
    pytest.mark.usefixtures("own_stream"),
]


def around() -> tuple[dict[str, torch.nn.Parameter], PatchBorder]:
    """The Gaussians below x = 0 as the patch's own, the others behind them."""
    everyone = some_gaussians()
    core = torch.tensor([[-torch.inf] * 3, [0.0, torch.inf, torch.inf]])
    reach = torch.tensor([[-9.0] * 3, [0.1, 9.0, 9.0]])
    bounds = Boundary(torch.eye(3), core, reach, 0.1).to(torch.device("cuda"))
    inside = bounds.contains(everyone["means"])
    own = {name: torch.nn.Parameter(value.detach()[inside]) for name, value in everyone.items()}
    return own, PatchBorder(bounds, {name: value.detach()[~inside] for name, value in everyone.items()})


def a_step(strategy: str, **training: object) -> tuple[Step, tuple[PosedImage, ...]]:
    settings = {"strategy": strategy, "max_steps": 7000, "cap_max": 50_000, **training}
    recipe = Recipe.model_validate({"training": settings})
    (own, border), plan, photos = around(), schedule(recipe), some_photos()
    optimizers = make_optimizers(own, recipe, plan, 1.0)
    views = PruningViews(photos, RasterOptions.of(recipe), border)
    rule = STRATEGIES[strategy](own, optimizers, recipe, plan, 1.0, border, views)
    capacity = TileCapacity(own, photos, RasterOptions.of(recipe), border)
    return Step(rule, capacity, (0.01 ** (1 / plan.max_steps), 1.0)), photos


def test_own_and_backdrop_make_the_picture_that_all_of_them_make() -> None:
    own, border = around()
    view = some_photos(1)[0].view
    together, parts = rasterize(some_gaussians(), view), rasterize(border.with_backdrop(own), view)
    assert float((together.colors - parts.colors).abs().max()) <= 1e-4


def test_the_gpu_draws_a_backdrop_as_the_cpu_does() -> None:
    own, border = around()
    view, cpu = some_photos(1)[0].view, torch.device("cpu")
    there = rasterize(border.with_backdrop(own), view).colors.cpu()
    moved = {name: value.detach().cpu() for name, value in own.items()}
    on_cpu = replace(view, viewmat=view.viewmat.cpu(), K=view.K.cpu())
    here = rasterize(border.to(cpu).with_backdrop(moved), on_cpu).colors
    assert float((here - there).detach().abs().mean()) <= 1e-3


@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_recorded_steps_before_a_backdrop_learn_what_plain_steps_learn(strategy: str) -> None:
    results = []
    for is_recorded in (False, True):
        torch.manual_seed(0)
        step, photos = a_step(strategy)
        frozen = {name: value.clone() for name, value in step.strategy.border.backdrop.items()}
        step(photos[0], 3)
        run = GraphedStep(step) if is_recorded else step
        for index in range(60):
            run(photos[index % len(photos)], 3)
        assert all(torch.equal(value, frozen[name]) for name, value in step.strategy.border.backdrop.items())
        results.append(float(step.derive(photos[0], 3)[0]))
    assert results[1] == pytest.approx(results[0], rel=0.01)


@pytest.mark.parametrize("strategy", ["default", "mcmc"])
@pytest.mark.parametrize("is_recorded", [False, True])
def test_steps_before_a_backdrop_never_wait_for_the_gpu(strategy: str, is_recorded: bool) -> None:
    step, photos = a_step(strategy)
    step(photos[0], 3)
    run = GraphedStep(step) if is_recorded else step
    assert waits_in(run, photos, 100) == []


@pytest.mark.parametrize("strategy", ["default", "mcmc"])
@pytest.mark.parametrize("more", [{}, {"kernels": "gsplat"}])
def test_refining_between_steps_keeps_to_the_reach_and_new_recordings_work(
    strategy: str, more: dict[str, object]
) -> None:
    step, photos = a_step(strategy, **more)
    graphed = GraphedStep(step)
    due = [n for n in range(step.strategy.plan.refine_start + 1, 7000) if n % step.strategy.plan.refine_every == 0][:3]
    for refining in due:
        for photo in photos:
            graphed(photo, 3)
        assert graphed.refine(refining)
        outside = step.strategy.border.out_of_bounds(step.strategy.gaussians)
        assert outside is not None
        # `default` splits after it has removed what strayed: a child may lie across the border until the next time
        assert float(outside.float().mean()) <= (0.02 if strategy == "default" else 0.0)
    largest = step.strategy.border.bounds.largest_scales(step.strategy.gaussians["means"])  # type: ignore[union-attr]
    assert (step.strategy.gaussians["scales"].exp().amax(dim=1) <= 1.001 * largest).all()
    assert all(torch.isfinite(value).all() for value in step.strategy.gaussians.values())


@pytest.mark.parametrize("more", [{}, {"kernels": "gsplat"}])
def test_pruning_before_a_backdrop_removes_own_gaussians_alone_and_steps_go_on(more: dict[str, object]) -> None:
    step, photos = a_step("default", **more)
    frozen = {name: value.clone() for name, value in step.strategy.border.backdrop.items()}
    graphed, before = GraphedStep(step), len(step.strategy.gaussians["means"])
    for refining in (None, step.strategy.plan.refine_stop):
        if refining is not None:
            assert graphed.refine(refining)
        for photo in photos * 3:
            graphed(photo, 3)
    assert 0 < len(step.strategy.gaussians["means"]) < before
    assert all(torch.equal(value, frozen[name]) for name, value in step.strategy.border.backdrop.items())
    assert all(torch.isfinite(value).all() for value in step.strategy.gaussians.values())
