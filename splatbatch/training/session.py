"""One attempt from settings.json to splat.ply: load, initialise, train, evaluate, export."""

from __future__ import annotations

import contextlib
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel

from splatbatch.attempt import AttemptFolder
from splatbatch.config import Recipe
from splatbatch.errors import SceneError, TrainerError
from splatbatch.files import write_json
from splatbatch.scene.reconstruction import read_reconstruction
from splatbatch.splats import write_splat
from splatbatch.training.evaluate import evaluate
from splatbatch.training.gaussians import export, initialise
from splatbatch.training.loop import train
from splatbatch.training.pictures import picture_views
from splatbatch.training.progress import Progress
from splatbatch.training.views import load_views


class Settings(BaseModel):
    """settings.json, as the trainer in the parent wrote it."""

    patch: str
    sparse: Path
    images: Path
    holdout: tuple[str, ...]
    recipe: Recipe


def train_attempt(folder: AttemptFolder) -> None:
    """Train the patch of `folder`; splat.ply is written last of all.

    Raises:
        SplatbatchError: a cause known beforehand: no CUDA, no points, unusable photographs, failing health.
    """
    settings = Settings.model_validate_json(folder.settings.read_text(encoding="utf-8"))
    recipe, progress = settings.recipe, Progress(folder.progress, settings.recipe.training.max_steps)
    progress.phase("start")
    device = _device(recipe.training.device)
    torch.manual_seed(recipe.training.seed)

    progress.phase("load")
    reconstruction = read_reconstruction(settings.sparse)
    if not len(reconstruction.points):
        raise SceneError(f"{settings.sparse}: 0 points at initialisation: there is nothing to start from")
    scene = load_views(reconstruction, settings.images, frozenset(settings.holdout), recipe.training, device)
    for warning in scene.warnings:
        progress.warn(warning)

    progress.phase("init")
    gaussians = initialise(reconstruction.points, scene.frame, recipe.training, device)
    metrics: dict[str, Any] = {"initial": evaluate(gaussians, scene.holdout, recipe)}

    progress.phase("train")
    gaussians = train(gaussians, scene, recipe, progress)

    progress.phase("eval")
    metrics["final"] = evaluate(gaussians, scene.holdout, recipe)
    metrics["made_with"] = _versions(device)
    write_json(folder.metrics, metrics)
    progress.evaluated(metrics["final"])
    picture_views(folder, gaussians, scene.holdout, metrics["final"], recipe)

    progress.phase("export")
    write_splat(folder.splat, export(gaussians, scene.frame), recipe.training.max_steps)
    progress.phase("done")
    if device.type == "cuda":
        # everything is given back by the end of the process; this only makes sure that no error is still on its way
        torch.cuda.synchronize()


def _versions(device: torch.device) -> dict[str, str]:
    """Return what the result was made with, for whoever compares it with another one."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    versions = {"python": platform.python_version(), "torch": str(torch.__version__), "on": name}
    with contextlib.suppress(PackageNotFoundError):  # a source tree on the path
        versions["gsplat"] = version("gsplat")
    return versions


def _device(wanted: str) -> torch.device:
    """Return the device to train on; on the CPU with one thread, since patches in parallel use cores better."""
    if wanted != "cpu" and torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = False
        return torch.device("cuda")
    if wanted == "cuda":
        raise TrainerError("no CUDA GPUs are available to the training process")
    torch.set_num_threads(1)
    return torch.device("cpu")
