"""Coarse to fine: photographs start small and grow to full size over a run, and the number of Gaussians with them.

The idea is DashGaussian's (Chen 2025, arXiv 2503.18402): early in a run a splat holds only low frequencies, so that
full resolution is wasted. A size that keeps a share s of the photographs' frequency content is used up to step
s x `full_size_at`, a step of the schedule. From `full_size_at` on, at the latest, photographs have full size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from splatbatch.config import Recipe
from splatbatch.config.schedule import Schedule
from splatbatch.processes import num_cores
from splatbatch.training.photos.dataset import TrainingImages
from splatbatch.training.photos.posed_image import PosedImage, shrink

FACTORS = (8, 6, 4, 3, 2)
"""Factors by which photographs may be shrunk along both axes, the coarsest first.

They are few, since CUDA graphs are recorded anew after each change of size.
"""
LEAST_CONTENT = 0.25
"""Least share of the frequency content, 0 to 1, that a size must keep to be used (DashGaussian: a = 4)."""
SMALLEST_PX = 64
MOST_PHOTOS = 12
"""Largest number of photographs whose spectrum is computed; spectra of one patch are alike."""


@dataclass(frozen=True)
class CoarseStage:
    """Stage of a run in which photographs are shrunk by `factor` along both axes, up to step `until`, exclusive."""

    factor: int
    until: int


@dataclass(frozen=True)
class CoarseToFine:
    """Shrink factor of the photographs and cap of the Gaussians at each step of a run."""

    stages: tuple[CoarseStage, ...]
    """Stages in their order; empty: photographs have full size from the first step on."""
    first: int
    """Number of initial Gaussians."""
    cap_max: int
    """Largest number of Gaussians of the run."""
    max_steps: int

    def factor(self, step: int) -> int:
        """Return the factor by which photographs are shrunk along both axes at a step, counted from 0.

        1, full size, after the last stage.
        """
        return next((stage.factor for stage in self.stages if step < stage.until), 1)

    def budget(self, step: int) -> int:
        """Return the cap of the Gaussians at a step, which grows with the resolution (DashGaussian, equation 7).

        The cap is first + (cap_max - first) / factor^(2 - step / max_steps), at most `cap_max`. At full size it is
        `cap_max`.
        """
        share: float = self.factor(step) ** -(2 - step / self.max_steps)
        return min(self.cap_max, round(self.first + (self.cap_max - self.first) * share))


def plan_sizes(views: TrainingImages, recipe: Recipe, plan: Schedule, first: int) -> CoarseToFine:
    """Return the sizes and caps of a run with `first` initial Gaussians.

    Where `views` have no frequency content, photographs have full size throughout.

    Raises:
        ValueError: `cap_max` of the recipe is a multiple of the sparse points.
    """
    return CoarseToFine(stages(views.content, plan.full_size_at), first, recipe.training.cap(), plan.max_steps)


def content_of(photos: Sequence[PosedImage], recipe: Recipe) -> dict[int, float]:
    """Return the share of the frequency content, 0 to 1, that photographs keep at each shrink factor (see `contents`).

    Empty where the recipe has no coarse-to-fine.
    """
    return contents(photos) if recipe.training.resolved().coarse_to_fine else {}


def stages(content: Mapping[int, float], full_size_at: int) -> tuple[CoarseStage, ...]:
    """Return the stages of a run, coarsest first, from the share of the frequency content that each factor keeps.

    Factors that keep less than `LEAST_CONTENT` have no stage. From step `full_size_at` on there is none.
    """
    kept = [factor for factor in sorted(content, reverse=True) if content[factor] >= LEAST_CONTENT]
    return tuple(CoarseStage(factor, round(full_size_at * min(1.0, content[factor]))) for factor in kept)


def contents(photos: Sequence[PosedImage]) -> dict[int, float]:
    """Return the share of the spectrum's amplitudes, 0 to 1, that remains at each shrink factor of `FACTORS`.

    Shares are means over at most `MOST_PHOTOS` photographs, evenly taken. Factors at which the shorter side of any
    photograph is less than `SMALLEST_PX` (64 px) are left out; empty if all are, and without photographs.
    """
    smallest = min((min(photo.view.width, photo.view.height) for photo in photos), default=0)
    factors = [factor for factor in FACTORS if smallest // factor >= SMALLEST_PX]
    if not factors:
        return {}
    sample = photos[:: -(-len(photos) // MOST_PHOTOS)]
    with ThreadPoolExecutor(min(len(sample), num_cores())) as pool:
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
    """Cache of photographs at the size of the present stage, each shrunk at first use and kept until the next stage.

    `sizes` say which stage a step belongs to.
    """

    def __init__(self, sizes: CoarseToFine) -> None:
        self._sizes = sizes
        self._factor = 1
        self._shrunk: dict[str, PosedImage] = {}

    def at(self, step: int, photo: PosedImage) -> PosedImage:
        """Return a photograph shrunk to the size of a step, counted from 0; at full size the photograph itself."""
        factor = self._sizes.factor(step)
        if factor != self._factor:
            self._factor = factor
            self._shrunk.clear()
        if factor == 1:
            return photo
        if photo.name not in self._shrunk:
            self._shrunk[photo.name] = shrink(photo, factor)
        return self._shrunk[photo.name]
