"""Tiles with lists of like length, padded to one length: a group is composited by a few large matrix products."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from splatbatch.training.cpu.binning import TILE_PX, TileLists

# Gaussians blended at a time: after each block a group whose pixels are all opaque is left.
BLOCK = 96
# Values in a working array of a block: 64k floats are 256 kB, which the second-level cache holds.
WORKING_SET = 1 << 16


@dataclass(frozen=True)
class TileGroup:
    """T tiles of K Gaussians each, which own the rows `start : start + T K` of the table of pairs."""

    tiles: Tensor  # [T] int64
    length: int  # K
    start: int

    def of(self, table: Tensor) -> Tensor:
        """The group's part of a table `[R, D]`, as a view `[T, K, D]`."""
        num_rows = len(self.tiles) * self.length
        return table.narrow(0, self.start, num_rows).view(len(self.tiles), self.length, -1)


@dataclass(frozen=True)
class PairTable:
    """One row per pair of a tile and a Gaussian, group after group."""

    groups: list[TileGroup]
    gaussians: Tensor  # [R] int64; padding points one past the last Gaussian
    tiles: Tensor  # [R] int64


def pair_table(lists: TileLists, num_gaussians: int) -> PairTable:
    """Lay out the lists of all tiles, padded; empty tiles have no row."""
    order = torch.argsort(lists.counts, descending=True, stable=True)
    groups, start = [], 0
    for first, last, length in _similar(lists.counts[order].tolist()):
        groups.append(TileGroup(order[first:last], length, start))
        start += (last - first) * length

    nothing = torch.zeros(0, dtype=torch.long)
    begins, num_pairs = lists.counts.cumsum(0) - lists.counts, len(lists.gaussians)
    padded = torch.cat((lists.gaussians, torch.tensor([num_gaussians])))
    places = [nothing]
    for group in groups:
        ordinals = torch.arange(group.length)
        is_real = ordinals < lists.counts[group.tiles][:, None]  # [T, K]
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
