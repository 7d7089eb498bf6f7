"""Importance of Gaussians, for pruning: how much the renderings of the photographs change without each of them.

Importance is computed from renderings and their gradients, so that no further kernel is needed and every rasteriser
can be used. The computation waits for the GPU, so it is done between steps, once in a run.
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
"""Largest number of photographs on which the loss of PSNR by pruning is measured."""
TRIALS = 6
"""Number of bisection steps in the search for how many Gaussians may be removed."""

MOST_OPAQUE = 6.2
"""Logit of 0.998, to which opacities are clamped: rasterisers clamp alpha at 0.999, where the gradient is zero."""


@dataclass(frozen=True)
class Importance:
    """Importance of each of N Gaussians: the squared change of renderings of the photographs without this Gaussian."""

    total: Tensor  # [N], summed over all photographs
    max_over_views: Tensor  # [N], of the photograph in which it is largest

    def order(self) -> Tensor:
        """Return the indices of the Gaussians, the least important first, [N].

        Sorted by the total without the photograph that needs a Gaussian most: a Gaussian that a single photograph needs
        mostly reproduces errors of that photograph. Where this is equal, sorted by the total.
        """
        by_all = self.total.argsort(stable=True)
        return by_all[(self.total - self.max_over_views)[by_all].argsort(stable=True)]


@dataclass(frozen=True)
class PruningViews:
    """Training photographs on which the importance of Gaussians is measured, and how Gaussians are rendered there."""

    photos: tuple[PosedImage, ...]
    options: RasterOptions
    border: PatchBorder = NONE
    """Border of the patch, whose backdrop is rendered behind; by default neither."""
    seed: int = 0
    """Seed of the random signs by which importance is estimated."""
    capacity: int | None = None
    """Number of entries of the tile lists, so that no rendering waits for the GPU; None: counted, which waits."""

    def fitting(self, gaussians: Mapping[str, Tensor]) -> PruningViews:
        """Return the same views with a `capacity` that is enough for these Gaussians and for any subset of them.

        The capacity is None where this package's kernels do not render. Waits for the GPU.
        """
        longest = longest_lists(self.border.with_backdrop(gaussians), self.photos, self.options)
        return replace(self, capacity=None if longest is None else max(1, int(longest)))

    def importance(self, gaussians: Mapping[str, Tensor]) -> Importance:
        """Estimate, for each Gaussian, the squared change of valid pixels if this Gaussian alone is removed.

        A pixel is linear in the alpha of each Gaussian. So a removal changes a pixel by exactly the opacity times the
        derivative in the opacity. The squared derivative of a sum with random signs is, in the mean, the sum of the
        squared derivatives (Hutchinson 1989): one backward pass per photograph estimates all Gaussians.

        Raises:
            TrainerError: there are no kernels for the GPU.
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
        """Return the gradient in the opacity logits, [N], of the sum of the valid pixels with random signs."""
        frozen = {name: value.detach() for name, value in gaussians.items()}
        varied = logits.clone().requires_grad_()
        colors = self._draw({**frozen, "opacities": varied}, photo)
        signs = 1 - 2 * torch.randint(0, 2, colors.shape, generator=random, device=colors.device, dtype=torch.int8)
        valid = photo.valid()
        counted = colors * signs if valid is None else colors * signs * valid[..., None]
        return torch.autograd.grad(counted.sum(), varied)[0]

    @torch.no_grad()
    def error(self, gaussians: Mapping[str, Tensor], photos: tuple[PosedImage, ...]) -> float:
        """Return the squared error of renderings of photographs, summed over valid pixels and channels (white: 1).

        The patch's border adds the backdrop to `gaussians`. Waits for the GPU once.

        Raises:
            TrainerError: there are no kernels for the GPU.
        """
        errors = []
        for photo in photos:
            colors, target = masked(*photo.to_compare(self._draw(gaussians, photo)), photo.valid())
            errors.append((colors - target).square().sum())
        return float(torch.stack(errors).double().sum())

    def _draw(self, gaussians: Mapping[str, Tensor], photo: PosedImage) -> Tensor:
        return rasterize(self.border.with_backdrop(gaussians), photo.view, self.options, self.capacity).colors


def prunable(gaussians: Mapping[str, Tensor], views: PruningViews, loss_db: float) -> Tensor:
    """Return a mask [N] of the Gaussians to prune: the least important, for a loss of at most `loss_db` (dB) of PSNR.

    The loss is measured by rendering at most 12 training photographs without these Gaussians, since the importance of
    overlapping Gaussians does not add up. At most the share `MOST_PRUNED` is pruned; maybe none.

    Raises:
        TrainerError: there are no kernels for the GPU.
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
