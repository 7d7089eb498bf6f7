"""The loss of 3DGS in CUDA C++: the numbers of `photometric.py`, in two kernels instead of four."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

from splatbatch.training.cuda.native.library import Comparison, Library, address, stream_of
from splatbatch.training.loss import C1, C2, CLIPPED, CLIPPED_COUNTS, WINDOW_PX, window

STRIP_THREADS, STRIP_ROWS, WARP = 128, 23, 32
"""As in loss.cuh."""


def photometric_loss(
    render: Tensor, photos: tuple[Tensor, Tensor | None], ssim_lambda: float, library: Library
) -> Tensor:
    """The loss of a rendering `[H, W, 3]` against a photo `[H, W, 3]`, and the bytes it was evened from, if it was."""
    photo, as_taken = photos
    taken = None if as_taken is None else as_taken.contiguous()
    loss: Tensor = _Photometric.apply(render.contiguous(), photo.contiguous(), taken, ssim_lambda, library)
    return loss


class _Photometric(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        render, photo, taken, ssim_lambda, library = inputs
        height, width, channels = render.shape
        num_warps = -(-height // STRIP_ROWS) * -(-width * channels // STRIP_THREADS) * (STRIP_THREADS // WARP)
        slopes, sums = render.new_empty(3, *render.shape), render.new_empty(2, num_warps)
        comparison = _comparison(render, photo, slopes, sums=sums)
        library.call("loss_forward", stream_of(render), comparison)
        ctx.save_for_backward(render, photo, taken, slopes)
        ctx.ssim_lambda, ctx.library = ssim_lambda, library
        l1, similarity = sums.sum(1) / render.numel()
        loss: Tensor = (1 - ssim_lambda) * l1 + ssim_lambda * (1 - similarity)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        render, photo, taken, slopes = ctx.saved_tensors
        v_render, upstream = torch.empty_like(render), gradients[0].contiguous()
        comparison = _comparison(render, photo, slopes, upstream=upstream, v_render=v_render, taken=taken)
        comparison.l1_share = (1 - ctx.ssim_lambda) / render.numel()
        comparison.ssim_share = -ctx.ssim_lambda / render.numel()
        ctx.library.call("loss_backward", stream_of(render), comparison)
        return v_render, None, None, None, None


@cache
def _weights() -> tuple[float, ...]:
    return tuple(window(torch.float64, torch.device("cpu")).tolist())


def _comparison(render: Tensor, photo: Tensor, slopes: Tensor, **others: Tensor | None) -> Comparison:
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
        photo_is_bytes=int(not photo.is_floating_point()),
    )
