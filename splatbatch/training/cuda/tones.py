"""The evened photograph that a loss compares a rendering with, in one kernel.

The same numbers as `training.photos.tones.to_compare`, which would take a dozen passes over the image; that clipped
bytes count less in the derivative too is `photometric_loss`'s part.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from splatbatch.training.cuda.photometric import _grid, _places
from splatbatch.training.photos.tones import CLIPPED, CLIPPED_COUNTS, num_coefficients

BLOCK = (4, 256)


def even(colors: Tensor, pixels: Tensor, tone: Tensor, K: Tensor) -> Tensor:
    """Return the evened photograph [H, W, 3] for a rendering: what is clipped may be drawn towards it."""
    seen, target = colors.detach().contiguous(), torch.empty_like(colors, memory_format=torch.contiguous_format)
    shape = (colors.shape[0], colors.shape[1] * 3)
    arguments = (seen, pixels.contiguous(), tone, K.contiguous(), target)
    _even[_grid(shape, BLOCK)](*arguments, *shape, CLIPPED, CLIPPED_COUNTS, num_coefficients(tone), *BLOCK)
    return target


@triton.jit(do_not_specialize=["height"])
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
