"""`python -m splatbatch.training.film SETTINGS FRAMES`: render a flight through a splat as raw RGB frames.

SETTINGS is a JSON file (`FilmSettings`), FRAMES the file to write.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from scipy.interpolate import CubicSpline

from splatbatch.config import Recipe
from splatbatch.errors import SceneError
from splatbatch.output.records.evaluation import FilmSettings
from splatbatch.scene.colmap.reconstruction import read_cameras, read_images
from splatbatch.scene.colmap.types import Camera, Floats, Image
from splatbatch.scene.frame import shifted_image
from splatbatch.text import plural
from splatbatch.training.attempt import open_device
from splatbatch.training.frame import LocalFrame, camera_frame
from splatbatch.training.photos.dataset import evenly_spaced
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, RenderCamera, drawn_as, to_pixels
from splatbatch.training.scene.block_cache import BlockCache, open_blocks
from splatbatch.training.scene.photographs import usual_scale
from splatbatch.training.stop_request import exit_code_of

MOST_HELD = 12_000_000
"""Largest number of the splat's Gaussians that are cached on the device; others are read again when needed."""

MOST_KEYS = 12
"""Largest number of the model's cameras that a flight passes."""
Pose = tuple[Floats, Floats]
"""Position of a camera, [3], and its rotation from the world, [3, 3], whose rows are right, down, forward."""


def fly(images: Sequence[Image], num_frames: int) -> list[Pose]:
    """Return the poses of a flight past at most `MOST_KEYS` cameras, by cubic splines, evenly spaced along the path.

    All poses are the same where the cameras have only one position.

    Args:
        images: cameras of the model with finite poses, at least one.
        num_frames: number of poses to return.
    """
    keys = _in_order(images)
    centers = np.array([image.center() for image in keys])
    rotations = np.array([image.rotation() for image in keys])
    steps = np.linalg.norm(np.diff(centers, axis=0), axis=1)
    kept = np.concatenate([[True], steps > 1e-9 * max(float(steps.sum()), 1e-300)])  # cameras of a rig may coincide
    centers, rotations = centers[kept], rotations[kept]
    if len(centers) < 2:
        return [(centers[0], rotations[0])] * num_frames
    way = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(centers, axis=0), axis=1))])
    at = np.linspace(0, way[-1], num_frames)
    places = CubicSpline(way, centers)(at)
    turned = CubicSpline(way, rotations.reshape(-1, 9))(at).reshape(-1, 3, 3)
    return [(place, upright(one)) for place, one in zip(places, turned, strict=True)]


def upright(rotation: Floats) -> Floats:
    """Return a rotation from a matrix [3, 3] whose rows are about right, down and forward, as an interpolated rotation.

    The forward direction is kept, and down is as close to the matrix's as possible.
    """
    forward = rotation[2] / max(float(np.linalg.norm(rotation[2])), 1e-12)
    right = np.cross(rotation[1], forward)
    right /= max(float(np.linalg.norm(right)), 1e-12)
    return np.stack([right, np.cross(forward, right), forward])


def _in_order(images: Sequence[Image]) -> list[Image]:
    """Return some cameras, evenly taken by name, each followed by the nearest remaining one, starting at an end."""
    named = sorted(images, key=lambda image: image.name)
    left = list(evenly_spaced(named, MOST_KEYS))
    centers = np.array([image.center() for image in left])
    middle = centers - centers.mean(axis=0)
    longest = np.linalg.svd(middle, full_matrices=False)[2][0]
    found = [left.pop(int((middle @ longest).argmin()))]
    while left:
        away = [float(np.linalg.norm(image.center() - found[-1].center())) for image in left]
        found.append(left.pop(int(np.argmin(away))))
    return found


@torch.inference_mode()
def draw(settings: FilmSettings, target: Path) -> str:
    """Render the frames of a film into the file `target`, [H, W, 3] bytes each; return a line with number and rate.

    An existing file is overwritten, and is left incomplete if a frame fails.

    Raises:
        SceneError: no camera of the model has a pose, or one lacks a focal length; or model or splat cannot be read.
        TrainerError: no GPU can be used where one is asked for or assigned, or there are no kernels for the GPU.
        ValueError: the recipe is invalid, or the splat has become shorter since it was opened.
        OSError: the file cannot be written, or the splat no longer be read.
    """
    recipe = Recipe.model_validate(settings.recipe)
    device = open_device(recipe.training.device)
    images = [shifted_image(one, settings.offset) for one in read_images(Path(settings.sparse)) if one.has_pose()]
    camera = next(iter(read_cameras(Path(settings.sparse)).values()), None)
    if not images or camera is None:
        raise SceneError(
            f"{settings.sparse}: the model has no camera with a pose for the film to fly past: reconstruct it again"
        )
    store = BlockCache(open_blocks(Path(settings.splat)), device, MOST_HELD)
    options = RasterOptions.of(drawn_as(recipe, store.blocks.header))
    calibration, scale = _calibration(camera, settings).to(device), usual_scale([images])
    drawn_at = []
    began = time.monotonic()
    with target.open("wb") as file:
        for pose in fly(images, settings.num_frames):
            view, frame = _view(pose, calibration, settings, scale)
            drawn = rasterize(store.seen_from(frame, view), view, options).colors
            file.write(to_pixels(drawn).data)
            drawn_at.append(time.monotonic())
    rate = (len(drawn_at) - 1) / max(drawn_at[-1] - drawn_at[0], 1e-9)  # without the first, which may compile kernels
    return (
        f"{plural(len(drawn_at), 'frame')} in {drawn_at[-1] - began:.1f} s, after the first frame {rate:.1f} a second"
    )


def _calibration(camera: Camera, settings: FilmSettings) -> torch.Tensor:
    """Return the intrinsics K for the film's size, with the field of view of a camera along at least one side."""
    focal = camera.fx * max(settings.width / camera.width, settings.height / camera.height)
    return torch.tensor([[focal, 0, settings.width / 2], [0, focal, settings.height / 2], [0, 0, 1]])


def _view(
    pose: Pose, calibration: torch.Tensor, settings: FilmSettings, scale: float
) -> tuple[RenderCamera, LocalFrame]:
    """Return the render camera of a pose, and the local frame around it."""
    frame = camera_frame(pose[0], scale)
    matrix = torch.eye(4)
    matrix[:3, :3] = torch.from_numpy(pose[1])
    moved = (frame.origin - pose[0]) / scale  # rounding of the origin to float32
    matrix[:3, 3] = torch.from_numpy(pose[1] @ moved)
    view = RenderCamera(matrix.to(calibration.device), calibration, settings.width, settings.height)
    return view, frame


def film(settings: Path, frames: Path) -> None:
    """Render a film by the JSON file `settings` into the file `frames`; print a line with number and rate of frames.

    The parent process reads that line.

    Raises:
        SceneError: no camera of the model has a pose, or one lacks a focal length; or model or splat cannot be read.
        TrainerError: no GPU can be used where one is asked for or assigned, or there are no kernels for the GPU.
        ValueError: the recipe is invalid, or the splat has become shorter since it was opened.
        LaterFormatError: a later version wrote `settings`.
        OSError: `frames` cannot be written, or the splat no longer be read.
    """
    print(draw(FilmSettings.read(settings) or FilmSettings(), frames))  # noqa: T201 - the parent reads it


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: film(Path(sys.argv[1]), Path(sys.argv[2]))))
