"""Tile lists: the Gaussians that each tile of 16 x 16 px blends, front to back; the host does not read their length.

gsplat's own `isect_tiles` reads the length of the list on the host, in the middle of every step. Here the list has a
fixed capacity and is padded, so that a step can be recorded as a CUDA graph. As in 3DGS Gaussians are ordered by the
depth of their centres. They are sorted by depth first and, in that order, by tile: two short sorts instead of one of
64-bit keys. Tiles that only the bounding box of a Gaussian touches, but nothing visible of it, are left out: the
picture is the same to the bit.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from splatbatch.training.cuda.driver import Kernels, address
from splatbatch.training.cuda.project import Sight
from splatbatch.training.cuda.sources import constant, struct

Entries, TILE_PX = struct("Entries"), constant("TILE_PX")
MOST_SMALL_TILES = 32_766  # tile numbers that fit 16 bits, with one to spare, which halve the passes of the sort


@dataclass(frozen=True)
class PaddedTileLists:
    """Tile lists of fixed capacity, with one additional row of tiles below the image for unused entries."""

    offsets: Tensor  # [1, rows + 1, columns] int32, where the list of each tile begins
    ids: Tensor  # [capacity] int32, Gaussians
    masks: Tensor  # [1, rows + 1, columns] bool, False for the row of padding
    num: Tensor  # [] int32, entries needed; if more than the capacity, the farthest Gaussians are missing


@torch.no_grad()
def tile_lists(seen: Sight, size: tuple[int, int], capacity: int, kernels: Kernels) -> PaddedTileLists:
    """Return the Gaussians of every tile of an image, nearest first; does not wait for the GPU.

    Args:
        seen: projected Gaussians.
        size: width and height of the image in px.
        capacity: number of entries of all lists together; further ones are dropped, the farthest Gaussians first.
        kernels: kernels to launch.
    """
    columns, rows = -(-size[0] // TILE_PX), -(-size[1] // TILE_PX)
    device = seen.counts.device
    order = seen.distances.sort().indices
    ends = seen.counts[order].cumsum(0, dtype=torch.int32)

    small = rows * columns <= MOST_SMALL_TILES
    tiles = torch.empty(capacity, dtype=torch.int16 if small else torch.int32, device=device)
    ids = torch.empty(capacity, dtype=torch.int32, device=device)
    tensors = (seen.rows, seen.radii, order, ends, tiles, ids)
    entries = Entries(*map(address, tensors), len(seen.counts), capacity, columns, rows)
    kernels.launch("emit_short" if small else "emit_int", capacity, entries)
    tiles, places = tiles.sort(stable=True)
    first, masks = _frame(rows, columns, tiles.dtype, device)
    offsets = torch.searchsorted(tiles, first, out_int32=True).view(1, rows + 1, columns)
    return PaddedTileLists(offsets, ids[places], masks, ends[-1])


@cache
@torch.inference_mode(False)  # cached: training could not use a tensor that an evaluation made in inference mode
def _frame(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the number of every tile, the row of padding included, and which tiles are rendered."""
    first = torch.arange((rows + 1) * columns, device=device).to(dtype)
    masks = torch.ones(1, rows + 1, columns, dtype=torch.bool, device=device)
    masks[:, rows] = False
    return first, masks
