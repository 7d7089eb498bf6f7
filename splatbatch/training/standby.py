"""Standby of a prepared attempt, which waits for go.json, the order to begin.

ahead.json, which may come before, is the order to make CUDA ready. A rehearsal, a training of a few steps on a small
scene, then loads CUDA's context, its libraries and all kernels.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from splatbatch.config import Recipe
from splatbatch.config.schedule import schedule
from splatbatch.errors import TrainerError
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.attempt import Go
from splatbatch.training.border import NONE
from splatbatch.training.cuda_graph import GraphedStep
from splatbatch.training.gaussians import Parameters, as_parameters, select
from splatbatch.training.optim import LAST_RATE, make_optimizers
from splatbatch.training.photos.dataset import TrainingImages
from splatbatch.training.photos.posed_image import shrink
from splatbatch.training.progress import ProgressRecorder
from splatbatch.training.rendering.view import RasterOptions
from splatbatch.training.step import Step, TileCapacity
from splatbatch.training.strategies import STRATEGIES

MOST_GAUSSIANS = 2000
"""Largest number of Gaussians in a rehearsal."""
LARGEST_PX = 256
"""Largest length, in px, of the longer side of the photograph in a rehearsal."""
LOOK_S = 0.005
"""Seconds between two checks for go.json."""


def wait_for_go(folder: AttemptFolder, progress: ProgressRecorder, open_context: Callable[[], None]) -> None:
    """Wait for go.json without a limit, then set the environment variables that go.json names.

    They limit CUDA to one GPU. If ahead.json comes first, its variables are set and `open_context` is called once. The
    clock of `progress` is restarted at the end.

    Args:
        folder: folder of the attempt, in which the supervisor writes both files.
        progress: records the phase "standby".
        open_context: opens the CUDA context on the GPU of the environment; its errors are passed on.

    Raises:
        TrainerError: the supervisor has died, or go.json names another GPU than ahead.json.
    """
    progress.phase("standby")
    supervisor, ahead = os.getppid(), None
    while (go := folder.read_go()) is None:
        if os.getppid() != supervisor:
            raise TrainerError("the supervisor of this waiting attempt has died: run the batch again")
        if ahead is None and (ahead := folder.read(folder.ahead, Go)):
            os.environ.update(ahead.env)
            open_context()
        time.sleep(LOOK_S)
    if ahead is not None and ahead.gpu != go.gpu:
        raise TrainerError(
            f"the attempt prepared for GPU {ahead.gpu} was told to begin on {go.gpu}: run the batch again"
        )
    os.environ.update(go.env)
    progress.begin()


def rehearse(views: TrainingImages, values: Mapping[str, Tensor], recipe: Recipe, device: torch.device) -> None:
    """Train a few Gaussians on one small photograph for a few steps, so that CUDA and all kernels are loaded.

    The Gaussians are dropped, and `values`, in host memory, stay unchanged. Another process may train on the same GPU
    meanwhile: besides the context, a rehearsal takes some megabytes, which are freed.

    Raises:
        TrainerError: there are no kernels for the GPU.
    """
    photo = views.training[0]
    small = shrink(photo, -(-max(photo.view.width, photo.view.height) // LARGEST_PX))
    scene = replace(views, training=(small,), holdout=(), border=NONE).to(device, "gpu")
    gaussians = as_parameters(select(values, torch.arange(min(len(values["means"]), MOST_GAUSSIANS))), device)
    _train_a_little(gaussians, scene, recipe)
    del scene, gaussians
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _train_a_little(gaussians: Parameters, views: TrainingImages, recipe: Recipe) -> None:
    plan, photo = schedule(recipe), views.training[0]
    optimizers = make_optimizers(gaussians, recipe, plan, views.frame.scene_scale)
    strategy = STRATEGIES[recipe.training.strategy](gaussians, optimizers, recipe, plan, views.frame.scene_scale)
    capacity = TileCapacity(gaussians, views.training, RasterOptions.of(recipe))
    step = Step(strategy, capacity, (LAST_RATE, LAST_RATE))
    graphed = GraphedStep(step)
    loss, rendering = step.derive(photo, 0)
    float(loss.detach())
    step.update(rendering)
    for degree in range(recipe.training.sh_degree + 1):
        graphed(photo, degree)
    graphed.refine((plan.refine_start // plan.refine_every + 1) * plan.refine_every)  # the first refinement
