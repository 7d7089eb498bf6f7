"""The loss of 3DGS, (1 - lambda) L1 + lambda (1 - SSIM), in a kernel, and its derivative, written by hand, in another.

The same numbers as `training.loss`. With mu, s and c the mean, variance and covariance under the window w: A = 2
mu_x mu_y + C1, B = 2 c + C2, C = mu_x^2 + mu_y^2 + C1, D = s_x + s_y + C2, SSIM = A B / (C D) (Wang 2004). Every
mean is a blur of the image, the window is symmetric and zero lies beyond the border. So the derivative in a pixel x is
a blur again: blur(d/d mu_x) + 2 x blur(d/d E[x^2]) + y blur(d/d E[x y]).
"""

from __future__ import annotations

import ctypes
from ctypes import Structure
from functools import cache
from typing import Any

import torch
from torch import Tensor

from splatbatch.training.cuda.driver import Kernels, address
from splatbatch.training.cuda.sources import constant, struct
from splatbatch.training.loss import C1, C2, CLIPPED, CLIPPED_COUNTS, WINDOW_PX, window
from splatbatch.training.photos.tones import num_coefficients

Comparison, Evening = struct("Comparison"), struct("Evening")
STRIP_THREADS, STRIP_ROWS, WARP = constant("STRIP_THREADS"), constant("STRIP_ROWS"), constant("WARP")


def photometric_loss(
    render: Tensor, photo: Tensor, ssim_lambda: float, kernels: Kernels, as_taken: Tensor | None = None
) -> Tensor:
    """The loss of a rendering `[H, W, 3]` against a photo `[H, W, 3]`, uint8 or float32 in [0, 1].

    `as_taken`: the bytes [H, W, 3] of a photograph that was evened; where they are clipped and the rendering is
    brighter, it learns less: see `training.photos.tones`.
    """
    taken = None if as_taken is None else as_taken.contiguous()
    loss: Tensor = _Photometric.apply(render.contiguous(), photo.contiguous(), taken, ssim_lambda, kernels)
    return loss


def ssim(render: Tensor, photo: Tensor, kernels: Kernels) -> Tensor:
    """Mean SSIM, [], of the same images; in less memory than `training.loss.ssim` takes."""
    _, (_, similarity) = _compared(render.contiguous(), photo.contiguous(), kernels)
    mean: Tensor = similarity / render.numel()
    return mean


def even(colors: Tensor, pixels: Tensor, tone: Tensor, K: Tensor, kernels: Kernels) -> Tensor:
    """Return the evened photograph [H, W, 3] that a loss compares a rendering with: what is clipped is drawn to it.

    The same numbers as `training.photos.tones.to_compare`, which would take a dozen passes over the image; that clipped
    bytes count less in the derivative too is the part of `photometric_loss`.
    """
    seen, target = colors.detach().contiguous(), torch.empty_like(colors, memory_format=torch.contiguous_format)
    tensors = (seen, pixels.contiguous(), tone, K.contiguous(), target)
    size = colors.shape[1] * 3, colors.shape[0]
    evening = Evening(*map(address, tensors), CLIPPED, CLIPPED_COUNTS, *size, num_coefficients(tone))
    kernels.launch("even", target.numel(), evening)
    return target


class _Photometric(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        render, photo, taken, ssim_lambda, kernels = inputs
        slopes, sums = _compared(render, photo, kernels)
        ctx.save_for_backward(render, photo, taken, slopes)
        ctx.ssim_lambda, ctx.kernels = ssim_lambda, kernels
        l1, similarity = sums / render.numel()
        loss: Tensor = (1 - ssim_lambda) * l1 + ssim_lambda * (1 - similarity)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        render, photo, taken, slopes = ctx.saved_tensors
        v_render, upstream = torch.empty_like(render), gradients[0].contiguous()
        comparison = _comparison(render, photo, slopes, upstream=upstream, v_render=v_render, taken=taken)
        comparison.l1_share = (1 - ctx.ssim_lambda) / render.numel()
        comparison.ssim_share = -ctx.ssim_lambda / render.numel()
        _launch("compare_backward", comparison, photo, ctx.kernels)
        return v_render, None, None, None, None


def _compared(render: Tensor, photo: Tensor, kernels: Kernels) -> tuple[Tensor, Tensor]:
    """Return SSIM's slopes in its three blurs of the rendering [3, H, W, 3], and the sums of |x - y| and SSIM [2]."""
    num_warps = _num_blocks(render) * STRIP_THREADS // WARP
    slopes, sums = render.new_empty(3, *render.shape), render.new_empty(2, num_warps)
    _launch("compare", _comparison(render, photo, slopes, sums=sums), photo, kernels)
    return slopes, sums.sum(1)


def _num_blocks(render: Tensor) -> int:
    height, width, channels = render.shape
    return -(-height // STRIP_ROWS) * -(-width * channels // STRIP_THREADS)


def _launch(name: str, comparison: Structure, photo: Tensor, kernels: Kernels) -> None:
    kind = "floats" if photo.is_floating_point() else "bytes"
    kernels.launch(f"{name}_{kind}", _num_blocks(photo) * STRIP_THREADS, comparison)


@cache
def _weights() -> tuple[float, ...]:
    return tuple(window(torch.float64, torch.device("cpu")).tolist())


def _comparison(render: Tensor, photo: Tensor, slopes: Tensor, **others: Tensor | None) -> Structure:
    height, width, channels = render.shape
    tensors = {"render": render, "photo": photo, "slopes": slopes, **others}
    return Comparison(
        **{name: address(value) for name, value in tensors.items()},
        weights=(ctypes.c_float * WINDOW_PX)(*_weights()),
        C1=C1,
        C2=C2,
        clipped=CLIPPED,
        clipped_counts=CLIPPED_COUNTS,
        width=width * channels,
        height=height,
    )
