"""Pixels that do not count: they neither pull at a Gaussian nor show in a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor


def masked(render: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return a rendering and its photograph [H, W, 3] with ignored pixels made equal, and without gradient.

    Equal pixels have L1 0 and SSIM 1, and windows of SSIM that reach over the border see a difference only where
    pixels count; black in both instead would make every such border an edge that the rendering seems to reproduce.
    `mask` [H, W] is true where a pixel counts; None: everywhere.
    """
    if mask is None:
        return render, target
    counts = mask[..., None]
    photo = target if target.is_floating_point() else target.to(render.dtype) / 255
    seen = render.detach()
    return torch.where(counts, render, seen), torch.where(counts, photo, seen)


def of_what_counts(figures: Mapping[str, float], mask: Tensor | None) -> dict[str, float]:
    """Return PSNR and SSIM, measured on what `masked` returns, as of the pixels that count.

    The squared error of the others is 0: PSNR falls by their share. So does what SSIM lacks to 1, all of which is
    caused by pixels that count.
    """
    share = 1.0 if mask is None else float(mask.float().mean())
    if share in (0.0, 1.0):
        return dict(figures)
    corrected = {"psnr": figures["psnr"] + 10 * math.log10(share), "ssim": 1 - (1 - figures["ssim"]) / share}
    return {**figures, **corrected}
