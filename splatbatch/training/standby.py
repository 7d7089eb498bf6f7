"""Standby of a prepared attempt, which waits for go.json, the order to begin; and the rehearsal on a GPU.

A rehearsal, a training of a few steps on a made-up scene, loads CUDA's context, its libraries and all kernels. An
attempt on standby rehearses when ahead.json comes, the order to make CUDA ready; others while photographs are read.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable

import torch

from splatbatch.config import Recipe
from splatbatch.config.schedule import schedule
from splatbatch.errors import TrainerError
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.attempt import Go
from splatbatch.training.cuda_graph import GraphedStep
from splatbatch.training.gaussians import as_parameters
from splatbatch.training.optim import LAST_RATE, make_optimizers
from splatbatch.training.photos.posed_image import PosedImage, settled
from splatbatch.training.photos.transient_mask import TransientMask
from splatbatch.training.progress import ProgressRecorder
from splatbatch.training.rendering.view import RasterOptions, RenderCamera
from splatbatch.training.step import Step, TileCapacity
from splatbatch.training.strategies import STRATEGIES

NUM_GAUSSIANS, SIDE_PX = 5_000, 64
"""Number of Gaussians in a rehearsal, since torch sorts 4,096 and fewer otherwise; and sides of its photograph."""
LOOK_S = 0.005
"""Seconds between two checks for go.json."""


def wait_for_go(folder: AttemptFolder, progress: ProgressRecorder, make_ready: Callable[[], None]) -> None:
    """Wait for go.json without a limit, then set the environment variables that go.json names.

    They limit CUDA to one GPU. If ahead.json comes first, its variables are set and `make_ready` is called once. The
    clock of `progress` is restarted at the end.

    Args:
        folder: folder of the attempt, in which the supervisor writes both files.
        progress: records the phase "standby".
        make_ready: opens the GPU of the environment and rehearses on it; its errors are passed on.

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
            make_ready()
        time.sleep(LOOK_S)
    if ahead is not None and ahead.gpu != go.gpu:
        raise TrainerError(
            f"the attempt prepared for GPU {ahead.gpu} was told to begin on {go.gpu}: run the batch again"
        )
    os.environ.update(go.env)
    progress.begin()


def rehearse(recipe: Recipe, device: torch.device) -> None:
    """Train made-up Gaussians on a made-up photograph for a few steps, so that CUDA and all kernels are loaded.

    Another process may train on the same GPU meanwhile: besides the context, a rehearsal takes some megabytes, which
    are freed.

    Raises:
        TrainerError: there are no kernels for the GPU.
    """
    _train_a_little(recipe.with_training({"cap_max": 2 * NUM_GAUSSIANS}), device)
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _train_a_little(recipe: Recipe, device: torch.device) -> None:
    view = RenderCamera(torch.eye(4), SIDE_PX * torch.eye(3), SIDE_PX, SIDE_PX)
    tone = torch.tensor([1.0, 1, 1, 1, 0, 0, 0, 0])  # a gain of 1, with vignetting and shading gradient
    pixels, num = torch.zeros(SIDE_PX, SIDE_PX, 3, dtype=torch.uint8), NUM_GAUSSIANS
    photo = settled(PosedImage("", view, pixels, correction=tone), device, device)
    places = torch.rand(num, 3, generator=torch.Generator().manual_seed(0))
    values = {
        "means": places + torch.tensor([0, 0, 1]),
        "scales": torch.full_like(places, -4),
        "quats": torch.ones(num, 4),
        "opacities": torch.zeros(num),
        "sh0": torch.zeros(num, 1, 3),
        "shN": torch.zeros(num, (recipe.training.sh_degree + 1) ** 2 - 1, 3),
    }
    gaussians, plan, options = as_parameters(values, device), schedule(recipe), RasterOptions.of(recipe)
    optimizers = make_optimizers(gaussians, recipe, plan, 1.0)
    strategy = STRATEGIES[recipe.training.strategy](gaussians, optimizers, recipe, plan, 1.0)
    capacity = TileCapacity(gaussians, (photo,), options)
    graphed = GraphedStep(Step(strategy, capacity, (LAST_RATE, LAST_RATE)))
    for degree in (0, *range(recipe.training.sh_degree + 1)):  # the first step is not recorded
        graphed(photo, degree)
    TransientMask((photo,), options, plan.max_steps).look(gaussians, capacity.entries)
    graphed.refine((plan.refine_start // plan.refine_every + 1) * plan.refine_every)  # the first refinement
