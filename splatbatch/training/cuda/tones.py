"""What a loss compares where a photograph has a tone, in one kernel, and in one more for its derivative.

The same numbers as `training.photos.tones.to_compare`, which would take a dozen passes over the image. The loss itself
is the same for all photographs.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from splatbatch.training.cuda.photometric import _grid, _places
from splatbatch.training.photos.tones import CLIPPED, CLIPPED_COUNTS, num_coefficients

BLOCK = (4, 256)


def to_compare(colors: Tensor, pixels: Tensor, tone: Tensor, K: Tensor) -> tuple[Tensor, Tensor]:
    """Return a rendering and the evened photograph, [H, W, 3], for the loss, where what is clipped may count less."""
    seen, target = colors.detach().contiguous(), torch.empty_like(colors, memory_format=torch.contiguous_format)
    shape = (colors.shape[0], colors.shape[1] * 3)
    arguments = (seen, pixels.contiguous(), tone, K.contiguous(), target)
    _even[_grid(shape, BLOCK)](*arguments, *shape, CLIPPED, CLIPPED_COUNTS, num_coefficients(tone), *BLOCK)
    weighed: Tensor = _Weighed.apply(colors, target, pixels)
    return weighed, target


class _Weighed(torch.autograd.Function):
    """A rendering as it is, whose gradient is smaller where it is brighter than a clipped photograph can show."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        colors, target, pixels = inputs
        ctx.save_for_backward(colors.contiguous(), target, pixels.contiguous())
        seen: Tensor = colors.view_as(colors)
        return seen

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        colors, target, pixels = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        weighed, shape = torch.empty_like(gradient), (gradient.shape[0], gradient.shape[1] * 3)
        arguments = (gradient, colors, target, pixels, weighed)
        _weigh[_grid(shape, BLOCK)](*arguments, *shape, CLIPPED, CLIPPED_COUNTS, *BLOCK)
        return weighed, None, None


@triton.jit
def _even(
    render,
    photo,
    tone,
    K,
    target,
    height,
    width,
    clipped: tl.constexpr,
    counts: tl.constexpr,
    NUM: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Divide bytes by gain, vignetting and tilt; draw what is clipped towards the rendering. `width` counts values."""
    row, column, inside = _places(height, width, ROWS, COLUMNS)
    place = row * width + column
    byte = tl.load(photo + place, inside, other=0).to(tl.float32)
    x = (column // 3).to(tl.float32) + 0.5 - tl.load(K + 2)
    y = row.to(tl.float32) + 0.5 - tl.load(K + 5)
    square = (x * x + y * y) * tl.load(tone + 3)
    logarithm = tl.zeros((ROWS, COLUMNS), tl.float32)
    if NUM > 0:
        logarithm = (tl.load(tone + 4) + tl.load(tone + 5) * square) * square
    if NUM > 2:
        logarithm += (tl.load(tone + 6) * x + tl.load(tone + 7) * y) * tl.sqrt(tl.load(tone + 3))
    even = byte / (255.0 * tl.load(tone + column % 3) * tl.exp(logarithm))
    seen = tl.load(render + place, inside, other=0.0)
    is_brighter = (byte >= clipped) & (seen > even)
    tl.store(target + place, tl.where(is_brighter, seen + counts * (even - seen), even), inside)


@triton.jit
def _weigh(
    gradient,
    render,
    target,
    photo,
    weighed,
    height,
    width,
    clipped: tl.constexpr,
    counts: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row, column, inside = _places(height, width, ROWS, COLUMNS)
    place = row * width + column
    byte = tl.load(photo + place, inside, other=0).to(tl.float32)
    slope = tl.load(gradient + place, inside, other=0.0)
    seen, even = tl.load(render + place, inside, other=0.0), tl.load(target + place, inside, other=0.0)
    is_brighter = (byte >= clipped) & (seen > even)  # drawn towards the rendering, a target stays below it
    tl.store(weighed + place, tl.where(is_brighter, counts * slope, slope), inside)
