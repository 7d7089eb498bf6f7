"""Which Gaussians each tile of 16 x 16 pixels blends, front to back, without the host ever learning how many.

gsplat's own `isect_tiles` reads the length of the list on the host, in the middle of every step. Here the list has a
fixed capacity and the end of it is padding, so that a step can be recorded as a CUDA graph. As in 3DGS Gaussians are
ordered by the depth of their centres; they are sorted by depth first and, in that order, by tile: two short sorts
instead of one of 64-bit keys. Tiles that only the box around a Gaussian touches, but nothing visible of it, are left
out: the picture is the same to the bit.
"""

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE_PX = 16
BLOCK = 256
ROUNDING: tl.constexpr = tl.constexpr(0.01)  # of a falloff, in which 1 is a factor of e
MOST_SMALL_TILES = 32_766  # tile numbers that 16 bits hold, with one to spare: half the passes of the sort


@dataclass(frozen=True)
class Footprints:
    """What gsplat's projection makes of Gaussians; all but the radii are undefined where a radius is 0."""

    means2d: Tensor  # [N, 2], px
    radii: Tensor  # [N, 2] int32, px, half the sides of the box around each Gaussian; 0: not seen
    depths: Tensor  # [N]
    conics: Tensor  # [N, 3], the inverse covariance: xx, xy, yy
    opacities: Tensor  # [N]


@dataclass(frozen=True)
class TileLists:
    """What gsplat's `rasterize_to_pixels` takes, with one row of tiles below the image that holds the padding."""

    offsets: Tensor  # [1, rows + 1, columns] int32, where the list of each tile begins
    ids: Tensor  # [capacity] int32, Gaussians
    masks: Tensor  # [1, rows + 1, columns] bool, False for the row of padding
    num: Tensor  # [] int64, entries there should be; more than the capacity: the farthest Gaussians are missing


@torch.no_grad()
def tile_lists(
    seen: Footprints, size: tuple[int, int], capacity: int, counted: tuple[Tensor, Tensor] | None = None
) -> TileLists:
    """List the Gaussians of every tile. Nothing here waits for the GPU.

    `counted` are the tiles that each Gaussian touches, [N] int32, and its depth, [N], infinite where it touches none.
    """
    means2d, radii = seen.means2d, seen.radii
    columns, rows = triton.cdiv(size[0], TILE_PX), triton.cdiv(size[1], TILE_PX)
    num, device = len(radii), radii.device
    counts, distances = counted or _counted(seen, columns, rows)
    order = distances.sort().indices
    ends = counts[order].cumsum(0)

    small = rows * columns <= MOST_SMALL_TILES
    tiles = torch.empty(capacity, dtype=torch.int16 if small else torch.int32, device=device)
    ids = torch.empty(capacity, dtype=torch.int32, device=device)
    grid = (triton.cdiv(capacity, BLOCK),)
    _emit[grid](
        *(means2d, radii, seen.conics, seen.opacities, order, ends, tiles, ids, num, capacity, columns, rows),
        *(max(1, num.bit_length()), TILE_PX, BLOCK),
    )
    tiles, places = tiles.sort(stable=True)
    first, masks = _frame(rows, columns, tiles.dtype, device)
    offsets = torch.searchsorted(tiles, first, out_int32=True).view(1, rows + 1, columns)
    return TileLists(offsets, ids[places], masks, ends[-1])


def _counted(seen: Footprints, columns: int, rows: int) -> tuple[Tensor, Tensor]:
    num, depths = len(seen.depths), seen.depths
    counts, distances = torch.empty(num, dtype=torch.int32, device=depths.device), torch.empty_like(depths)
    grid = (triton.cdiv(num, BLOCK),)
    _count[grid](seen.means2d, seen.radii, depths, counts, distances, num, columns, rows, TILE_PX, BLOCK)
    return counts, distances


@torch.no_grad()
def count_entries(means2d: Tensor, radii: Tensor, size: tuple[int, int]) -> Tensor:
    """Return how many entries the lists of an image need, [] int64."""
    counts, unused = torch.empty_like(radii[:, 0]), torch.empty_like(means2d[:, 0])
    columns, rows = triton.cdiv(size[0], TILE_PX), triton.cdiv(size[1], TILE_PX)
    grid = (triton.cdiv(len(counts), BLOCK),)
    _count[grid](means2d, radii, unused, counts, unused, len(counts), columns, rows, TILE_PX, BLOCK)
    return counts.sum()


@cache
@torch.inference_mode(False)  # the first caller may be an evaluation
def _frame(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the number of every tile, the row of padding included, and which tiles are drawn."""
    first = torch.arange((rows + 1) * columns, device=device).to(dtype)
    masks = torch.ones(1, rows + 1, columns, dtype=torch.bool, device=device)
    masks[:, rows] = False
    return first, masks


@triton.jit
def _box(means2d, radii, n, inside, columns, rows, TILE_PX: tl.constexpr):
    """The tiles that the box around a Gaussian touches: the first ones, and how many across and down."""
    across, down = tl.load(radii + 2 * n, inside, other=0), tl.load(radii + 2 * n + 1, inside, other=0)
    seen = inside & (across > 0) & (down > 0)
    x = tl.load(means2d + 2 * n, seen, other=0.0)
    y = tl.load(means2d + 2 * n + 1, seen, other=0.0)
    left = tl.clamp(tl.floor((x - across) / TILE_PX), 0.0, columns * 1.0).to(tl.int32)
    right = tl.clamp(tl.ceil((x + across) / TILE_PX), 0.0, columns * 1.0).to(tl.int32)
    top = tl.clamp(tl.floor((y - down) / TILE_PX), 0.0, rows * 1.0).to(tl.int32)
    bottom = tl.clamp(tl.ceil((y + down) / TILE_PX), 0.0, rows * 1.0).to(tl.int32)
    return left, top, tl.where(seen, right - left, 0), tl.where(seen, bottom - top, 0)


@triton.jit(do_not_specialize=["num", "columns", "rows"])
def _count(means2d, radii, depths, counts, distances, num, columns, rows, TILE_PX: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = n < num
    _, _, across, down = _box(means2d, radii, n, inside, columns, rows, TILE_PX)
    touched = across * down
    tl.store(counts + n, touched, inside)
    depth = tl.load(depths + n, inside & (touched > 0), other=float("inf"))
    tl.store(distances + n, depth, inside)


@triton.jit(do_not_specialize=["num", "capacity", "columns", "rows", "halvings"])
def _emit(
    means2d,
    radii,
    conics,
    opacities,
    order,
    ends,
    tiles,
    ids,
    num,
    capacity,
    columns,
    rows,
    halvings,
    TILE_PX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < capacity
    # whose entry it is: the first Gaussian, in the order of depth, whose entries end behind it
    low, high = entry * 0, entry * 0 + num
    for _ in range(halvings):
        middle = (low + high) // 2
        behind = tl.load(ends + middle, inside & (low < high), other=0) > entry
        high = tl.where(behind & (low < high), middle, high)
        low = tl.where((low < high) & ~behind, middle + 1, low)
    used = inside & (low < num)
    n = tl.load(order + low, used, other=0)
    start = tl.load(ends + low - 1, used & (low > 0), other=0)
    left, top, across, _ = _box(means2d, radii, n, used, columns, rows, TILE_PX)
    place = (entry - start).to(tl.int32)
    across = tl.maximum(across, 1)
    row, column = top + place // across, left + place % across
    used &= _reaches(means2d, conics, opacities, n, used, column, row, TILE_PX)
    tl.store(tiles + entry, tl.where(used, row * columns + column, rows * columns), inside)
    tl.store(ids + entry, n.to(tl.int32), inside)


@triton.jit
def _reaches(means2d, conics, opacities, n, used, column, row, TILE_PX: tl.constexpr):
    """Whether any pixel of a tile may see a Gaussian: gsplat blends nothing fainter than 1/255.

    Its falloff grows along every ray from its centre, so the least of a tile lies where rays enter it: on the one or
    two sides that face the centre, unless that lies inside.
    """
    x, y = tl.load(means2d + 2 * n, used, other=0.0), tl.load(means2d + 2 * n + 1, used, other=0.0)
    xx, xy = tl.load(conics + 3 * n, used, other=1.0), tl.load(conics + 3 * n + 1, used, other=0.0)
    yy, opacity = tl.load(conics + 3 * n + 2, used, other=1.0), tl.load(opacities + n, used, other=1.0)
    left, top = column * TILE_PX + 0.5 - x, row * TILE_PX + 0.5 - y  # the first pixel's centre, seen from the Gaussian
    right, bottom = left + (TILE_PX - 1), top + (TILE_PX - 1)
    near_x, near_y = tl.clamp(0.0, left, right), tl.clamp(0.0, top, bottom)
    on_x = tl.clamp(-xy * near_x / yy, top, bottom)
    on_y = tl.clamp(-xy * near_y / xx, left, right)
    at_x = 0.5 * (xx * near_x * near_x + yy * on_x * on_x) + xy * near_x * on_x
    at_y = 0.5 * (xx * on_y * on_y + yy * near_y * near_y) + xy * on_y * near_y
    beside, above = near_x != 0, near_y != 0
    least = tl.where(beside & above, tl.minimum(at_x, at_y), tl.where(beside, at_x, tl.where(above, at_y, 0.0)))
    return least <= tl.log(255 * opacity) + ROUNDING
