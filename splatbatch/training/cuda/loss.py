"""The loss of 3DGS, (1 - lambda) L1 + lambda (1 - SSIM), in one CUDA kernel, and its derivative in another.

Same formulas as `training.loss`. With mu, s and c the mean, variance and covariance under the window w: A = 2
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
from splatbatch.training.photos.posed_image import num_coefficients

Comparison, Evening = struct("Comparison"), struct("Evening")
STRIP_THREADS, STRIP_ROWS, SLOPE_ROWS, WARP = map(constant, ("STRIP_THREADS", "STRIP_ROWS", "SLOPE_ROWS", "WARP"))


def photometric_loss(
    render: Tensor,
    photo: Tensor,
    ssim_lambda: float,
    kernels: Kernels,
    as_taken: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the loss (1 - lambda) L1 + lambda (1 - SSIM), [], of a rendering; does not wait for the GPU.

    Args:
        render: rendering, [H, W, 3] float32; the loss is differentiable in the rendering alone.
        photo: target, [H, W, 3], uint8 or float32 in [0, 1].
        ssim_lambda: lambda.
        kernels: kernels to launch.
        as_taken: bytes [H, W, 3] of a photograph whose colour correction is divided out in `photo`; where these are
            clipped and the rendering is brighter, the gradient is smaller. None: there is no correction.
        mask: [H, W] bool, true where a pixel counts; None: everywhere. Ignored pixels count as equal.
    """
    taken, mask = (None if one is None else one.contiguous() for one in (as_taken, mask))
    loss: Tensor = _Photometric.apply(render.contiguous(), photo.contiguous(), taken, mask, ssim_lambda, kernels)
    return loss


def ssim(render: Tensor, photo: Tensor, kernels: Kernels) -> Tensor:
    """Return the mean SSIM (equal: 1), [], of a rendering and a photograph [H, W, 3], in one kernel.

    Without gradients, and in less memory than `training.loss.ssim`. The rendering is float32, the photograph uint8 or
    float32 in [0, 1].
    """
    return _compared(render.contiguous(), photo.contiguous(), (0.0, 1.0), kernels)[1]


def normalise(colors: Tensor, pixels: Tensor, tone: Tensor, K: Tensor, kernels: Kernels) -> Tensor:
    """Return the target of the loss, [H, W, 3] float32: a photograph with its colour correction divided out.

    Where the photograph is clipped and the rendering brighter, the target is closer to the rendering. Equals the target
    of `posed_image.to_compare`, in a single pass over the image.

    Args:
        colors: rendering, [H, W, 3].
        pixels: photograph, [H, W, 3] uint8.
        tone: colour correction as a tensor, from `posed_image.tone_of`.
        K: intrinsics of the camera, [3, 3], px.
        kernels: kernels to launch.
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
        render, photo, taken, mask, ssim_lambda, kernels = inputs
        ctx.shares, ctx.kernels = (1 - ssim_lambda, -ssim_lambda), kernels
        slopes, loss = _compared(render, photo, ctx.shares, kernels, mask)
        ctx.save_for_backward(render, photo, taken, mask, slopes)
        value: Tensor = loss + ssim_lambda
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        render, photo, taken, mask, slopes = ctx.saved_tensors
        v_render, upstream = torch.empty_like(render), gradients[0].contiguous()
        comparison = _comparison(
            render, photo, slopes, ctx.shares, upstream=upstream, v_render=v_render, taken=taken, mask=mask
        )
        _launch("compare_backward", comparison, photo, SLOPE_ROWS, ctx.kernels)
        return v_render, None, None, None, None, None


def _compared(
    render: Tensor, photo: Tensor, shares: tuple[float, float], kernels: Kernels, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return SSIM's derivatives in its three blurs of the rendering [3, H, W, 3], and the weighted L1 plus SSIM."""
    num_warps = _num_blocks(render, STRIP_ROWS) * STRIP_THREADS // WARP
    slopes, sums = render.new_empty(3, *render.shape), render.new_empty(num_warps)
    _launch("compare", _comparison(render, photo, slopes, shares, sums=sums, mask=mask), photo, STRIP_ROWS, kernels)
    return slopes, sums.sum()


def _num_blocks(render: Tensor, rows: int) -> int:
    height, width, channels = render.shape
    return -(-height // rows) * -(-width * channels // STRIP_THREADS)


def _launch(name: str, comparison: Structure, photo: Tensor, rows: int, kernels: Kernels) -> None:
    kind = "floats" if photo.is_floating_point() else "bytes"
    kernels.launch(f"{name}_{kind}", _num_blocks(photo, rows) * STRIP_THREADS, comparison)


@cache
def _weights() -> tuple[float, ...]:
    return tuple(window(torch.float64, torch.device("cpu")).tolist())


def _comparison(
    render: Tensor, photo: Tensor, slopes: Tensor, shares: tuple[float, float], **others: Tensor | None
) -> Structure:
    height, width, channels = render.shape
    tensors = {"render": render, "photo": photo, "slopes": slopes, **others}
    return Comparison(
        **{name: address(value) for name, value in tensors.items()},
        weights=(ctypes.c_float * WINDOW_PX)(*_weights()),
        C1=C1,
        C2=C2,
        l1_share=shares[0] / render.numel(),
        ssim_share=shares[1] / render.numel(),
        clipped=CLIPPED,
        clipped_counts=CLIPPED_COUNTS,
        width=width * channels,
        height=height,
    )
