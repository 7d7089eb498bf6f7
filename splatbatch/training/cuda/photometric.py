"""The loss of 3DGS, (1 - lambda) L1 + lambda (1 - SSIM), in four kernels, with its derivative written by hand.

The same numbers as `training.loss`. Images stay as they are, [H, W, 3] and uint8: a row of W pixels is a row of 3 W
values, in which the neighbour of a value is three values away.

With mu, s and c the mean, variance and covariance under the window w, A = 2 mu_x mu_y + C1, B = 2 c + C2,
C = mu_x^2 + mu_y^2 + C1, D = s_x + s_y + C2, SSIM = A B / (C D) (Wang 2004). Every mean is a blur of the image, the
window is symmetric and zero lies beyond the border, so the derivative in a pixel x is a blur again:
blur(d/d mu_x) + 2 x blur(d/d E[x^2]) + y blur(d/d E[x y]).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from splatbatch.training.loss import C1, C2, CLIPPED, CLIPPED_COUNTS, window
from splatbatch.training.photos.tones import num_coefficients

ACROSS, DOWN, DOWN_TO_DERIVE = (1, 256), (4, 128), (8, 64)
"""Rows and columns of values that one program blurs, along the rows and down the columns: the quickest of eight on one
H200; all four kernels together take 0.13 ms for 995 x 748 pixels, where 4 x 256 for all of them took 0.23 ms."""
WARPS_TO_DERIVE = 8
EVENED = (4, 256)


def photometric_loss(render: Tensor, photo: Tensor, ssim_lambda: float = 0.2, as_taken: Tensor | None = None) -> Tensor:
    """The loss of a rendering `[H, W, 3]` against a photo `[H, W, 3]`, uint8 or float32 in [0, 1].

    `as_taken`: the bytes [H, W, 3] of a photograph that was evened; where they are clipped and the rendering is
    brighter, it learns less: see `training.photos.tones`.
    """
    loss: Tensor = _Photometric.apply(render, photo, ssim_lambda, as_taken)
    return loss


def even(colors: Tensor, pixels: Tensor, tone: Tensor, K: Tensor) -> Tensor:
    """Return the evened photograph [H, W, 3] that a loss compares a rendering with: what is clipped is drawn to it.

    The same numbers as `training.photos.tones.to_compare`, which would take a dozen passes over the image; that clipped
    bytes count less in the derivative too is the part of `photometric_loss`.
    """
    seen, target = colors.detach().contiguous(), torch.empty_like(colors, memory_format=torch.contiguous_format)
    shape = (colors.shape[0], colors.shape[1] * 3)
    arguments = (seen, pixels.contiguous(), tone, K.contiguous(), target)
    _even[_grid(shape, EVENED)](*arguments, *shape, CLIPPED, CLIPPED_COUNTS, num_coefficients(tone), *EVENED)
    return target


def ssim(render: Tensor, photo: Tensor) -> Tensor:
    """Mean SSIM, [], of the same images; in less memory than `training.loss.ssim` takes."""
    return _compared(render, photo)[1][1] / render.numel()


class _Photometric(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        render, photo, ssim_lambda, as_taken = inputs
        slopes, sums = _compared(render, photo)
        seen, compared = render.contiguous(), photo.contiguous()
        ctx.is_evened = as_taken is not None
        taken = as_taken.contiguous() if ctx.is_evened else compared
        ctx.save_for_backward(seen, compared, window(torch.float32, render.device), slopes, taken)
        ctx.ssim_lambda = ssim_lambda
        l1, similarity = sums / render.numel()
        loss: Tensor = (1 - ssim_lambda) * l1 + ssim_lambda * (1 - similarity)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        render, photo, weights, slopes, taken = ctx.saved_tensors
        shape = (slopes.shape[1], slopes.shape[2])
        across = torch.empty_like(slopes)
        _blur_slopes_across[_grid(shape, ACROSS)](slopes, weights, across, *shape, *ACROSS)
        v_render = torch.empty_like(render)
        share = 1 / render.numel()
        _derive[_grid(shape, DOWN_TO_DERIVE)](
            *(render, photo, taken, weights, across, gradients[0], v_render, *shape, _gain(photo)),
            *((1 - ctx.ssim_lambda) * share, -ctx.ssim_lambda * share),
            *(CLIPPED, CLIPPED_COUNTS, ctx.is_evened, *DOWN_TO_DERIVE),
            num_warps=WARPS_TO_DERIVE,
        )
        return v_render, None, None, None


def _compared(render: Tensor, photo: Tensor) -> tuple[Tensor, Tensor]:
    """Return SSIM's slopes in its three blurs of the rendering [3, H, 3 W], and the sums of |x - y| and SSIM [2]."""
    render, photo = render.contiguous(), photo.contiguous()
    height, width, channels = render.shape
    shape = (height, width * channels)
    weights, gain = window(torch.float32, render.device), _gain(photo)
    across = render.new_empty(5, *shape)
    _blur_pair_across[_grid(shape, ACROSS)](render, photo, weights, across, *shape, gain, *ACROSS)
    grid = _grid(shape, DOWN)
    slopes, sums = render.new_empty(3, *shape), render.new_empty(2, grid[0] * grid[1])
    _compare[grid](render, photo, weights, across, slopes, sums, *shape, gain, C1, C2, *DOWN)
    return slopes, sums.sum(1)


def _gain(photo: Tensor) -> float:
    return 1.0 if photo.is_floating_point() else 1 / 255


def _grid(shape: tuple[int, int], block: tuple[int, int]) -> tuple[int, int]:
    return triton.cdiv(shape[0], block[0]), triton.cdiv(shape[1], block[1])


@triton.jit
def _places(height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return row, column, (row < height) & (column < width)


@triton.jit(do_not_specialize=["height"])
def _blur_pair_across(render, photo, weights, across, height, width, gain, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Blur x, y, x^2, y^2 and x y along the rows; `width` counts values."""
    row, column, inside = _places(height, width, ROWS, COLUMNS)
    zero = tl.zeros((ROWS, COLUMNS), tl.float32)
    mean, photo_mean, square, photo_square, product = zero, zero, zero, zero, zero
    for tap in tl.static_range(11):
        near = column + 3 * (tap - 5)
        there = inside & (near >= 0) & (near < width)
        x = tl.load(render + row * width + near, there, other=0.0)
        y = tl.load(photo + row * width + near, there, other=0).to(tl.float32) * gain
        weight = tl.load(weights + tap)
        mean += weight * x
        photo_mean += weight * y
        square += weight * x * x
        photo_square += weight * y * y
        product += weight * x * y
    plane, place = height * width, row * width + column
    tl.store(across + place, mean, inside)
    tl.store(across + plane + place, photo_mean, inside)
    tl.store(across + 2 * plane + place, square, inside)
    tl.store(across + 3 * plane + place, photo_square, inside)
    tl.store(across + 4 * plane + place, product, inside)


@triton.jit(do_not_specialize=["height"])
def _compare(
    render, photo, weights, across, slopes, sums, height, width, gain, C1, C2, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Blur down the columns; sum up |x - y| and SSIM; keep SSIM's derivatives in the three blurs that x is part of."""
    row, column, inside = _places(height, width, ROWS, COLUMNS)
    zero = tl.zeros((ROWS, COLUMNS), tl.float32)
    mean, photo_mean, square, photo_square, product = zero, zero, zero, zero, zero
    plane, place = height * width, row * width + column
    for tap in tl.static_range(11):
        near = row + (tap - 5)
        there = inside & (near >= 0) & (near < height)
        source, weight = across + near * width + column, tl.load(weights + tap)
        mean += weight * tl.load(source, there, other=0.0)
        photo_mean += weight * tl.load(source + plane, there, other=0.0)
        square += weight * tl.load(source + 2 * plane, there, other=0.0)
        photo_square += weight * tl.load(source + 3 * plane, there, other=0.0)
        product += weight * tl.load(source + 4 * plane, there, other=0.0)

    a, b = 2 * mean * photo_mean + C1, 2 * (product - mean * photo_mean) + C2
    c = mean * mean + photo_mean * photo_mean + C1
    d = square - mean * mean + photo_square - photo_mean * photo_mean + C2
    ssim = a * b / (c * d)
    of_product, of_square = 2 * a / (c * d), -ssim / d
    of_mean = 2 * photo_mean * b / (c * d) - 2 * mean * ssim / c - 2 * mean * of_square - photo_mean * of_product
    tl.store(slopes + place, of_mean, inside)
    tl.store(slopes + plane + place, of_square, inside)
    tl.store(slopes + 2 * plane + place, of_product, inside)

    x = tl.load(render + place, inside, other=0.0)
    y = tl.load(photo + place, inside, other=0).to(tl.float32) * gain
    program = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    programs = tl.num_programs(0) * tl.num_programs(1)
    tl.store(sums + program, tl.sum(tl.abs(x - y)))
    tl.store(sums + programs + program, tl.sum(tl.where(inside, ssim, 0.0)))


@triton.jit(do_not_specialize=["height"])
def _blur_slopes_across(slopes, weights, across, height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column, inside = _places(height, width, ROWS, COLUMNS)
    zero = tl.zeros((ROWS, COLUMNS), tl.float32)
    of_mean, of_square, of_product = zero, zero, zero
    plane, place = height * width, row * width + column
    for tap in tl.static_range(11):
        near = column + 3 * (tap - 5)
        there = inside & (near >= 0) & (near < width)
        source, weight = slopes + row * width + near, tl.load(weights + tap)
        of_mean += weight * tl.load(source, there, other=0.0)
        of_square += weight * tl.load(source + plane, there, other=0.0)
        of_product += weight * tl.load(source + 2 * plane, there, other=0.0)
    tl.store(across + place, of_mean, inside)
    tl.store(across + plane + place, of_square, inside)
    tl.store(across + 2 * plane + place, of_product, inside)


@triton.jit(do_not_specialize=["height"])
def _derive(
    render,
    photo,
    taken,
    weights,
    across,
    upstream,
    v_render,
    height,
    width,
    gain,
    l1_share,
    ssim_share,
    clipped: tl.constexpr,
    counts: tl.constexpr,
    IS_EVENED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Blur the slopes down the columns and put the derivative of the loss together."""
    row, column, inside = _places(height, width, ROWS, COLUMNS)
    zero = tl.zeros((ROWS, COLUMNS), tl.float32)
    of_mean, of_square, of_product = zero, zero, zero
    plane, place = height * width, row * width + column
    for tap in tl.static_range(11):
        near = row + (tap - 5)
        there = inside & (near >= 0) & (near < height)
        source, weight = across + near * width + column, tl.load(weights + tap)
        of_mean += weight * tl.load(source, there, other=0.0)
        of_square += weight * tl.load(source + plane, there, other=0.0)
        of_product += weight * tl.load(source + 2 * plane, there, other=0.0)
    x = tl.load(render + place, inside, other=0.0)
    y = tl.load(photo + place, inside, other=0).to(tl.float32) * gain
    sign = tl.where(x > y, 1.0, tl.where(x < y, -1.0, 0.0))
    slope = l1_share * sign + ssim_share * (of_mean + 2 * x * of_square + y * of_product)
    if IS_EVENED:
        byte = tl.load(taken + place, inside, other=0).to(tl.float32)
        slope = tl.where((byte >= clipped) & (x > y), counts * slope, slope)  # drawn towards x, y stays below it
    tl.store(v_render + place, tl.load(upstream) * slope, inside)


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
