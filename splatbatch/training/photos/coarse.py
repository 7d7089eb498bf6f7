"""Coarse to fine: photographs start small and grow to full size over a run, and the number of Gaussians with them.

The idea is DashGaussian's (Chen 2025, arXiv 2503.18402): early in a run a splat holds only low frequencies, so that
full resolution is wasted on it. A size that keeps a share s of the photographs' frequency content is used up to step
s x `Schedule.full_size_at`. From `full_size_at` on, at the latest, photographs have full size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from splatbatch.config import Recipe
from splatbatch.config.schedule import Schedule
from splatbatch.training.photos.dataset import TrainingImages
from splatbatch.training.photos.posed_image import PosedImage, shrink

FACTORS = (8, 6, 4, 3, 2)
"""Shrink factors, the coarsest first; few, since CUDA graphs are recorded anew after each change of size."""
LEAST_CONTENT = 0.25
"""Least share of the frequency content that a size must keep to be used in training (DashGaussian: a = 4)."""
SMALLEST_PX = 64
MOST_PHOTOS = 12
"""Largest number of photographs whose spectrum is computed; those of one patch are alike."""


@dataclass(frozen=True)
class CoarseStage:
    """Stage of a run in which photographs are shrunk by `factor`, up to step `until`, exclusive."""

    factor: int
    until: int


@dataclass(frozen=True)
class CoarseToFine:
    """Shrink factor of the photographs and cap of the Gaussians at each step of a run."""

    stages: tuple[CoarseStage, ...]
    first: int
    """Number of initial Gaussians."""
    cap_max: int
    max_steps: int

    def factor(self, step: int) -> int:
        """Return the factor by which photographs are shrunk along both axes at a step; 1 after the last stage."""
        return next((stage.factor for stage in self.stages if step < stage.until), 1)

    def budget(self, step: int) -> int:
        """Return the cap of the Gaussians at a step, which grows with the resolution (DashGaussian, equation 7).

        first + (cap_max - first) / factor^(2 - step / max_steps), at most `cap_max`, which it reaches at full size.
        """
        share: float = self.factor(step) ** -(2 - step / self.max_steps)
        return min(self.cap_max, round(self.first + (self.cap_max - self.first) * share))


def plan_sizes(views: TrainingImages, recipe: Recipe, plan: Schedule, first: int) -> CoarseToFine:
    """Return the plan for photographs and `first` initial Gaussians; full size throughout without coarse-to-fine."""
    content = content_of(views.training, recipe) if views.content is None else views.content
    return CoarseToFine(stages(content, plan.full_size_at), first, recipe.training.cap(), plan.max_steps)


def content_of(photos: Sequence[PosedImage], recipe: Recipe) -> dict[int, float]:
    """Return the result of `contents`; empty where the recipe has no coarse-to-fine."""
    return contents(photos) if recipe.training.resolved().coarse_to_fine else {}


def stages(content: Mapping[int, float], full_size_at: int) -> tuple[CoarseStage, ...]:
    """Return the stages of a run from the share of frequency content that each factor keeps, coarsest first."""
    kept = [factor for factor in sorted(content, reverse=True) if content[factor] >= LEAST_CONTENT]
    return tuple(CoarseStage(factor, round(full_size_at * min(1.0, content[factor]))) for factor in kept)


def contents(photos: Sequence[PosedImage]) -> dict[int, float]:
    """Return the share of the spectrum's amplitudes that remains at each shrink factor, in the mean over photographs.

    Only factors at which the shorter side keeps `SMALLEST_PX` pixels.
    """
    sample = photos[:: -(-len(photos) // MOST_PHOTOS)]
    smallest = min((min(photo.view.width, photo.view.height) for photo in photos), default=0)
    factors = [factor for factor in FACTORS if smallest // factor >= SMALLEST_PX]
    if not factors:
        return {}
    with ThreadPoolExecutor(min(len(sample), os.cpu_count() or 1)) as pool:
        shares = torch.stack(list(pool.map(lambda photo: _shares(photo.target(), factors), sample))).mean(dim=0)
    return dict(zip(factors, shares.tolist(), strict=True))


@torch.inference_mode()
def _shares(pixels: Tensor, factors: Sequence[int]) -> Tensor:
    """Return the share of the amplitudes below the Nyquist frequency of each factor, [factors]."""
    grey = pixels.float().mean(dim=-1)
    amplitudes = torch.fft.rfft2(grey - grey.mean()).abs()  # [H, W // 2 + 1]
    across = torch.fft.rfftfreq(grey.shape[1], device=grey.device)
    down = torch.fft.fftfreq(grey.shape[0], device=grey.device).abs()
    # pixels can show frequencies up to 0.5
    kept = [amplitudes[down < 0.5 / factor][:, across < 0.5 / factor].sum() for factor in factors]
    shares: Tensor = torch.stack(kept) / amplitudes.sum().clamp_min(1e-12)
    return shares


class Pyramid:
    """Cache of the photographs at the present size: each is shrunk at first use and kept until the size changes."""

    def __init__(self, sizes: CoarseToFine) -> None:
        self._sizes = sizes
        self._factor = 1
        self._shrunk: dict[str, PosedImage] = {}

    def over(self, photos: Iterator[PosedImage], start: int) -> Iterator[PosedImage]:
        """Yield the photographs of the steps from `start` on, each at the size of its step."""
        for step, photo in enumerate(photos, start):
            yield self.at(step, photo)

    def at(self, step: int, photo: PosedImage) -> PosedImage:
        """Return a photograph shrunk to the size of a step; at full size the photograph itself."""
        factor = self._sizes.factor(step)
        if factor != self._factor:
            self._factor = factor
            self._shrunk.clear()
        if factor == 1:
            return photo
        if photo.name not in self._shrunk:
            self._shrunk[photo.name] = shrink(photo, factor)
        return self._shrunk[photo.name]
