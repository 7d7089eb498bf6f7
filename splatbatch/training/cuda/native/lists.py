"""Tile lists by kernels of our own: each tile's entries are laid down where they belong, and sorted there."""

from __future__ import annotations

import torch

from splatbatch.training.cuda.native.library import TILE_PX, Library, Listing, address, stream_of
from splatbatch.training.cuda.tile_lists import Footprints, TileLists, frame


@torch.no_grad()
def tile_lists(seen: Footprints, size: tuple[int, int], capacity: int, library: Library) -> TileLists:
    """List the Gaussians of every tile, nearest first; nothing here waits for the GPU."""
    columns, rows = -(-size[0] // TILE_PX), -(-size[1] // TILE_PX)
    tensors = (seen.means2d, seen.conics, seen.opacities, seen.depths, seen.radii)
    device = seen.depths.device
    counts = torch.zeros(rows * columns, dtype=torch.int32, device=device)
    offsets = torch.empty(1, rows + 1, columns, dtype=torch.int32, device=device)
    keys, num = torch.empty(capacity, dtype=torch.int64, device=device), counts.new_empty((), dtype=torch.int64)
    ids = torch.empty(capacity, dtype=torch.int32, device=device)
    places = map(address, (*tensors, counts, offsets, keys, ids, num))
    library.call("tile_lists", stream_of(ids), Listing(*places, len(seen.depths), columns, rows, capacity))
    return TileLists(offsets, ids, frame(rows, columns, torch.int32, device)[1], num)
