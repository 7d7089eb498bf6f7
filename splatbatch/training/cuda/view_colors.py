"""Colours from spherical harmonics in one kernel, reading sh0 and shN where they lie: joining them would copy both."""

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128
SH_C0: tl.constexpr = tl.constexpr(0.28209479177387814)  # 1 / (2 sqrt(pi))


def view_colors(gaussians: Mapping[str, Tensor], viewmat: Tensor, radii: Tensor, degree: int) -> Tensor:
    """The RGB `[N, 3]` of Gaussians seen by the camera `viewmat` `[4, 4]`, never negative.

    The same numbers as `training.cpu.view_colors` (3DGS's basis), differentiable in `means`, `sh0` and `shN`; where
    `radii` `[N, 2]` are 0 a Gaussian is not seen, and its coefficients are not read.
    """
    colors: Tensor = _ViewColors.apply(gaussians["means"], gaussians["sh0"], gaussians["shN"], viewmat, radii, degree)
    return colors


class _ViewColors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        means, sh0, shN, viewmat, radii, degree = inputs
        colors = torch.empty_like(means)
        grid = (triton.cdiv(len(means), BLOCK),)
        _forward[grid](means, sh0, shN, viewmat, radii, colors, len(means), shN.shape[1], degree, BLOCK)
        ctx.save_for_backward(means, sh0, shN, viewmat, radii, colors)
        ctx.degree = degree
        return colors

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        means, sh0, shN, viewmat, radii, colors = ctx.saved_tensors
        v_means, v_sh0, v_shN = torch.empty_like(means), torch.empty_like(sh0), torch.empty_like(shN)
        grid = (triton.cdiv(len(means), BLOCK),)
        _backward[grid](
            *(means, shN, viewmat, radii, colors, gradients[0].contiguous(), v_means, v_sh0),
            *(len(means), shN.shape[1], ctx.degree, BLOCK),
        )
        if shN.shape[1]:
            grid = (triton.cdiv(len(means) * shN.shape[1], BLOCK),)
            _spread[grid](means, viewmat, v_sh0, v_shN, len(means), shN.shape[1], ctx.degree, BLOCK)
        return v_means, v_sh0, v_shN, None, None, None


@triton.jit
def _basis(x, y, z):
    """The 15 functions above degree 0: see training/cpu/spherical_harmonics.py."""
    xx, yy, zz = x * x, y * y, z * z
    return (
        -0.4886025119029199 * y,
        0.4886025119029199 * z,
        -0.4886025119029199 * x,
        1.0925484305920792 * x * y,
        -1.0925484305920792 * y * z,
        0.31539156525252005 * (3 * zz - 1),
        -1.0925484305920792 * x * z,
        0.5462742152960396 * (xx - yy),
        -0.5900435899266435 * y * (3 * xx - yy),
        2.890611442640554 * x * y * z,
        -0.4570457994644658 * y * (5 * zz - 1),
        0.3731763325901154 * z * (5 * zz - 3),
        -0.4570457994644658 * x * (5 * zz - 1),
        1.445305721320277 * z * (xx - yy),
        -0.5900435899266435 * x * (xx - 3 * yy),
    )


@triton.jit
def _slopes_x(x, y, z):
    """The derivatives of the 15 functions in x."""
    return (
        x * 0,
        x * 0,
        x * 0 - 0.4886025119029199,
        1.0925484305920792 * y,
        x * 0,
        x * 0,
        -1.0925484305920792 * z,
        1.0925484305920792 * x,
        -3.540261539559861 * x * y,
        2.890611442640554 * y * z,
        x * 0,
        x * 0,
        -0.4570457994644658 * (5 * z * z - 1),
        2.890611442640554 * x * z,
        -1.7701307697799304 * (x * x - y * y),
    )


@triton.jit
def _slopes_y(x, y, z):
    """Those in y."""
    return (
        x * 0 - 0.4886025119029199,
        x * 0,
        x * 0,
        1.0925484305920792 * x,
        -1.0925484305920792 * z,
        x * 0,
        x * 0,
        -1.0925484305920792 * y,
        -1.7701307697799304 * (x * x - y * y),
        2.890611442640554 * x * z,
        -0.4570457994644658 * (5 * z * z - 1),
        x * 0,
        x * 0,
        -2.890611442640554 * y * z,
        3.540261539559861 * x * y,
    )


@triton.jit
def _slopes_z(x, y, z):
    """Those in z."""
    return (
        x * 0,
        x * 0 + 0.4886025119029199,
        x * 0,
        x * 0,
        -1.0925484305920792 * y,
        1.8923493915151202 * z,
        -1.0925484305920792 * x,
        x * 0,
        x * 0,
        2.890611442640554 * x * y,
        -4.5704579946446575 * y * z,
        0.3731763325901154 * (15 * z * z - 3),
        -4.5704579946446575 * x * z,
        1.445305721320277 * (x * x - y * y),
        x * 0,
    )


@triton.jit
def _column(column, t0, t1, t2):
    return tl.load(column) * t0 + tl.load(column + 4) * t1 + tl.load(column + 8) * t2


@triton.jit
def _direction(means, viewmat, n, inside):
    """The unit vector from the camera to each Gaussian, and one over its length before."""
    t0, t1, t2 = tl.load(viewmat + 3), tl.load(viewmat + 7), tl.load(viewmat + 11)
    # the camera stands at -R^T t
    x = tl.load(means + 3 * n, inside, other=0.0) + _column(viewmat, t0, t1, t2)
    y = tl.load(means + 3 * n + 1, inside, other=0.0) + _column(viewmat + 1, t0, t1, t2)
    z = tl.load(means + 3 * n + 2, inside, other=0.0) + _column(viewmat + 2, t0, t1, t2)
    shortening = 1 / tl.sqrt(tl.maximum(x * x + y * y + z * z, 1e-24))
    return x * shortening, y * shortening, z * shortening, shortening


@triton.jit
def _is_visible(radii, n, inside):
    across, down = tl.load(radii + 2 * n, inside, other=0), tl.load(radii + 2 * n + 1, inside, other=0)
    return inside & (across > 0) & (down > 0)


@triton.jit(do_not_specialize=["num"])
def _forward(
    means, sh0, shN, viewmat, radii, colors, num, NUM_HIGHER: tl.constexpr, DEGREE: tl.constexpr, BLOCK: tl.constexpr
):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = n < num
    seen = _is_visible(radii, n, inside)
    x, y, z, _ = _direction(means, viewmat, n, seen)
    basis = _basis(x, y, z)
    for c in tl.static_range(3):
        color = 0.5 + tl.load(sh0 + 3 * n + c, seen, other=0.0) * SH_C0
        for k in tl.static_range((DEGREE + 1) * (DEGREE + 1) - 1):
            color += basis[k] * tl.load(shN + 3 * (NUM_HIGHER * n + k) + c, seen, other=0.0)
        tl.store(colors + 3 * n + c, tl.maximum(color, 0.0), inside)


@triton.jit(do_not_specialize=["num"])
def _backward(
    means,
    shN,
    viewmat,
    radii,
    colors,
    v_colors,
    v_means,
    v_sh0,
    num,
    NUM_HIGHER: tl.constexpr,
    DEGREE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = n < num
    seen = _is_visible(radii, n, inside)
    x, y, z, shortening = _direction(means, viewmat, n, seen)
    in_x, in_y, in_z = _slopes_x(x, y, z), _slopes_y(x, y, z), _slopes_z(x, y, z)
    v_x, v_y, v_z = x * 0, x * 0, x * 0
    for c in tl.static_range(3):
        shown = seen & (tl.load(colors + 3 * n + c, seen, other=0.0) > 0)
        v_color = tl.load(v_colors + 3 * n + c, shown, other=0.0)
        tl.store(v_sh0 + 3 * n + c, v_color * SH_C0, inside)
        for k in tl.static_range((DEGREE + 1) * (DEGREE + 1) - 1):
            share = v_color * tl.load(shN + 3 * (NUM_HIGHER * n + k) + c, shown, other=0.0)
            v_x += in_x[k] * share
            v_y += in_y[k] * share
            v_z += in_z[k] * share
    along = v_x * x + v_y * y + v_z * z  # the length does not matter, so nothing pulls along the direction itself
    tl.store(v_means + 3 * n, (v_x - along * x) * shortening, inside)
    tl.store(v_means + 3 * n + 1, (v_y - along * y) * shortening, inside)
    tl.store(v_means + 3 * n + 2, (v_z - along * z) * shortening, inside)


@triton.jit(do_not_specialize=["num"])
def _spread(means, viewmat, v_sh0, v_shN, num, NUM_HIGHER: tl.constexpr, DEGREE: tl.constexpr, BLOCK: tl.constexpr):
    """One coefficient per thread: neighbours write side by side, which a Gaussian per thread would not."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < num * NUM_HIGHER
    n, own = place // NUM_HIGHER, place % NUM_HIGHER
    x, y, z, _ = _direction(means, viewmat, n, inside)
    basis = _basis(x, y, z)
    factor = x * 0
    for k in tl.static_range((DEGREE + 1) * (DEGREE + 1) - 1):
        factor = tl.where(own == k, basis[k], factor)
    for c in tl.static_range(3):
        v_color = tl.load(v_sh0 + 3 * n + c, inside, other=0.0) / SH_C0
        tl.store(v_shN + 3 * place + c, factor * v_color, inside)
