"""The logarithm of alpha over a tile, as a quadratic in pixel coordinates: evaluating it is a matrix product.

With p the pixel, m the mean and Q = [[a, b], [b, c]] the conic, alpha = opacity exp(-(p - m)^T Q (p - m) / 2). In
coordinates (u, v) from the middle of the tile, ln(alpha) = q . (1, u, v, u^2, u v, v^2): six numbers per pair of a tile
and a Gaussian, times a constant `[6, 64]` basis, and back through its transpose.
"""

from functools import cache

import torch
from torch import Tensor

from splatbatch.training.cpu.binning import TILE_PX


@cache
@torch.inference_mode(False)  # kept for good, so it must be fit for training even if an evaluation asks first
def pixel_basis(dtype: torch.dtype) -> Tensor:
    """1, u, v, u^2, u v, v^2 at the centres of a tile's pixels, row by row: `[6, 64]`."""
    centres = torch.arange(TILE_PX, dtype=dtype) + 0.5 - TILE_PX / 2
    v, u = (grid.flatten() for grid in torch.meshgrid(centres, centres, indexing="ij"))
    return torch.stack((torch.ones_like(u), u, v, u * u, u * v, v * v))


def quadratics(pairs: Tensor) -> Tensor:
    """The coefficients q `[R, 6]` of pairs `[6, R]`: the mean from the tile's middle (x, y in px), a, b, c, opacity."""
    x, y, a, b, c, opacity = pairs.unbind(0)
    slope_x, slope_y = a * x + b * y, b * x + c * y
    constant = opacity.log() - 0.5 * (x * slope_x + y * slope_y)
    return torch.stack((constant, slope_x, slope_y, -0.5 * a, -b, -0.5 * c), 1)


def quadratics_backward(pairs: Tensor, v_quadratics: Tensor) -> Tensor:
    """From the gradient of q `[R, 6]` to that of the pairs `[6, R]`, as rows `[R, 6]`."""
    x, y, a, b, c, opacity = pairs.unbind(0)
    v_1, v_u, v_v, v_uu, v_uv, v_vv = v_quadratics.unbind(1)
    v_slope_x, v_slope_y = v_u - x * v_1, v_v - y * v_1
    v_a = x * v_u - 0.5 * (x * x * v_1 + v_uu)
    v_b = x * v_v + y * v_slope_x - v_uv
    v_c = y * v_v - 0.5 * (y * y * v_1 + v_vv)
    v_x, v_y = a * v_slope_x + b * v_slope_y, b * v_slope_x + c * v_slope_y
    return torch.stack((v_x, v_y, v_a, v_b, v_c, v_1 / opacity), 1)


def absolute_slopes(coefficients: Tensor, v_log_alphas: Tensor) -> Tensor:
    """The sum over a tile's pixels of |gradient of the mean|, `[T, k, 2]`, which AbsGS densifies by (Ye 2024, eq. 8).

    `coefficients` is `[T, k, 6]`, `v_log_alphas` `[T, k, 64]`. Moving the mean is moving the pixel backwards, so the
    derivatives of ln(alpha) by the mean are minus its slopes: linear in u and v.
    """
    _, q_u, q_v, q_uu, q_uv, q_vv = coefficients.unbind(2)
    linear = pixel_basis(coefficients.dtype)[:3]
    by_x = torch.matmul(torch.stack((q_u, 2 * q_uu, q_uv), 2), linear)
    by_y = torch.matmul(torch.stack((q_v, q_uv, 2 * q_vv), 2), linear)
    return torch.stack([by.mul_(v_log_alphas).abs_().sum(2) for by in (by_x, by_y)], 2)
