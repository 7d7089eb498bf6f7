"""What Gaussians are worth to the photographs of a patch: how much the pictures change without them.

It comes from pictures and their gradients, so that every rasteriser gives it and none needs a kernel for it. It waits
for the GPU: it is asked for between steps, once in a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splatbatch.config.schedule import MOST_PRUNED
from splatbatch.training.border import NONE, PatchBorder
from splatbatch.training.loss import masked
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.rendering.rasterize import longest_lists, rasterize
from splatbatch.training.rendering.view import RasterOptions

MOST_MEASURED = 12
"""Photographs that tell what a removal costs."""
TRIALS = 6
"""Each halves what is unknown of how many may go."""

MOST_OPAQUE = 6.2
"""Logit of 0.998. No alpha exceeds 0.999 in a picture, and what is clamped there has no slope."""


@dataclass(frozen=True)
class Importance:
    """What each Gaussian is worth."""

    total: Tensor  # [N], to all photographs
    max_over_views: Tensor  # [N], to the one that it matters most to

    def order(self) -> Tensor:
        """Return the Gaussians, the least important first, [N].

        By what several photographs agree on: all but the one that a Gaussian matters most to. What a single one needs
        is mostly what was memorised of it. Where that is equal, as with one photograph, by all of them.
        """
        by_all = self.total.argsort(stable=True)
        return by_all[(self.total - self.max_over_views)[by_all].argsort(stable=True)]


@dataclass(frozen=True)
class PruningViews:
    """The photographs that Gaussians are judged by, and how they are drawn."""

    photos: tuple[PosedImage, ...]
    options: RasterOptions
    border: PatchBorder = NONE
    seed: int = 0
    capacity: int | None = None
    """Of tile lists, so that nothing waits for a GPU between two pictures; None: whatever each takes."""

    def fitting(self, gaussians: Mapping[str, Tensor]) -> PruningViews:
        """Return it with tile lists that are long enough for these Gaussians, and for some of them alone."""
        longest = longest_lists(self.border.with_backdrop(gaussians), self.photos, self.options)
        return replace(self, capacity=None if longest is None else max(1, int(longest)))

    def importance(self, gaussians: Mapping[str, Tensor]) -> Importance:
        """Return by how much pictures change if a Gaussian alone is left out: squares, summed over pixels.

        A pixel is linear in the alpha of each Gaussian, so leaving one out changes it by exactly its opacity times the
        slope in that. The square of the slope of a sum with random signs is, in the mean, the sum of the squared slopes
        (Hutchinson 1989): one backward pass per photograph gives an estimate for all Gaussians.
        """
        logits = gaussians["opacities"].detach().clamp(max=MOST_OPAQUE)
        random = torch.Generator(logits.device).manual_seed(self.seed)
        total, most, without_slope = torch.zeros_like(logits), torch.zeros_like(logits), 1 - logits.sigmoid()
        for photo in self.photos:
            slopes = self._slopes(gaussians, logits, photo, random)
            change = (slopes / without_slope).square()  # d opacity / d logit = opacity (1 - opacity)
            total += change
            torch.maximum(most, change, out=most)
        return Importance(total, most)

    def _slopes(
        self, gaussians: Mapping[str, Tensor], logits: Tensor, photo: PosedImage, random: torch.Generator
    ) -> Tensor:
        """Return the slopes of a sum of pixels with random signs, those alone that count, in the logits, [N]."""
        frozen = {name: value.detach() for name, value in gaussians.items()}
        varied = logits.clone().requires_grad_()
        colors = self._draw({**frozen, "opacities": varied}, photo)
        signs = 1 - 2 * torch.randint(0, 2, colors.shape, generator=random, device=colors.device, dtype=torch.int8)
        valid = photo.valid()
        counted = colors * signs if valid is None else colors * signs * valid[..., None]
        return torch.autograd.grad(counted.sum(), varied)[0]

    @torch.no_grad()
    def error(self, gaussians: Mapping[str, Tensor], photos: tuple[PosedImage, ...]) -> float:
        """Return the squared error of photographs, summed over the pixels that count."""
        errors = [self._error(self._draw(gaussians, photo), photo) for photo in photos]
        return float(torch.stack(errors).double().sum())

    def _error(self, colors: Tensor, photo: PosedImage) -> Tensor:
        colors, target = photo.to_compare(colors)
        target = target if photo.correction is not None else target.to(colors.dtype) / 255
        colors, target = masked(colors, target, photo.valid())
        return (colors - target).square().sum()

    def _draw(self, gaussians: Mapping[str, Tensor], photo: PosedImage) -> Tensor:
        return rasterize(self.border.with_backdrop(gaussians), photo.view, self.options, self.capacity).colors


def prunable(gaussians: Mapping[str, Tensor], views: PruningViews, loss_db: float) -> Tensor:
    """Return which Gaussians may go, [N]: the least important ones, for so many dB of PSNR on photographs at most.

    What is lost is measured by rendering without them: importances do not add up where Gaussians overlap.
    """
    views = views.fitting(gaussians)
    order = views.importance(gaussians).order()
    photos = views.photos[:: -(-len(views.photos) // MOST_MEASURED)]
    allowed = views.error(gaussians, photos) * 10 ** (loss_db / 10)
    fits, breaks = 0, 1 + int(MOST_PRUNED * len(order))
    for _ in range(TRIALS):
        tried = (fits + breaks) // 2
        kept = order[tried:].sort().values
        costs = views.error({name: value[kept] for name, value in gaussians.items()}, photos)
        fits, breaks = (tried, breaks) if costs <= allowed else (fits, tried)
    leaves = torch.zeros_like(order, dtype=torch.bool)
    leaves[order[:fits]] = True
    return leaves
