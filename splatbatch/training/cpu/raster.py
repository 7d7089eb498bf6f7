"""Tile rasteriser for the CPU: projected Gaussians to images, with a backward pass written by hand.

Bit-identical from run to run and with any number of threads: nothing is summed in an order left to chance.

1. Tile lists: which Gaussians touch which tile, nearest first. A Gaussian that is left out would change no pixel.
2. Tiles with lists of similar length are padded to one length: a group is blended by a few large matrix products.
3. The logarithm of alpha over a tile is a quadratic in pixel coordinates: evaluating it is a matrix product. With p
   the pixel, m the mean and Q = [[a, b], [b, c]] the conic, alpha = opacity exp(-(p - m)^T Q (p - m) / 2). In
   coordinates (u, v) from the middle of the tile, ln(alpha) = q . (1, u, v, u^2, u v, v^2): six numbers per pair of a
   tile and a Gaussian, times a constant `[6, 64]` basis, and back through its transpose.
4. Blending front to back over the 64 pixels of tiles, and its derivative. A pixel's colour is sum_i w_i c_i with w_i =
   alpha_i T_i and T_i = prod_{j<i} (1 - alpha_j) (3DGS, Kerbl 2023, eq. 3). The thresholds are gsplat's
   (RasterizeToPixels3DGSFwd.cu): an alpha below 1/255 is skipped, none exceeds 0.999, and a pixel stops before the
   Gaussian that would bring its transmittance to 1e-4 or less. Alpha itself is one more colour channel, always 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from splatbatch.training.cpu.projection import ALPHA_MIN, ProjectedGaussians

# 8, not gsplat's 16: the cumulative products of a block of tiles then stay in the processor's first-level cache.
TILE_PX = 8
# Gaussians blended at a time: after each block a group whose pixels are all opaque is left.
BLOCK = 96
# Values in a working array of a block: 64k floats are 256 kB, which the second-level cache holds.
WORKING_SET = 1 << 16
ALPHA_MAX = 0.999
TRANSMITTANCE_MIN = 1e-4
# alpha / (1 - alpha) of a clamped alpha is 999; a little below, to be safe from rounding.
_CLAMPED_ODDS = 998.9


def raster(
    footprints: ProjectedGaussians, colors: Tensor, width: int, height: int, *, absgrad: bool = False
) -> tuple[Tensor, Tensor]:
    """Render N Gaussians for C cameras: images `[C, H, W, D]` over black, not clamped, and alphas `[C, H, W, 1]`.

    Differentiable in `colors` and the footprints' means2d, conics and opacities.

    Args:
        footprints: projected Gaussians.
        colors: values to blend, `[C, N, D]`.
        width: of the images, px.
        height: of the images, px.
        absgrad: whether the backward pass also sets `footprints.means2d.absgrad` `[C, N, 2]`, as gsplat does: the sum
            over pixels of the absolute gradient (AbsGS).
    """
    grid = TileGrid(len(colors), width, height)
    table = pair_table(*bin_gaussians(footprints, grid), num_gaussians=footprints.depths.numel())
    inputs = footprints.means2d, footprints.conics, footprints.opacities, colors
    images: Tensor = _Raster.apply(*inputs, grid, table, absgrad)  # type: ignore[no-untyped-call]
    images = images.movedim(1, -1)
    return images[..., :-1], images[..., -1:]


class _Raster(torch.autograd.Function):
    """Autograd function: means2d, conics, opacities, colours to images and alpha `[C, D + 1, H, W]`."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *tensors, grid, table, absgrad = inputs
        pairs, colors = _gather(tensors, table, grid)
        coefficients = quadratics(pairs)
        pixels = colors.new_zeros(grid.num_tiles, colors.shape[1], TILE_PX * TILE_PX)
        kept, num_blocks = [], []
        for group in table.groups:
            pixels[group.tiles], blocks = blend(group.of(coefficients), group.of(colors))
            if any(ctx.needs_input_grad):
                kept += [tensor for block in blocks for tensor in block]
                num_blocks.append(len(blocks))
        # Not as attributes of ctx: saved tensors are freed as soon as the backward pass is done.
        ctx.save_for_backward(tensors[0], pixels, pairs, colors, coefficients, *kept)
        ctx.grid, ctx.table, ctx.absgrad, ctx.num_blocks = grid, table, absgrad, num_blocks
        return _assemble(pixels, grid)

    @staticmethod
    def backward(ctx: Any, *v_outputs: Any) -> Any:
        means2d, pixels, pairs, colors, coefficients, *kept = ctx.saved_tensors
        kept_blocks = map(Blended, kept[::2], kept[1::2])
        v_pixels = _cut(v_outputs[0], ctx.grid)
        v_coefficients, v_colors = torch.zeros_like(coefficients), torch.zeros_like(colors)
        v_absolute = colors.new_zeros(len(colors), 2 if ctx.absgrad else 0)
        basis = pixel_basis(colors.dtype)
        for group, num_blocks in zip(ctx.table.groups, ctx.num_blocks, strict=True):
            blocks = list(islice(kept_blocks, num_blocks))
            v_tiles = v_pixels[group.tiles]
            v_log_alphas = unblend(pixels[group.tiles], v_tiles, group.of(colors), blocks)
            for first, block, v_log_alpha in zip(range(0, group.length, BLOCK), blocks, v_log_alphas, strict=False):
                rows = slice(first, first + BLOCK)
                group.of(v_coefficients)[:, rows] = torch.matmul(v_log_alpha, basis.t())
                group.of(v_colors)[:, rows] = torch.bmm(block.weights, v_tiles.transpose(1, 2))
                if ctx.absgrad:
                    group.of(v_absolute)[:, rows] = absolute_slopes(group.of(coefficients)[:, rows], v_log_alpha)

        def total(v_rows: Tensor) -> Tensor:
            """Return the sums of rows per Gaussian, `[C, N, D]`, added in their order, without those of the padding."""
            num_cameras, num_gaussians, _ = means2d.shape
            sums = v_rows.new_zeros(num_cameras * num_gaussians + 1, v_rows.shape[1])
            sums.index_add_(0, ctx.table.gaussians, v_rows)
            return sums[:-1].view(num_cameras, num_gaussians, v_rows.shape[1])

        v_pairs = total(quadratics_backward(pairs, v_coefficients))
        if ctx.absgrad:
            means2d.absgrad = total(v_absolute)
        return v_pairs[..., :2], v_pairs[..., 2:5], v_pairs[..., 5], total(v_colors)[..., :-1], None, None, None


def _gather(tensors: list[Tensor], table: PairTable, grid: TileGrid) -> tuple[Tensor, Tensor]:
    """Return geometry and colours of each pair: mean from the tile's middle, conic, opacity `[6, R]`; `[R, D + 1]`.

    The last channel of the colours is 1, for alpha.
    """
    means2d, conics, opacities, colors = (tensor.flatten(0, 1) for tensor in tensors)
    geometry = torch.cat((means2d, conics, opacities[:, None]), 1)
    padding = geometry.new_tensor([[0, 0, 0, 0, 0, 1e-9]])  # an opacity too faint to draw, but with a logarithm
    pairs = torch.cat((geometry, padding)).t().contiguous().index_select(1, table.gaussians)
    x, y = grid.centres(table.tiles)
    pairs[0] -= x
    pairs[1] -= y
    channels = torch.nn.functional.pad(colors, (0, 1, 0, 1), value=1.0)
    return pairs, channels.index_select(0, table.gaussians)


def _assemble(pixels: Tensor, grid: TileGrid) -> Tensor:
    """Convert tiles `[num_tiles, D, 64]` to images `[C, D, H, W]`."""
    tiles = pixels.view(grid.num_cameras, grid.rows, grid.columns, -1, TILE_PX, TILE_PX)
    images = tiles.permute(0, 3, 1, 4, 2, 5).reshape(grid.num_cameras, -1, grid.rows * TILE_PX, grid.columns * TILE_PX)
    return images[..., : grid.height, : grid.width].contiguous()


def _cut(images: Tensor, grid: TileGrid) -> Tensor:
    """Convert images `[C, D, H, W]` to tiles `[num_tiles, D, 64]`, zero where a tile sticks out of the image."""
    beyond = (0, grid.columns * TILE_PX - grid.width, 0, grid.rows * TILE_PX - grid.height)
    padded = torch.nn.functional.pad(images, beyond)
    tiles = padded.view(grid.num_cameras, -1, grid.rows, TILE_PX, grid.columns, TILE_PX).permute(0, 2, 4, 1, 3, 5)
    return tiles.reshape(grid.num_tiles, -1, TILE_PX * TILE_PX)


@dataclass(frozen=True)
class TileGrid:
    """The tiles of C images of one size, numbered by camera, row and column.

    Tiles at the right and bottom border may extend beyond the image. Width and height are in px.
    """

    num_cameras: int
    width: int
    height: int

    @property
    def columns(self) -> int:
        """Return the number of tiles per row."""
        return -(-self.width // TILE_PX)

    @property
    def rows(self) -> int:
        """Return the number of rows of tiles per image."""
        return -(-self.height // TILE_PX)

    @property
    def num_tiles(self) -> int:
        """Return the number of tiles of all cameras."""
        return self.num_cameras * self.rows * self.columns

    def centres(self, tiles: Tensor) -> tuple[Tensor, Tensor]:
        """Return x and y in px of the middles of `tiles`, numbers of tiles, in the shape of `tiles`."""
        row, column = tiles // self.columns % self.rows, tiles % self.columns
        return column * TILE_PX + TILE_PX / 2, row * TILE_PX + TILE_PX / 2


@torch.no_grad()
def bin_gaussians(footprints: ProjectedGaussians, grid: TileGrid) -> tuple[Tensor, Tensor]:
    """Return the tile lists: Gaussians of each tile, nearest first, concatenated `[M]`, and their counts `[num_tiles]`.

    Gaussians are named by their index among all C x N. Those of equal depth keep their order, as in gsplat's radix
    sort. A Gaussian changes no pixel of a tile in whose list it is missing.
    """
    visible = (footprints.radii > 0).all(-1).flatten().nonzero().squeeze(1)
    nearest_first = footprints.depths.flatten().index_select(0, visible).argsort(stable=True)
    visible = visible.index_select(0, nearest_first)  # [V]

    means2d = footprints.means2d.flatten(0, 1).index_select(0, visible)
    conics = footprints.conics.flatten(0, 1).index_select(0, visible)
    cutoffs = torch.log(footprints.opacities.flatten().index_select(0, visible) / ALPHA_MIN)
    radii = footprints.radii.flatten(0, 1).index_select(0, visible)

    owners, columns, rows = _candidates(means2d, radii, grid)  # [P] each
    ellipses = torch.cat((means2d, conics, cutoffs[:, None]), 1).t().contiguous()  # [6, V]
    touching = _touches(ellipses.index_select(1, owners), columns, rows).nonzero().squeeze(1)  # [M]

    gaussians = visible.index_select(0, owners.index_select(0, touching))
    tiles = (rows * grid.columns + columns).index_select(0, touching)
    tiles += gaussians // footprints.depths.shape[1] * (grid.rows * grid.columns)
    # A stable sort by tile leaves each tile's list in the order of depth.
    tiles, order = torch.sort(tiles.int(), stable=True)
    return gaussians.index_select(0, order), torch.bincount(tiles, minlength=grid.num_tiles)


def _candidates(means2d: Tensor, radii: Tensor, grid: TileGrid) -> tuple[Tensor, Tensor, Tensor]:
    """Return each pair of an ellipse and a tile in its bounding box: ellipse, tile column and row, int32 `[P]` each."""
    limits = torch.tensor((grid.columns, grid.rows))
    first = ((means2d - radii) / TILE_PX).floor().long().clamp_min(0).minimum(limits)  # [V, 2]
    last = ((means2d + radii) / TILE_PX).ceil().long().clamp_min(0).minimum(limits)
    sizes = last - first
    num_pairs = sizes.prod(1)
    owners = torch.repeat_interleave(num_pairs).int()
    # One gather of all four columns is cheaper than four.
    boxes = torch.stack((num_pairs.cumsum(0) - num_pairs, sizes[:, 0], first[:, 0], first[:, 1])).int()
    begins, widths, left, top = boxes.index_select(1, owners)
    ordinals = torch.arange(len(owners), dtype=torch.int32) - begins  # place inside the box, row by row
    down = torch.div(ordinals, widths, rounding_mode="floor")
    return owners, left + ordinals - down * widths, top + down


def _touches(ellipses: Tensor, columns: Tensor, rows: Tensor) -> Tensor:
    """Return whether `ellipses` `[6, P]` reach ALPHA_MIN on the rectangle that the pixel centres of their tile span.

    The largest alpha is where the quadratic form d^T Q d is smallest. With the mean outside, that is on one of the two
    sides that face it: along each, the parabola's vertex, clamped to the side. This drops about a quarter of the tiles
    in the bounding boxes, and changes no pixel.
    """
    mean_x, mean_y, a, b, c, cutoffs = ellipses.unbind(0)
    left, top = columns * TILE_PX + 0.5 - mean_x, rows * TILE_PX + 0.5 - mean_y
    right, bottom = left + (TILE_PX - 1), top + (TILE_PX - 1)
    facing_x = left.clamp_min(0) + right.clamp_max(0)  # 0 when the mean is between left and right
    facing_y = top.clamp_min(0) + bottom.clamp_max(0)
    y = torch.minimum(torch.maximum(-b * facing_x / c, top), bottom)  # on the vertical side
    x = torch.minimum(torch.maximum(-b * facing_y / a, left), right)  # on the horizontal side
    on_vertical = a * facing_x * facing_x + 2 * b * facing_x * y + c * y * y
    on_horizontal = a * x * x + 2 * b * x * facing_y + c * facing_y * facing_y
    is_inside = (facing_x == 0) & (facing_y == 0)
    rounding = 1e-3  # in ln(alpha): a superfluous pair is better than a missing one
    return is_inside | (0.5 * torch.minimum(on_vertical, on_horizontal) <= cutoffs + rounding)


@dataclass(frozen=True)
class TileGroup:
    """T tiles of K Gaussians each, in the rows `start : start + T K` of the table of pairs."""

    tiles: Tensor  # [T] int64
    length: int  # K
    start: int

    def of(self, table: Tensor) -> Tensor:
        """Return the group's part of a table `[R, D]`, as a view `[T, K, D]`."""
        num_rows = len(self.tiles) * self.length
        return table.narrow(0, self.start, num_rows).view(len(self.tiles), self.length, -1)


@dataclass(frozen=True)
class PairTable:
    """Table of all R pairs of a tile and a Gaussian, one row each, group after group, with padding rows."""

    groups: list[TileGroup]
    gaussians: Tensor  # [R] int64; padding points one past the last Gaussian
    tiles: Tensor  # [R] int64


def pair_table(gaussians: Tensor, counts: Tensor, num_gaussians: int) -> PairTable:
    """Return tile lists as a table of pairs, padded to one length per group; empty tiles have no row.

    Args:
        gaussians: Gaussians of all tiles, concatenated, `[M]`, from `bin_gaussians`.
        counts: number of Gaussians of each tile, `[num_tiles]`.
        num_gaussians: number of Gaussians of all cameras, which is the index that marks padding.
    """
    order = torch.argsort(counts, descending=True, stable=True)
    groups, start = [], 0
    for first, last, length in _similar(counts[order].tolist()):
        groups.append(TileGroup(order[first:last], length, start))
        start += (last - first) * length

    nothing = torch.zeros(0, dtype=torch.long)
    begins, num_pairs = counts.cumsum(0) - counts, len(gaussians)
    padded = torch.cat((gaussians, torch.tensor([num_gaussians])))
    places = [nothing]
    for group in groups:
        ordinals = torch.arange(group.length)
        is_real = ordinals < counts[group.tiles][:, None]  # [T, K]
        places.append(torch.where(is_real, begins[group.tiles][:, None] + ordinals, num_pairs).flatten())
    tiles = torch.cat([nothing, *(group.tiles.repeat_interleave(group.length) for group in groups)])
    return PairTable(groups, padded.index_select(0, torch.cat(places)), tiles)


def _similar(lengths: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Cut falling `lengths` into runs `first, last, longest` that fit the cache and waste little padding; no zeros."""
    first = 0
    while first < len(lengths) and lengths[first] > 0:
        longest = lengths[first]
        most = max(1, WORKING_SET // (min(longest, BLOCK) * TILE_PX * TILE_PX))
        shortest = max(0.75 * longest - 4, 0)
        last = first + 1
        while last < min(first + most, len(lengths)) and lengths[last] > shortest:
            last += 1
        yield first, last, longest
        first = last


@cache
@torch.inference_mode(False)  # cached: training could not use a tensor that an evaluation made in inference mode
def pixel_basis(dtype: torch.dtype) -> Tensor:
    """Return 1, u, v, u^2, u v, v^2 at the centres of a tile's pixels, row by row: `[6, 64]`, a cached tensor.

    u and v are the distances from the middle of the tile to the right and down, in px.
    """
    centres = torch.arange(TILE_PX, dtype=dtype) + 0.5 - TILE_PX / 2
    v, u = (grid.flatten() for grid in torch.meshgrid(centres, centres, indexing="ij"))
    return torch.stack((torch.ones_like(u), u, v, u * u, u * v, v * v))


def quadratics(pairs: Tensor) -> Tensor:
    """Return the coefficients q `[R, 6]` of ln(alpha) = q . (1, u, v, u^2, u v, v^2) for pairs `[6, R]`.

    A pair has x and y of the projected mean of a Gaussian, its conic a, b, c in 1/px^2, and its opacity, above 0. x, y,
    u and v are in px from the middle of the tile.
    """
    x, y, a, b, c, opacity = pairs.unbind(0)
    slope_x, slope_y = a * x + b * y, b * x + c * y
    constant = opacity.log() - 0.5 * (x * slope_x + y * slope_y)
    return torch.stack((constant, slope_x, slope_y, -0.5 * a, -b, -0.5 * c), 1)


def quadratics_backward(pairs: Tensor, v_quadratics: Tensor) -> Tensor:
    """Return the gradient of pairs, as rows `[R, 6]`, from the gradient `[R, 6]` of the coefficients of `quadratics`.

    `pairs` are the argument of `quadratics`, `[6, R]`.
    """
    x, y, a, b, c, opacity = pairs.unbind(0)
    v_1, v_u, v_v, v_uu, v_uv, v_vv = v_quadratics.unbind(1)
    v_slope_x, v_slope_y = v_u - x * v_1, v_v - y * v_1
    v_a = x * v_u - 0.5 * (x * x * v_1 + v_uu)
    v_b = x * v_v + y * v_slope_x - v_uv
    v_c = y * v_v - 0.5 * (y * y * v_1 + v_vv)
    v_x, v_y = a * v_slope_x + b * v_slope_y, b * v_slope_x + c * v_slope_y
    return torch.stack((v_x, v_y, v_a, v_b, v_c, v_1 / opacity), 1)


def absolute_slopes(coefficients: Tensor, v_log_alphas: Tensor) -> Tensor:
    """Return the sum over a tile's pixels of the absolute gradient of the projected mean, for AbsGS (Ye 2024, eq. 8).

    `[T, k, 2]` for k Gaussians on each of T tiles. Moving the mean is moving the pixel backwards, so the derivatives of
    ln(alpha) by the mean are minus its slopes: linear in u and v, the px from the tile's middle.

    Args:
        coefficients: of `quadratics`, `[T, k, 6]`.
        v_log_alphas: gradients of ln(alpha), `[T, k, 64]`.
    """
    _, q_u, q_v, q_uu, q_uv, q_vv = coefficients.unbind(2)
    linear = pixel_basis(coefficients.dtype)[:3]
    by_x = torch.matmul(torch.stack((q_u, 2 * q_uu, q_uv), 2), linear)
    by_y = torch.matmul(torch.stack((q_v, q_uv, 2 * q_vv), 2), linear)
    return torch.stack([by.mul_(v_log_alphas).abs_().sum(2) for by in (by_x, by_y)], 2)


class Blended(NamedTuple):
    """Values that the backward pass needs of k (up to `BLOCK`) consecutive Gaussians on each of T tiles."""

    odds: Tensor  # [T, k, 64], alpha / (1 - alpha)
    weights: Tensor  # [T, k, 64], alpha times transmittance; 0 where the pixel had stopped


def blend(quadratics: Tensor, colors: Tensor) -> tuple[Tensor, list[Blended]]:
    """Blend K Gaussians on each of T tiles, nearest first; return pixels `[T, D, 64]` and values for `unblend`.

    Blending stops after the first block of Gaussians that leaves every pixel opaque, so the values may be of fewer than
    K Gaussians.

    Args:
        quadratics: coefficients of ln(alpha), `[T, K, 6]`, from the function `quadratics`.
        colors: values to blend, `[T, K, D]`.
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
    """Yield the gradient of ln(alpha), `[T, k, 64]`, block by block of Gaussians, front to back.

    Let v be the gradient of a pixel and s_i = w_i (c_i . v) what Gaussian i adds to pixel . v. Raising alpha_i raises
    s_i and dims all that is behind: dL / d ln(alpha_i) = s_i - alpha_i / (1 - alpha_i) sum_{j>i} s_j. The sum is the
    total minus the prefix, so nothing is divided by a vanishing transmittance or depends on where a pixel stopped.

    Args:
        pixels: result of `blend`, `[T, D, 64]`.
        v_pixels: their gradient, `[T, D, 64]`.
        colors: values that were blended, `[T, K, D]`.
        blocks: further result of `blend`.
    """
    behind_block = (pixels * v_pixels).sum(1, keepdim=True)  # [T, 1, 64]
    for block, block_colors in zip(blocks, torch.split(colors, BLOCK, 1), strict=False):
        shares = torch.bmm(block_colors, v_pixels).mul_(block.weights)
        behind = behind_block - torch.cumsum(shares, 1)
        behind_block = behind[:, -1:].clone()
        v_log_alphas = shares.sub_(behind.mul_(block.odds))
        # A clamped alpha has no gradient. Tested first: it is rare, and the mask costs as much as the exponential.
        if block.odds.amax() > _CLAMPED_ODDS:
            v_log_alphas.masked_fill_(block.odds > _CLAMPED_ODDS, 0.0)
        yield v_log_alphas
