"""The tile rasteriser: projected Gaussians to images, with a backward pass written by hand.

Bit-identical from run to run and with any number of threads: nothing is summed in an order left to chance.
"""

from itertools import islice
from typing import Any

import torch
from torch import Tensor

from splatbatch.training.cpu.binning import TILE_PX, TileGrid, bin_gaussians
from splatbatch.training.cpu.compositing import Blended, blend, unblend
from splatbatch.training.cpu.projection import ProjectedGaussians
from splatbatch.training.cpu.quadratics import absolute_slopes, pixel_basis, quadratics, quadratics_backward
from splatbatch.training.cpu.tile_groups import BLOCK, PairTable, pair_table


def raster(
    footprints: ProjectedGaussians, colors: Tensor, width: int, height: int, *, absgrad: bool = False
) -> tuple[Tensor, Tensor]:
    """Draw N Gaussians of colours `[C, N, D]` for C cameras: images `[C, H, W, D]` over black, alphas `[C, H, W, 1]`.

    Differentiable in `colors` and the footprints' means2d, conics and opacities. With `absgrad`, the backward pass also
    sets `footprints.means2d.absgrad` `[C, N, 2]` as gsplat does: the sum over pixels of the absolute gradient (AbsGS).
    """
    grid = TileGrid(len(colors), width, height)
    table = pair_table(bin_gaussians(footprints, grid), num_gaussians=footprints.depths.numel())
    inputs = footprints.means2d, footprints.conics, footprints.opacities, colors
    images: Tensor = _Raster.apply(*inputs, grid, table, absgrad)  # type: ignore[no-untyped-call]
    images = images.movedim(1, -1)
    return images[..., :-1], images[..., -1:]


class _Raster(torch.autograd.Function):
    """means2d, conics, opacities, colours -> images whose last channel is alpha, `[C, D + 1, H, W]`."""

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
        # Not kept on ctx: what is saved this way is given back as soon as the backward pass is done.
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
            """Per Gaussian, `[C, N, D]`; the last row collects what the padding got. Rows are added in their order."""
            num_cameras, num_gaussians, _ = means2d.shape
            sums = v_rows.new_zeros(num_cameras * num_gaussians + 1, v_rows.shape[1])
            sums.index_add_(0, ctx.table.gaussians, v_rows)
            return sums[:-1].view(num_cameras, num_gaussians, v_rows.shape[1])

        v_pairs = total(quadratics_backward(pairs, v_coefficients))
        if ctx.absgrad:
            means2d.absgrad = total(v_absolute)
        return v_pairs[..., :2], v_pairs[..., 2:5], v_pairs[..., 5], total(v_colors)[..., :-1], None, None, None


def _gather(tensors: list[Tensor], table: PairTable, grid: TileGrid) -> tuple[Tensor, Tensor]:
    """Of each pair, mean from the tile's middle, conic, opacity `[6, R]`; colour and 1 for alpha `[R, D + 1]`."""
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
    """Tiles `[num_tiles, D, 64]` to images `[C, D, H, W]`."""
    tiles = pixels.view(grid.num_cameras, grid.rows, grid.columns, -1, TILE_PX, TILE_PX)
    images = tiles.permute(0, 3, 1, 4, 2, 5).reshape(grid.num_cameras, -1, grid.rows * TILE_PX, grid.columns * TILE_PX)
    return images[..., : grid.height, : grid.width].contiguous()


def _cut(images: Tensor, grid: TileGrid) -> Tensor:
    """Images `[C, D, H, W]` to tiles `[num_tiles, D, 64]`, zero where a tile sticks out of the image."""
    beyond = (0, grid.columns * TILE_PX - grid.width, 0, grid.rows * TILE_PX - grid.height)
    padded = torch.nn.functional.pad(images, beyond)
    tiles = padded.view(grid.num_cameras, -1, grid.rows, TILE_PX, grid.columns, TILE_PX).permute(0, 2, 4, 1, 3, 5)
    return tiles.reshape(grid.num_tiles, -1, TILE_PX * TILE_PX)
