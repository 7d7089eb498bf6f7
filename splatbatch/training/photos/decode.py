"""Decoding of photographs and masks: from a file to shrunk, undistorted pixels in host memory, without CUDA."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from scipy.ndimage import map_coordinates

from splatbatch.errors import SceneError
from splatbatch.scene.camera_fix import rescaled
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.photos.folders import MASK_COUNTS
from splatbatch.scene.photos.headers import opened_photograph, pixels_of
from splatbatch.scene.photos.undistort import is_distorted, sources, undistorted_camera

Pixels = NDArray[np.uint8]
"""RGB pixels of a photograph, uint8 [H, W, 3]."""
WHITE = 255
BENT_PER_SIDE = 16
LENSES = 4  # undistortion maps that are cached, one per camera, of 8 bytes per pixel

Pillow.init()  # imports its readers before threads need them; a fork server does so once for all trainings


@dataclass(frozen=True)
class PhotoSource:
    """Files and camera from which a photograph is decoded; input of `decode`."""

    path: Path
    camera: Camera
    """Camera of the model, with its distortion, for the photograph at full size."""
    shrink: int
    """Shrink factor: each pixel becomes the mean of shrink x shrink pixels of the file; 1: full size."""
    mask: Path | None = None
    """File of the mask; None: all pixels count."""


@dataclass(frozen=True)
class Decoded:
    """A photograph at the resolution of the training, undistorted, with its pinhole camera, in host memory."""

    pixels: Pixels
    mask: NDArray[np.bool_] | None
    """[H, W], true where a pixel counts; None: everywhere."""
    camera: Camera
    """Pinhole camera whose size is that of the pixels."""
    stored: tuple[int, int]
    """Width and height of the photograph's file, before shrinking."""
    half_diagonal_px: float
    """Half the diagonal of the photograph before undistortion, in px of this resolution."""
    undistort_map: NDArray[np.float64] | None = None
    """Squared distances from the principal point at sample pixels, undistorted and as taken, [2, n].

    Distances are in units of `half_diagonal_px`. Vignetting is mapped to undistorted pixels by these. None: the camera
    has no distortion.
    """


def decode(source: PhotoSource) -> Decoded:
    """Read a photograph and its mask; shrink and undistort both.

    If the size of the photograph is not that of its camera, the photograph counts as resized, and K is rescaled along
    each axis. Shrinking divides K exactly: a pixel covers shrink x shrink pixels of the file, counted from the top-left
    corner. At the right and bottom edges a pixel may cover fewer. A shrunk pixel counts if all that it covers count.

    Raises:
        SceneError: the photograph or its mask cannot be read, or the camera cannot be undistorted to a pinhole.
    """
    picture = _open(source.path, "RGB")
    stored, shrink = picture.size, source.shrink
    pixels = np.array(picture.reduce(shrink) if shrink > 1 else picture)
    mask = _decode_mask(source.mask, stored, shrink) if source.mask else None
    size = (pixels.shape[1], pixels.shape[0])
    scale = (stored[0] / source.camera.width / shrink, stored[1] / source.camera.height / shrink)
    camera, half = rescaled(source.camera, size, scale), math.hypot(*stored) / 2 / shrink
    if is_distorted(camera):
        straight, places = lens(camera)
        pixels = _resample(pixels, places)
        mask = _resample_mask(mask, places) if mask is not None else None
        return Decoded(pixels, mask, straight, stored, half, _bent(camera, straight, places) / half**2)
    return Decoded(pixels, mask, undistorted_camera(camera), stored, half)


def _bent(camera: Camera, straight: Camera, places: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return squared distances from the principal point at sample pixels, px^2, [2, n]: undistorted, and as taken."""
    stride = max(1, min(places.shape[1:]) // BENT_PER_SIDE)
    taken = places[:, ::stride, ::stride].astype(np.float64) + 0.5
    here = np.mgrid[: places.shape[1] : stride, : places.shape[2] : stride] + 0.5
    from_middle = [here - [[[straight.cy]], [[straight.cx]]], taken - [[[camera.cy]], [[camera.cx]]]]
    squares: NDArray[np.float64] = np.square(from_middle).sum(axis=1).reshape(2, -1)
    return squares


_MAKING = threading.Lock()


def lens(camera: Camera) -> tuple[Camera, NDArray[np.float32]]:
    """Return the pinhole camera of undistorted photographs, and the source position of each of their pixels.

    Positions are rows and columns, [2, H, W], in px of the photograph as taken. The results for the last `LENSES` (4)
    cameras are cached, also between threads.

    Raises:
        SceneError: the camera cannot be undistorted to a pinhole.
    """
    with _MAKING:  # of threads that ask for the same map at once, only the first computes it
        return _lens(camera)


@lru_cache(maxsize=LENSES)
def _lens(camera: Camera) -> tuple[Camera, NDArray[np.float32]]:
    straight = undistorted_camera(camera)
    return straight, sources(camera, straight)


def _open(path: Path, mode: Literal["RGB", "L"]) -> Pillow.Image:
    try:
        with opened_photograph(path) as file:
            return pixels_of(file, mode)
    except FileNotFoundError as error:
        raise SceneError(f"{path}: missing image: copy it there") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise SceneError(f"{path}: cannot identify image file, or it is truncated ({error}): copy it again") from error


def _decode_mask(path: Path, size: tuple[int, int], shrink: int) -> NDArray[np.bool_]:
    """Return the mask of a photograph of `size`, shrunk; a pixel counts if all pixels of the file in it count."""
    picture = _open(path, "L").point(lambda grey: WHITE if grey >= MASK_COUNTS else 0)
    if picture.size != size:
        picture = picture.resize(size, Pillow.Resampling.NEAREST)
    counts: NDArray[np.bool_] = np.array(picture.reduce(shrink) if shrink > 1 else picture) == WHITE
    return counts


def _resample(pixels: Pixels, places: NDArray[np.float32]) -> Pixels:
    """Return the pixels [H, W, 3] at positions [2, H, W], bilinear; beyond the edge the pixels of the edge."""
    out = np.empty((*places.shape[1:], 3), np.uint8)
    for channel in range(3):
        values = map_coordinates(pixels[..., channel], places, np.float32, order=1, mode="nearest")
        out[..., channel] = (values + 0.5).astype(np.uint8)
    return out


def _resample_mask(mask: NDArray[np.bool_], places: NDArray[np.float32]) -> NDArray[np.bool_]:
    shares = map_coordinates(mask.astype(np.float32), places, order=1, mode="nearest")
    counts: NDArray[np.bool_] = shares > 1 - 1e-3
    return counts
