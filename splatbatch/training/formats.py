"""`python -m splatbatch.training.formats SETTINGS RESULT`: measure what converting a splat to other formats loses.

A splat, and the same splat converted to another format and back, are rendered from the cameras of photographs,
and their PSNR is compared. SETTINGS and RESULT are JSON files.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from splatbatch.config import Recipe
from splatbatch.errors import SceneError
from splatbatch.files import write_json
from splatbatch.output.records.colors import tone_in
from splatbatch.output.records.evaluation import ComparisonSettings
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.frame import shifted
from splatbatch.training.attempt import open_device
from splatbatch.training.loss import psnr_where
from splatbatch.training.photos.dataset import PhotoFolders, evenly_spaced
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, drawn_as
from splatbatch.training.scene.block_cache import BlockCache, open_blocks
from splatbatch.training.scene.photographs import CameraView, ScenePhotographs, usual_scale
from splatbatch.training.stop_request import exit_code_of

ORIGINAL = ""
MOST_HELD = 4_000_000
"""Largest number of each splat's Gaussians that are cached on the device; others are read again when needed."""
Figures = dict[str, float]


@torch.inference_mode()
def compare(settings: ComparisonSettings) -> dict[str, Any]:
    """Return the number of photographs used ("num_photos") and the mean figures of each splat ("splats").

    Figures of a splat, in dB, are its PSNR to the photographs ("psnr") and to renderings of the original ("between").
    The original is the splat named "" (`ORIGINAL`), whose header gives the options of all renderings. At most
    `settings.most_views` photographs are used, evenly taken from the held-out ones or, without hold-out, from all.

    Raises:
        SceneError: a model, a splat or a photograph cannot be read, or the masks ignore all pixels.
        TrainerError: no GPU can be used where one is asked for or assigned, or there are no kernels for the GPU.
        KeyError: the settings name no original, or hold out a photograph that the model lacks.
        ValueError: the recipe is invalid, or a splat file has become shorter since it was opened.
        OSError: a splat file can no longer be read.
    """
    recipe = Recipe.model_validate(settings.recipe)
    device = open_device(recipe.training.device)
    model = shifted(read_reconstruction(Path(settings.sparse)), settings.offset)
    names = evenly_spaced(settings.holdout or sorted(image.name for image in model.images), settings.most_views)
    folders = PhotoFolders.of(settings)
    photographs = ScenePhotographs(model, folders, recipe.training, names)
    stores = {name: BlockCache(open_blocks(Path(path)), device, MOST_HELD) for name, path in settings.splats.items()}
    recipe = drawn_as(recipe, stores[ORIGINAL].blocks.header)  # one for all: some formats have no such header
    scale = usual_scale([model.images])
    found: dict[str, list[Figures]] = {name: [] for name in stores}
    for shot in photographs.shots(names, scale, device, tone_in(settings)):
        if (photo := shot.photo).counts():
            shown = {name: _shown(store, shot, recipe) for name, store in stores.items()}
            for name, colors in shown.items():
                between = _psnr(colors, shown[ORIGINAL], photo)
                found[name].append({"psnr": _psnr(colors, photo.target(), photo), "between": between})
    if not any(found.values()):
        raise SceneError(f"{settings.images}: the masks ignore every pixel of all photographs: correct the masks")
    return {"num_photos": len(found[ORIGINAL]), "splats": {name: _mean(figures) for name, figures in found.items()}}


def _shown(store: BlockCache, shot: CameraView, recipe: Recipe) -> Tensor:
    """Return the rendering of a splat with the photograph's colour correction, [H, W, 3] in 0 to 1."""
    gaussians = store.seen_from(shot.frame, shot.photo.view)
    options = RasterOptions.of(recipe, store.blocks.header.sh_degree)
    colors = rasterize(gaussians, shot.photo.view, options).colors
    return shot.photo.as_taken(colors).clamp(0, 1)


def _psnr(colors: Tensor, target: Tensor, photo: PosedImage) -> float:
    """Return the PSNR in dB on valid pixels; 0 where it is NaN or minus infinity."""
    return max(0.0, psnr_where(colors, target, photo.valid()))


def _mean(figures: list[Figures]) -> Figures:
    return {name: round(statistics.fmean(one[name] for one in figures), 3) for name in ("psnr", "between")}


def measure(settings: Path, result: Path) -> None:
    """Compare the splats that the JSON file `settings` names, and write the figures to the JSON file `result`.

    Raises:
        SceneError: `settings`, a model, a splat or a photograph is missing or cannot be read; or the masks ignore all
            pixels.
        TrainerError: no GPU can be used where one is asked for or assigned, or there are no kernels for the GPU.
        LaterFormatError: a later version wrote `settings`.
        KeyError: the settings name no original, or hold out a photograph that the model lacks.
        ValueError: the recipe is invalid, or a splat file has become shorter since it was opened.
        OSError: `result` cannot be written, or a splat file no longer be read.
    """
    write_json(result, compare(ComparisonSettings.read(settings) or ComparisonSettings()))


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: measure(Path(sys.argv[1]), Path(sys.argv[2]))))
