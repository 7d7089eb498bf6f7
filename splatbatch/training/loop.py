"""The training loop, top to bottom."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch

from splatbatch.config import Recipe
from splatbatch.config.schedule import schedule
from splatbatch.training.checkpoint import Changing, Checkpoints
from splatbatch.training.coarse import Pyramid, plan_sizes
from splatbatch.training.evaluate import Evaluator
from splatbatch.training.gaussians import Parameters
from splatbatch.training.health import Expectations
from splatbatch.training.loss import photometric_loss
from splatbatch.training.masks import masked
from splatbatch.training.optimise import decay, make_optimizers
from splatbatch.training.rasterize import RasterOptions, rasterize
from splatbatch.training.strategy import STRATEGIES
from splatbatch.training.views import Photo, Views


def train(
    gaussians: Parameters, views: Views, recipe: Recipe, evaluator: Evaluator, checkpoints: Checkpoints
) -> Parameters:
    """Train Gaussians in place on the photographs of a patch; return them.

    Raises:
        TrainerError: the health rules found that the run is hopeless.
    """
    training, plan, progress = recipe.training, schedule(recipe), checkpoints.progress
    optimizers = make_optimizers(gaussians, recipe, plan, views.frame.scene_scale)
    strategy = STRATEGIES[training.strategy](gaussians, optimizers, recipe, plan, views.frame.scene_scale)
    progress.expect(Expectations.of(recipe, plan))
    sizes = plan_sizes(views.training, recipe, plan, len(gaussians["means"]))
    pyramid = Pyramid(sizes)
    changing = Changing(gaussians, optimizers, strategy, evaluator)
    start = checkpoints.resume(changing)
    photos = islice(shuffled(views.training, training.seed), start, None)
    for step in range(start, training.max_steps):
        photo = pyramid.at(step, next(photos))
        strategy.limit(sizes.budget(step))
        degree = min(training.sh_degree, step // plan.sh_every)
        rendering = rasterize(gaussians, photo.view, RasterOptions(degree, absgrad=recipe.refinement.absgrad))
        strategy.before_backward(step, rendering)
        loss = photometric_loss(*masked(rendering.colors, photo.target(), photo.valid()), training.ssim_lambda)
        torch.autograd.backward(strategy.regularise(loss))
        if progress.due(step):
            progress.step(step, loss, gaussians)
        for optimizer in optimizers.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        rate = decay(optimizers, plan)
        strategy.after_step(step, rendering, rate)
        if evaluator.ends(gaussians, step + 1):
            break
        checkpoints.step_done(step + 1, changing)
    return gaussians


def shuffled(photos: tuple[Photo, ...], seed: int) -> Iterator[Photo]:
    """Yield photographs for ever: all of them in a random order, then all again in another."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        for index in torch.randperm(len(photos), generator=generator).tolist():
            yield photos[index]
