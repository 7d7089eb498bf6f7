"""Draws a flight through a splat, all its colours included, one frame after the other."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch

from splatbatch.config import Recipe
from splatbatch.errors import SceneError
from splatbatch.plain_text import counted
from splatbatch.scene.colmap.reconstruction import read_cameras, read_images
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.frame import shifted_image
from splatbatch.splats.blocks import index_blocks
from splatbatch.store.records.evaluation import FilmSettings
from splatbatch.training.film.path import Pose, fly
from splatbatch.training.rendering.pixels import to_pixels
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, View
from splatbatch.training.scene.photographs import usual_unit
from splatbatch.training.scene.store import Standpoint, Store
from splatbatch.training.session import open_device

MOST_HELD = 12_000_000


@torch.inference_mode()
def draw(settings: FilmSettings, target: Path) -> str:
    """Write the frames of a film, [H, W, 3] bytes each; return how fast that went.

    Raises:
        SceneError: the model or the splat cannot be read.
        TrainerError: no GPU can be used where one is asked for.
    """
    recipe = Recipe.model_validate(settings.recipe)
    device = open_device(recipe.training.device)
    images = [shifted_image(image, settings.offset) for image in read_images(Path(settings.sparse))]
    camera = next(iter(read_cameras(Path(settings.sparse)).values()), None)
    if not images or camera is None:
        raise SceneError(f"{settings.sparse}: has no cameras to fly past")
    try:
        store = Store(index_blocks(Path(settings.splat)), device, MOST_HELD)
    except (OSError, ValueError) as error:
        raise SceneError(f"{settings.splat}: cannot be read ({error})") from error
    options = RasterOptions.of(recipe, store.blocks.header.sh_degree)
    calibration, unit = _calibration(camera, settings).to(device), usual_unit([images])
    drawn_at: list[float] = []
    began = time.monotonic()
    with target.open("wb") as file:
        for pose in fly(images, settings.num_frames):
            view, standpoint = _view(pose, calibration, settings, unit)
            drawn = rasterize(store.seen_from(standpoint, view), view, options).colors
            file.write(to_pixels(drawn).data)
            drawn_at.append(time.monotonic())
    rate = (len(drawn_at) - 1) / max(drawn_at[-1] - drawn_at[0], 1e-9)  # before the first a GPU may build its kernels
    return f"{counted(len(drawn_at), 'frame')} in {drawn_at[-1] - began:.1f} s, {rate:.1f} a second after the first"


def _calibration(camera: Camera, settings: FilmSettings) -> torch.Tensor:
    """Return the camera's lens for another size: what it sees across is seen across, or more of it."""
    focal = camera.fx * max(settings.width / camera.width, settings.height / camera.height)
    return torch.tensor([[focal, 0, settings.width / 2], [0, focal, settings.height / 2], [0, 0, 1]])


def _view(pose: Pose, calibration: torch.Tensor, settings: FilmSettings, unit: float) -> tuple[View, Standpoint]:
    """Return a view that stands at the origin of its own frame, and where that is."""
    x, y, z = pose[0].astype(np.float32).tolist()
    matrix = torch.eye(4)
    matrix[:3, :3] = torch.from_numpy(pose[1])
    moved = (np.array([x, y, z]) - pose[0]) / unit  # what float32 took off
    matrix[:3, 3] = torch.from_numpy(pose[1] @ moved)
    view = View(matrix.to(calibration.device), calibration, settings.width, settings.height)
    return view, Standpoint((x, y, z), unit)
