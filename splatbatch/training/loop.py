"""The training loop, top to bottom."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch

from splatbatch.config import Recipe
from splatbatch.config.schedule import Schedule, schedule
from splatbatch.splats.health import Expectations
from splatbatch.training.checkpoint import Checkpoints, RunState
from splatbatch.training.cuda_graph import GraphedStep
from splatbatch.training.evaluation.evaluate import Evaluator
from splatbatch.training.gaussians import Parameters
from splatbatch.training.optim import Optimizers, make_optimizers
from splatbatch.training.photos.coarse import Pyramid, plan_sizes
from splatbatch.training.photos.dataset import TrainingImages, prefetch
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.photos.transient_mask import TransientMask
from splatbatch.training.rendering.tile_capacity import TileCapacity
from splatbatch.training.rendering.view import RasterOptions
from splatbatch.training.step import Step
from splatbatch.training.strategies import STRATEGIES, Strategy
from splatbatch.training.strategies.importance import PruningViews


def train(
    gaussians: Parameters, views: TrainingImages, recipe: Recipe, evaluator: Evaluator, checkpoints: Checkpoints
) -> Parameters:
    """Train Gaussians in place on the photographs of a patch; return them.

    Raises:
        TrainerError: the health rules found that the run is hopeless.
    """
    training, plan, progress = recipe.training, schedule(recipe), checkpoints.progress
    optimizers = make_optimizers(gaussians, recipe, plan, views.frame.scene_scale)
    strategy = _strategy(gaussians, optimizers, recipe, plan, views)
    progress.expect(Expectations.of(recipe, plan))
    sizes = plan_sizes(views, recipe, plan, len(gaussians["means"]))
    movers = TransientMask(views.training, RasterOptions.of(recipe), plan.max_steps, views.surroundings)
    changing = RunState(gaussians, optimizers, strategy, evaluator, movers)
    start = checkpoints.resume(changing)
    capacity = TileCapacity(gaussians, views.training, RasterOptions.of(recipe), views.surroundings)
    one_step = Step(gaussians, optimizers, strategy, recipe, plan, capacity, views.surroundings)
    graphed = GraphedStep(one_step) if capacity.entries else None
    chosen = islice(shuffled(views.training, training.seed), start, None)
    photos = prefetch(Pyramid(sizes).over(chosen, start), gaussians["means"].device)
    for step in evaluator.early.steps(one_step, sizes, start):
        movers.step_begins(step, gaussians, capacity.entries)
        photo = movers.without(next(photos))
        if (growth := sizes.factor(max(start, step - 1)) / sizes.factor(step)) > 1:
            capacity.resize(growth**2)
        strategy.limit(sizes.budget(step))
        degree = min(training.sh_degree, step // plan.sh_every)
        is_due = progress.due(step)
        learned = (graphed or one_step)(photo, degree, is_watched=is_due)
        if is_due:
            progress.step(step, learned.loss, gaussians, learned.norms())
        has_changed = one_step.refine(step)
        has_changed |= (is_due or has_changed) and capacity.grow()
        has_changed |= evaluator.early.step_done(step)
        if graphed and has_changed:
            graphed.forget()
        evaluator.step_done(gaussians, step + 1)
        checkpoints.step_done(step + 1, changing)
    for warning in (*capacity.warnings(), *movers.warnings()):
        progress.warn(warning)
    return gaussians


def _strategy(
    gaussians: Parameters, optimizers: Optimizers, recipe: Recipe, plan: Schedule, views: TrainingImages
) -> Strategy:
    """Return the strategy of a recipe, which knows what bounds the patch and what it is judged by."""
    strategy = STRATEGIES[recipe.training.strategy](gaussians, optimizers, recipe, plan, views.frame.scene_scale)
    strategy.within(views.surroundings)
    strategy.judge_by(PruningViews(views.training, RasterOptions.of(recipe), views.surroundings, recipe.training.seed))
    return strategy


def shuffled(photos: tuple[PosedImage, ...], seed: int) -> Iterator[PosedImage]:
    """Yield photographs for ever: all of them in a random order, then all again in another."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        for index in torch.randperm(len(photos), generator=generator).tolist():
            yield photos[index]
