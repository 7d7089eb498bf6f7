"""Which Gaussians touch which tile, nearest first: exact, so that what is left out would not have been drawn."""

from dataclasses import dataclass

import torch
from torch import Tensor

from splatbatch.training.cpu.projection import ALPHA_MIN, ProjectedGaussians

# 8, not gsplat's 16: the cumulative products of a block of tiles then stay in the processor's first-level cache.
TILE_PX = 8


@dataclass(frozen=True)
class TileGrid:
    """The tiles of C images of one size, by camera, row and column; those at the border may stick out of the image."""

    num_cameras: int
    width: int
    height: int

    @property
    def columns(self) -> int:
        """Tiles side by side."""
        return -(-self.width // TILE_PX)

    @property
    def rows(self) -> int:
        """Tiles one above the other."""
        return -(-self.height // TILE_PX)

    @property
    def num_tiles(self) -> int:
        """Tiles of all cameras."""
        return self.num_cameras * self.rows * self.columns

    def centres(self, tiles: Tensor) -> tuple[Tensor, Tensor]:
        """x and y in px of the middle of `tiles`, int of any shape."""
        row, column = tiles // self.columns % self.rows, tiles % self.columns
        return column * TILE_PX + TILE_PX / 2, row * TILE_PX + TILE_PX / 2


@dataclass(frozen=True)
class TileLists:
    """The Gaussians of every tile, nearest first, one list after the other; a Gaussian is its place among the C x N."""

    gaussians: Tensor  # [M] int64
    counts: Tensor  # [num_tiles] int64


@torch.no_grad()
def bin_gaussians(footprints: ProjectedGaussians, grid: TileGrid) -> TileLists:
    """The lists of a grid's tiles. Ties in depth keep the order of the Gaussians, as gsplat's radix sort does."""
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
    return TileLists(gaussians.index_select(0, order), torch.bincount(tiles, minlength=grid.num_tiles))


def _candidates(means2d: Tensor, radii: Tensor, grid: TileGrid) -> tuple[Tensor, Tensor, Tensor]:
    """Every pair of an ellipse and a tile in its bounding box: ellipse, tile column, tile row, int32 `[P]` each."""
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
    """Whether `ellipses` `[6, P]` reach ALPHA_MIN anywhere on the rectangle that the pixel centres of their tile span.

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
    rounding = 1e-3  # in ln(alpha): rather keep a pair too many
    return is_inside | (0.5 * torch.minimum(on_vertical, on_horizontal) <= cutoffs + rounding)
