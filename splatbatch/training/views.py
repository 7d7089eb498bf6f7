"""Photographs and cameras of a patch as tensors: decoded once, kept as uint8 where they are used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor

from splatbatch.config import Training
from splatbatch.errors import SceneError
from splatbatch.scene.reconstruction import PINHOLE_MODELS, Camera, Image, Reconstruction
from splatbatch.scene.resolution import divisor_of
from splatbatch.training.rasterize import View

ROUNDING = 1e-12  # of the largest coordinate: what float64 loses in R^T t, with a margin

LARGEST_SHARE = 0.33
"""Of the free GPU memory that photographs may take before they stay on the host."""
Pixels = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
"""[H, W, 3]"""


@dataclass(frozen=True)
class Frame:
    """The frame that is trained in: x = (world - center) / unit.

    MCMC's noise and the regularisers are not scale-free, and COLMAP's unit is arbitrary. As gsplat's own examples do,
    the cameras' median distance from their middle becomes 1; the splat is written in world coordinates again.
    """

    center: np.ndarray[tuple[int], np.dtype[np.float64]]  # [3]
    unit: float
    scene_scale: float
    """Reach of the cameras from their middle, in units, with a margin of a tenth (3DGS: "cameras extent")."""


@dataclass(frozen=True)
class Photo:
    """A photograph and the camera that took it."""

    name: str
    view: View
    pixels: Tensor  # [H, W, 3] uint8, where it fits

    def target(self) -> Tensor:
        """Return the pixels on the device that renders; from pinned memory the upload does not wait."""
        return self.pixels.to(self.view.viewmat.device, non_blocking=True)


@dataclass(frozen=True)
class Views:
    """All photographs of a patch, in the frame they are trained in."""

    training: tuple[Photo, ...]
    holdout: tuple[Photo, ...]
    frame: Frame
    warnings: tuple[str, ...]

    def to(self, device: torch.device, wanted: str) -> Views:
        """Return the views for a device: cameras on it, photographs there or in host memory (`training.images`)."""
        home = _home(wanted, sum(photo.pixels.nbytes for photo in (*self.training, *self.holdout)), device)
        training, holdout = (
            tuple(_settle(photo, home, device) for photo in photos) for photos in (self.training, self.holdout)
        )
        return replace(self, training=training, holdout=holdout)


def decode_views(reconstruction: Reconstruction, folder: Path, holdout: frozenset[str], training: Training) -> Views:
    """Decode every photograph of a reconstruction at the resolution that is trained, in host memory.

    Nothing here touches CUDA: a process may do it while another one still has the GPU.

    Raises:
        SceneError: a photograph is missing or unreadable, a camera has distortion, or none is left to train on.
    """
    sizes = [(camera.width, camera.height) for camera in reconstruction.cameras.values()]
    shrink = divisor_of(training.resolution, sizes)
    frame = _frame(reconstruction.images)
    arrays = _decode_all([folder / image.name for image in reconstruction.images], shrink, training.workers)
    photos = []
    for image, array in zip(reconstruction.images, arrays, strict=True):
        view = _view(image, reconstruction.cameras[image.camera_id], array.shape, shrink, frame)
        photos.append(Photo(image.name, view, torch.from_numpy(array)))
    kept = tuple(photo for photo in photos if photo.name not in holdout)
    if not kept:
        raise SceneError(f"{reconstruction.folder}: no training cameras: 0 of {len(photos)} photographs are left")
    held_out = tuple(photo for photo in photos if photo.name in holdout)
    return Views(kept, held_out, frame, _size_warnings(reconstruction, arrays, shrink))


def _decode_all(paths: Sequence[Path], shrink: int, workers: int | Literal["auto"]) -> list[Pixels]:
    """Decode photographs, in threads: Pillow lets go of Python's lock while it decodes."""
    count = min(16, os.cpu_count() or 1) if workers == "auto" else workers
    if count == 0:
        return [_decode(path, shrink) for path in paths]
    with ThreadPoolExecutor(max_workers=count) as pool:
        return list(pool.map(lambda path: _decode(path, shrink), paths))


def _decode(path: Path, shrink: int) -> Pixels:
    """Return a photograph as RGB, each pixel the mean of `shrink` x `shrink`; at the far edges, of those there are."""
    try:
        with Pillow.open(path) as file:
            picture = file.convert("RGB")
            return np.array(picture.reduce(shrink) if shrink > 1 else picture)
    except FileNotFoundError as error:
        raise SceneError(f"{path}: missing image") from error
    except (OSError, SyntaxError, ValueError, Pillow.DecompressionBombError) as error:
        raise SceneError(f"{path}: cannot identify image file, or it is truncated ({error})") from error


def _view(image: Image, camera: Camera, shape: tuple[int, ...], shrink: int, frame: Frame) -> View:
    """Return the pinhole camera of a photograph of this shape, in the frame that is trained.

    A photograph whose size is not its camera's is taken for a resized one, each axis by itself. Shrinking divides K by
    a whole number exactly: its pixels cover shrink x shrink of the photograph's from the top-left corner on.
    """
    if camera.model not in PINHOLE_MODELS:
        raise SceneError(
            f"camera {camera.id}: camera model {camera.model} is not supported: undistort the images first"
        )
    height, width = shape[:2]
    ratios = _ratio(width, camera.width, shrink), _ratio(height, camera.height, shrink), 1.0
    K = camera.K * np.array(ratios)[:, None]
    viewmat = image.world_to_camera()
    viewmat[:3, 3] = (viewmat[:3, 3] + viewmat[:3, :3] @ frame.center) / frame.unit
    return View(torch.tensor(viewmat, dtype=torch.float32), torch.tensor(K, dtype=torch.float32), width, height)


def _ratio(pixels: int, full: int, shrink: int) -> float:
    """Return by how much K shrinks along an axis; exactly 1 / shrink if the photograph had its camera's size."""
    return 1 / shrink if pixels == -(-full // shrink) else pixels / full


def _home(wanted: str, num_bytes: int, device: torch.device) -> torch.device:
    """Return where the photographs lie: on the GPU if told, or if they take less than a third of what is free there."""
    if device.type == "cpu" or wanted == "host":
        return torch.device("cpu")
    fits = num_bytes < LARGEST_SHARE * torch.cuda.mem_get_info()[0]
    return device if wanted == "gpu" or fits else torch.device("cpu")


def _settle(photo: Photo, home: torch.device, device: torch.device) -> Photo:
    """Return a photograph with its camera on `device` and its pixels at home; pinned in host memory to upload fast."""
    view = replace(photo.view, viewmat=photo.view.viewmat.to(device), K=photo.view.K.to(device))
    if home.type == "cuda":
        return replace(photo, view=view, pixels=photo.pixels.to(home, non_blocking=True))
    return replace(photo, view=view, pixels=photo.pixels.pin_memory() if device.type == "cuda" else photo.pixels)


def _size_warnings(reconstruction: Reconstruction, arrays: Sequence[Pixels], shrink: int) -> tuple[str, ...]:
    resized = []
    for image, array in zip(reconstruction.images, arrays, strict=True):
        camera = reconstruction.cameras[image.camera_id]
        if array.shape[:2] != (-(-camera.height // shrink), -(-camera.width // shrink)):
            resized.append(image.name)
    if not resized:
        return ()
    return (f"{len(resized)} photographs differ in size from their camera, as {resized[0]}: K was rescaled",)


def _frame(images: Sequence[Image]) -> Frame:
    centers = np.array([image.center() for image in images])  # [n, 3]
    middle = centers.mean(axis=0)
    distances = np.linalg.norm(centers - middle, axis=1)
    unit, reach = float(np.median(distances)), float(distances.max())
    if reach <= ROUNDING * float(np.abs(centers).max()):  # all from one place: the distances are rounding errors
        return Frame(middle, unit=1.0, scene_scale=1.0)
    unit = unit if unit > 1e-6 * reach else reach  # most from one place
    return Frame(middle, unit, scene_scale=1.1 * reach / unit)
