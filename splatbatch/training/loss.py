"""Loss of 3DGS between a rendering and its photograph, and PSNR and SSIM for reports.

The loss, `psnr` and `ssim` are tensors of one number on the device of the images, and do not wait for the GPU.
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from splatbatch.output.records.metrics import MOST_PSNR_DB

# Wang 2004, for images in [0, 1], as 3DGS (Kerbl 2023) uses it: an 11 x 11 Gaussian window, zeros beyond the border.
WINDOW_PX = 11
SIGMA_PX = 1.5
C1, C2 = 0.01**2, 0.03**2

CLIPPED = 250
"""Least value, 0 to 255, of a pixel's channel that counts as clipped: the scene may have been brighter."""
CLIPPED_COUNTS = 0.1
"""Weight of clipped pixels in the loss where the rendering is brighter than the photograph.

Not 0, else a sky that is white in every photograph would be unconstrained. Where the rendering is darker, clipped
pixels have full weight, since the scene is at least as bright.

Measured on the quarry, brightened until 6 % of its bytes are clipped, 300 steps, mean of two seeds. Held-out pixels of
0.9 to 1 came out too dark: by 0.021 if clipped bytes have full weight, by 0.016 with a tenth on both sides, by 0.015
with this rule. With the weights 0 and 0.3 instead of 0.1 they came out too dark by 0.014 and 0.015.
"""


def photometric_loss(render: Tensor, photo: Tensor, ssim_lambda: float = 0.2) -> Tensor:
    """Return the loss (1 - lambda) L1 + lambda (1 - SSIM), [] (3DGS eq. 7), differentiable in `render`.

    `render` is `[H, W, 3]` in [0, 1], not clamped; `photo` likewise, or uint8, which is scaled. `ssim_lambda` is
    lambda.
    """
    image, target = render.movedim(-1, 0), _channels(photo, render.dtype)
    l1 = (image - target).abs().mean()
    return (1 - ssim_lambda) * l1 + ssim_lambda * (1 - _ssim(image, target))


def ssim(render: Tensor, photo: Tensor) -> Tensor:
    """Return the mean structural similarity (equal: 1), [], of two images `[H, W, 3]` in [0, 1]; uint8 is scaled."""
    dtype = render.dtype if render.is_floating_point() else torch.float32
    return _ssim(_unit_range(render, dtype).movedim(-1, 0), _channels(photo, dtype))


def psnr(render: Tensor, photo: Tensor) -> Tensor:
    """Return the peak signal-to-noise ratio in dB, [], of two images `[H, W, 3]` in [0, 1]; uint8 is scaled.

    Values are not clamped; equal images give infinity.
    """
    dtype = render.dtype if render.is_floating_point() else torch.float32
    return -10 * (_unit_range(render, dtype) - _unit_range(photo, dtype)).square().mean().log10()


def _unit_range(image: Tensor, dtype: torch.dtype) -> Tensor:
    return image.to(dtype) if image.is_floating_point() else image.to(dtype) / 255


def _channels(image: Tensor, dtype: torch.dtype) -> Tensor:
    """Return an image `[H, W, 3]` as `[3, H, W]`, 0 to 1."""
    return _unit_range(image, dtype).movedim(-1, 0).contiguous()


def _ssim(image: Tensor, target: Tensor) -> Tensor:
    target_mean, target_square = _blur(torch.cat((target, target * target))).chunk(2)
    mean, square, product = _blur(torch.cat((image, image * image, image * target))).chunk(3)
    variance, target_variance = square - mean * mean, target_square - target_mean * target_mean
    covariance = product - mean * target_mean
    luminance = (2 * mean * target_mean + C1) / (mean * mean + target_mean * target_mean + C1)
    structure = (2 * covariance + C2) / (variance + target_variance + C2)
    return (luminance * structure).mean()


def _blur(maps: Tensor) -> Tensor:
    """Return maps `[M, H, W]` blurred with the window of SSIM along both axes, zeros beyond the border."""
    blurred: Tensor = _Blur.apply(maps)  # type: ignore[no-untyped-call]
    return blurred


class _Blur(torch.autograd.Function):
    """Blur with the window of SSIM; as the window is symmetric, the backward pass is the same blur."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        return _along(_along(inputs[0], -1), -2)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Tensor:
        return _along(_along(gradients[0], -1), -2)


def _along(maps: Tensor, axis: int) -> Tensor:
    """Return maps blurred with the window along one axis, as a weighted sum of shifted copies.

    On the CPU a fifth of the time that a depthwise convolution takes: 9 maps of 995x748 in 0.04 s, which took 0.21.
    """
    half, size = WINDOW_PX // 2, maps.shape[axis]
    taps = window(torch.float64, torch.device("cpu")).tolist()
    padded = pad(maps, (half, half) if axis == -1 else (0, 0, half, half))
    total: Tensor = padded.narrow(axis, half, size) * taps[half]
    for place in range(half):
        for start in (place, WINDOW_PX - 1 - place):
            total.add_(padded.narrow(axis, start, size), alpha=taps[place])
    return total


@cache
@torch.inference_mode(False)  # cached: training could not use a tensor that an evaluation made in inference mode
def window(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the weights of SSIM's Gaussian window along one axis, `[11]`, which sum to 1; a cached tensor."""
    places = torch.arange(WINDOW_PX, dtype=torch.float64) - WINDOW_PX // 2
    weights = torch.exp(-places.square() / (2 * SIGMA_PX**2))
    return (weights / weights.sum()).to(device, dtype)


def masked(render: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return a rendering and its photograph [H, W, 3], in which ignored pixels are equal and have no gradient.

    Equal pixels have L1 0 and SSIM 1, and SSIM windows across the edge of a mask see differences only of valid pixels.
    If both images were black there instead, the rendering would seem to reproduce the edge of the mask.

    Args:
        render: rendering, floating point.
        target: photograph, uint8 or floating point in [0, 1]; with a mask, the result is floating point.
        mask: [H, W], true where a pixel counts; None: everywhere, and both images are returned unchanged.
    """
    if mask is None:
        return render, target
    counts = mask[..., None]
    photo = target if target.is_floating_point() else target.to(render.dtype) / 255
    seen = render.detach()
    return torch.where(counts, render, seen), torch.where(counts, photo, seen)


def of_what_counts(figures: Mapping[str, float], mask: Tensor | None) -> dict[str, float]:
    """Convert PSNR (dB) and SSIM of the two images that `masked` returns to the figures of the valid pixels alone.

    Ignored pixels have no error. So the mean squared error, and 1 - SSIM, are divided by the share of valid pixels.
    Figures stay unchanged if `mask` is None, or has no or only valid pixels; further figures always do.

    Args:
        figures: with "psnr" and "ssim".
        mask: [H, W], true where a pixel counts.
    """
    share = 1.0 if mask is None else float(mask.float().mean())
    if share in (0.0, 1.0):
        return dict(figures)
    corrected = {"psnr": figures["psnr"] + 10 * math.log10(share), "ssim": 1 - (1 - figures["ssim"]) / share}
    return {**figures, **corrected}


def psnr_where(render: Tensor, photo: Tensor, mask: Tensor | None) -> float:
    """Return the PSNR in dB of two images [H, W, 3] on the valid pixels alone, at most `MOST_PSNR_DB` (100 dB).

    `mask` [H, W] is true for valid pixels; None: all are valid. `MOST_PSNR_DB` without a valid pixel, NaN where a
    valid pixel is NaN. Waits for the GPU.
    """
    found = {"psnr": float(psnr(*masked(render, photo, mask))), "ssim": 1.0}
    return min(of_what_counts(found, mask)["psnr"], MOST_PSNR_DB)
