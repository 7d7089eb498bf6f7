"""Colour-corrected copies of photographs, for trainers that cannot correct colours themselves.

Gain, vignetting and shading are divided out.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.errors import SceneError
from splatbatch.processes import num_cores
from splatbatch.scene.colmap.reconstruction import read_cameras, read_images
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.colors.correction import NEUTRAL, NODES, ColorCorrection
from splatbatch.scene.colors.shading_grid import shares_along
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.folders import see_name, stored_photographs
from splatbatch.scene.photos.headers import opened_photograph, pixels_of

JPEG_QUALITY = 97
"""JPEG quality of the copies: the error of compressing again (about 45 dB) is below the noise of a photograph."""

WHITE = 255


def write_evened(patch: Patch, target: Path) -> None:
    """Write colour-corrected copies of a patch's photographs below `target`, under their image names.

    A photograph without a correction becomes a link to the original. Folders are made as needed; copies are written in
    place, so that an interrupted run may leave a cut file.

    Raises:
        SceneError: the model cannot be read, or a photograph is missing, cannot be decoded, or has an unsafe name. For
            some broken files Pillow raises other errors.
        OSError: a copy cannot be written, or a link's place is taken.
        KeyError: the model lacks the camera of a photograph that has a correction.
    """
    cameras, (folder, _) = read_cameras(patch.sparse), stored_photographs(patch.images)

    def write(image: Any) -> None:
        see_name(image.name, patch.sparse)
        source, copy = folder / image.name, target / image.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        tone = patch.tone_of(image.name)
        if not source.is_file():
            raise SceneError(f"{source}: missing image", "Copy the photograph there.")
        if tone == NEUTRAL:
            copy.symlink_to(source.resolve())
        else:
            _write(source, copy, tone, cameras[image.camera_id])

    with ThreadPoolExecutor(num_cores()) as pool:
        list(pool.map(write, read_images(patch.sparse)))  # raises the first error


def _write(source: Path, copy: Path, tone: ColorCorrection, camera: Camera) -> None:
    from PIL import Image, UnidentifiedImageError

    try:
        with opened_photograph(source) as file:
            kept = {key: file.info[key] for key in ("exif", "icc_profile", "dpi") if key in file.info}
            # MPO is a JPEG with a preview behind it, as drones write them; the copy has no preview
            form = "JPEG" if file.format == "MPO" else file.format
            alpha = file.getchannel("A") if file.mode in ("RGBA", "LA") else None
            pixels = np.asarray(pixels_of(file))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise SceneError(f"{source}: cannot be decoded ({error})", "Copy the file again from the camera.") from error
    picture = Image.fromarray(normalised_copies(pixels, tone, camera))
    if alpha is not None:
        picture.putalpha(alpha)
    options: dict[str, Any] = {"quality": JPEG_QUALITY, "subsampling": 0} if form == "JPEG" else {}
    picture.save(copy, form, **kept, **options)


def normalised_copies(pixels: NDArray[np.uint8], tone: ColorCorrection, camera: Camera) -> NDArray[np.uint8]:
    """Return a photograph [H, W, 3], 0 to 255, divided by its colour correction. White pixels stay white.

    Args:
        pixels: the photograph, [H, W, 3]; its size may differ from the camera's.
        tone: colour correction of the photograph.
        camera: camera of the photograph, whose principal point is the centre of the vignetting.
    """
    divisor = np.asarray(tone.gain, np.float32) * _falloff(pixels.shape[:2], tone, camera)
    divided = np.rint(pixels / divisor).clip(0, 255).astype(np.uint8)
    return np.where((pixels == WHITE).all(axis=2, keepdims=True), np.uint8(WHITE), divided)


def _falloff(shape: tuple[int, ...], tone: ColorCorrection, camera: Camera) -> NDArray[np.float32]:
    """Return falloff times shading at each pixel, [H, W, 1], or [H, W, 3] with a tinted shading grid."""
    height, width = shape
    center = middle(camera)
    x = (np.arange(width, dtype=np.float32) + 0.5) * (camera.width / width) - center[0]
    y = (np.arange(height, dtype=np.float32) + 0.5) * (camera.height / height) - center[1]
    half = np.float32(np.hypot(*camera.size) / 2)
    square = (x[None] ** 2 + y[:, None] ** 2) / half**2
    bent = np.zeros_like(square)
    for coefficient in reversed(tone.vignetting):
        bent = (bent + np.float32(coefficient)) * square
    plane = (np.float32(tone.shading_gradient[0]) * x[None] + np.float32(tone.shading_gradient[1]) * y[:, None]) / half
    shading = (bent + plane)[..., None]
    if tone.shading_grid:
        across, down = (shares_along(one / half) for one in (x, y))
        own = down @ np.array(tone.shading_grid, np.float32).reshape(NODES, NODES) @ across.T
        shading = shading + own[..., None] * np.array(tone.shading_color, np.float32)
    return np.exp(shading).astype(np.float32)


def middle(camera: Camera) -> tuple[float, float]:
    """Return the principal point of a camera in pixels, x and y; the middle of its image if it has none."""
    return (camera.cx, camera.cy) if camera.has_center else (camera.width / 2, camera.height / 2)
