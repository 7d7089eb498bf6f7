"""A splat file measured on held-out photographs as if it had been trained here, whoever has written it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from splatbatch.config import Offset, Recipe
from splatbatch.splats import read_header, read_splat
from splatbatch.training.border.surroundings import NONE, Surroundings
from splatbatch.training.evaluation.evaluate import Metrics, evaluate
from splatbatch.training.evaluation.lpips import Lpips
from splatbatch.training.gaussians import from_splat
from splatbatch.training.photos.frame import Frame
from splatbatch.training.photos.views import Photo


@dataclass(frozen=True)
class SplatFiles:
    """What splats of a patch are measured on."""

    photos: tuple[Photo, ...]
    """Held out, on the device that renders."""
    frame: Frame
    recipe: Recipe
    device: torch.device
    offset: Offset
    """That the splats lie in; a file that names none is taken to lie there."""
    surroundings: Surroundings = NONE
    is_evened: bool = False

    def figures(self, path: Path, lpips: Lpips | None = None) -> Metrics:
        """Return what `evaluate` finds of a splat, drawn with all the colours that its file has.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is no splat, or lies in another frame.
            TrainerError: a rendering is not finite.
        """
        if (there := read_header(path).offset) not in (self.offset, (0.0, 0.0, 0.0)):
            raise ValueError(f"lies in another frame: offset {there}, not {self.offset}")
        splat = read_splat(path)
        degree = math.isqrt(splat.shN.shape[1] + 1) - 1
        training = self.recipe.training.model_copy(update={"sh_degree": degree})
        recipe = self.recipe.model_copy(update={"training": training})
        with torch.inference_mode():
            drawn = self.surroundings.drawn_with(from_splat(splat, self.frame, self.device))
            return evaluate(drawn, self.photos, recipe, lpips, is_evened=self.is_evened) or {}
