"""The training loop of one patch: steps, densification, evaluation, early stopping and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import torch

from splatbatch.config import Recipe
from splatbatch.config.schedule import schedule
from splatbatch.splats.health import Expectations
from splatbatch.training.checkpoint import Checkpoints, RunState
from splatbatch.training.cuda_graph import GraphedStep
from splatbatch.training.evaluation.evaluate import Evaluator
from splatbatch.training.gaussians import Parameters
from splatbatch.training.optim import make_optimizers
from splatbatch.training.photos.coarse import Pyramid, plan_sizes
from splatbatch.training.photos.dataset import TrainingImages, prefetch
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.photos.transient_mask import TransientMask
from splatbatch.training.rendering.view import RasterOptions
from splatbatch.training.step import Step, TileCapacity
from splatbatch.training.strategies import STRATEGIES
from splatbatch.training.strategies.importance import PruningViews


def train(  # noqa: PLR0915 - it reads top to bottom
    gaussians: Parameters, views: TrainingImages, recipe: Recipe, evaluator: Evaluator, checkpoints: Checkpoints
) -> Parameters:
    """Train Gaussians in place on the photographs of a patch, until the last step or early stopping; return them.

    Resumes from a checkpoint if `checkpoints` names one of the same run. On SIGTERM, within the context of
    `checkpoints.stop`, a checkpoint is written after the present step and the process ends.

    Raises:
        TrainerError: a fatal finding of the health rules, a rendering with NaN pixels, or no kernels for the GPU.
        KeyError: the checkpoint of this run lacks an entry of the state.
        ValueError: `cap_max` of the recipe is a multiple of the sparse points, not a number.
    """
    training, plan, options = recipe.training, schedule(recipe), RasterOptions.of(recipe)
    progress, early = checkpoints.progress, evaluator.early
    optimizers = make_optimizers(gaussians, recipe, plan, views.frame.scene_scale)
    pruning_views = PruningViews(views.training, options, views.border, training.seed)
    strategy = STRATEGIES[training.strategy](
        gaussians, optimizers, recipe, plan, views.frame.scene_scale, views.border, pruning_views
    )
    progress.expect(Expectations.of(recipe, plan))
    sizes = plan_sizes(views, recipe, plan, len(gaussians["means"]))
    transients = TransientMask(views.training, options, plan.max_steps, views.border)

    state = RunState(strategy, evaluator, transients)
    step = start = checkpoints.resume(state)
    capacity = TileCapacity(gaussians, views.training, options, views.border)
    graphed = GraphedStep(Step(strategy, capacity, early.decays()))
    if early.tail_from is not None:  # resumed in the tail
        early.begin_tail(early.tail_from, start)
        graphed.begin_tail(early.decays())
    chosen = islice(shuffled(views.training, training.seed), start, None)
    sized = map(Pyramid(sizes).at, count(start), chosen)
    photos = prefetch(sized, gaussians["means"].device)

    while step < early.last_step:
        # leave out people and cars, which one photograph shows; coarse to fine: photographs grow, and the cap with them
        transients.step_begins(step, gaussians, capacity.entries)
        photo = transients.without(next(photos))
        if (growth := sizes.factor(max(start, step - 1)) / sizes.factor(step)) > 1:
            capacity.resize(growth**2)
        strategy.limit(sizes.budget(step))

        # render, compare, backpropagate, take a step of Adam: on a GPU as one recording; then densify, prune and reset
        sh_degree, is_due = min(training.sh_degree, step // plan.sh_every), progress.due(step)
        learned = graphed(photo, sh_degree, is_watched=is_due)
        if is_due:
            progress.step(step, learned.loss, gaussians, learned.norms())
        graphed.refine(step, is_due=is_due)

        # the run may end early once growth has: all degrees of harmonics, full-size photographs, no further Gaussians
        is_grown = step >= plan.sh_every * training.sh_degree and sizes.factor(step) == 1 and strategy.has_grown(step)
        step += 1
        is_plateau = is_grown and early.is_due(step) and early.check(step, gaussians, capacity.entries)
        if is_plateau or early.is_tail_due(step):
            early.begin_tail(step, step)
            graphed.begin_tail(early.decays())
        evaluator.step_done(gaussians, step)
        checkpoints.step_done(step, state)

    early.close()
    for warning in (*capacity.warnings(), *transients.warnings()):
        progress.warn(warning)
    return gaussians


def shuffled(photos: tuple[PosedImage, ...], seed: int) -> Iterator[PosedImage]:
    """Yield photographs endlessly, each once per epoch, in a new random order for each epoch that depends on the seed.

    `photos` must not be empty.
    """
    generator = torch.Generator().manual_seed(seed)
    while True:
        for index in torch.randperm(len(photos), generator=generator).tolist():
            yield photos[index]
