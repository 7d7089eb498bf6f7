"""Blending Gaussians front to back over the 64 pixels of tiles, and the way back.

A pixel's colour is sum_i w_i c_i with w_i = alpha_i T_i and T_i = prod_{j<i} (1 - alpha_j) (3DGS, Kerbl 2023, eq. 3).
The thresholds are gsplat's (RasterizeToPixels3DGSFwd.cu): an alpha below 1/255 is skipped, none exceeds 0.999, and a
pixel stops before the Gaussian that would bring its transmittance to 1e-4 or less. Alpha itself is blended as one more
colour channel, always 1.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from splatbatch.training.cpu.projection import ALPHA_MIN
from splatbatch.training.cpu.quadratics import pixel_basis
from splatbatch.training.cpu.tile_groups import BLOCK

ALPHA_MAX = 0.999
TRANSMITTANCE_MIN = 1e-4
# alpha / (1 - alpha) of a clamped alpha is 999; a little below, to be safe from rounding.
_CLAMPED_ODDS = 998.9


class Blended(NamedTuple):
    """What the way back needs of up to BLOCK consecutive Gaussians on T tiles."""

    odds: Tensor  # [T, k, 64], alpha / (1 - alpha)
    weights: Tensor  # [T, k, 64], alpha times transmittance; 0 where the pixel had stopped


def blend(quadratics: Tensor, colors: Tensor) -> tuple[Tensor, list[Blended]]:
    """Draw T tiles: coefficients `[T, K, 6]` and colours `[T, K, D]`, nearest first, give pixels `[T, D, 64]`.

    Stops after the first block that leaves every pixel opaque, so the blocks may cover fewer than K Gaussians.
    """
    # Pixels are the last dimension everywhere: with so few channels, these products are 2-8 times slower otherwise.
    pixels = colors.new_zeros(len(colors), colors.shape[2], pixel_basis(colors.dtype).shape[1])
    blocks = []
    transmittance = None  # [T, 1, 64] after the block before; None is 1 everywhere
    for coefficients, block_colors in zip(
        torch.split(quadratics, BLOCK, 1), torch.split(colors, BLOCK, 1), strict=True
    ):
        block, transmittance = _blend_block(coefficients, transmittance)
        pixels.baddbmm_(block_colors.transpose(1, 2), block.weights)
        blocks.append(block)
        if not transmittance.any():
            break
    return pixels, blocks


def _blend_block(coefficients: Tensor, before: Tensor | None) -> tuple[Blended, Tensor]:
    # In place throughout: memory traffic is what this costs. Threshold and products are far faster than torch.where.
    alphas = torch.matmul(coefficients, pixel_basis(coefficients.dtype)).exp_().clamp_max_(ALPHA_MAX)
    torch.threshold_(alphas, ALPHA_MIN, 0.0)
    passing = 1 - alphas
    after = torch.cumprod(passing, 1)  # the transmittance behind each Gaussian
    if before is not None:
        after.mul_(before)
    torch.threshold_(after, TRANSMITTANCE_MIN, 0.0)
    last = after[:, -1:].clone()
    odds = torch.div(alphas, passing, out=passing)
    return Blended(odds, after.mul_(odds)), last  # T_i alpha_i = T_{i+1} alpha_i / (1 - alpha_i)


def unblend(pixels: Tensor, v_pixels: Tensor, colors: Tensor, blocks: list[Blended]) -> Iterator[Tensor]:
    """The gradient of ln(alpha), `[T, k, 64]`, block by block, front to back, from that of `pixels` `[T, D, 64]`.

    Let v be the gradient of a pixel and s_i = w_i (c_i . v) what Gaussian i adds to pixel . v. Raising alpha_i raises
    s_i and dims all that is behind: dL / d ln(alpha_i) = s_i - alpha_i / (1 - alpha_i) sum_{j>i} s_j. The sum is the
    total minus the prefix, so nothing is divided by a vanishing transmittance or depends on where a pixel stopped.
    """
    behind_block = (pixels * v_pixels).sum(1, keepdim=True)  # [T, 1, 64]
    for block, block_colors in zip(blocks, torch.split(colors, BLOCK, 1), strict=False):
        shares = torch.bmm(block_colors, v_pixels).mul_(block.weights)
        behind = behind_block - torch.cumsum(shares, 1)
        behind_block = behind[:, -1:].clone()
        v_log_alphas = shares.sub_(behind.mul_(block.odds))
        # A clamped alpha does not move. Asked first, because it is rare and the mask costs as much as the exponential.
        if block.odds.amax() > _CLAMPED_ODDS:
            v_log_alphas.masked_fill_(block.odds > _CLAMPED_ODDS, 0.0)
        yield v_log_alphas
