"""How well the splat shows photographs it has never seen; under inference_mode, one image at a time."""

from __future__ import annotations

import math
import statistics
from typing import Any

import torch

from splatbatch.config import Recipe
from splatbatch.errors import TrainerError
from splatbatch.training.gaussians import Parameters
from splatbatch.training.loss import psnr, ssim
from splatbatch.training.rasterize import RasterOptions, rasterize
from splatbatch.training.views import Photo

MOST_PSNR_DB = 100.0  # equal images have an infinite PSNR, which JSON cannot hold


@torch.inference_mode()
def evaluate(gaussians: Parameters, photos: tuple[Photo, ...], recipe: Recipe) -> dict[str, Any] | None:
    """Return the mean PSNR in dB and SSIM (3DGS's: 11 x 11 Gaussian window, zero padding) and those of each photograph.

    None without held-out photographs.

    Raises:
        TrainerError: a rendering is not finite.
    """
    if not photos:
        return None
    images = {photo.name: _measure(gaussians, photo, recipe) for photo in photos}
    blind = [name for name, image in images.items() if not math.isfinite(image["psnr"])]
    if blind:
        raise TrainerError(f"health: nan_loss: the rendering of {blind[0]} is not finite")
    means = {key: statistics.fmean(image[key] for image in images.values()) for key in ("psnr", "ssim")}
    return {**means, "num_images": len(images), "images": images}


def _measure(gaussians: Parameters, photo: Photo, recipe: Recipe) -> dict[str, float]:
    colors = rasterize(gaussians, photo.view, RasterOptions(recipe.training.sh_degree)).colors.clamp(0, 1)
    target = photo.target()
    return {"psnr": min(MOST_PSNR_DB, float(psnr(colors, target))), "ssim": float(ssim(colors, target))}
