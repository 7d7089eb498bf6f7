"""Tile lists by a kernel of ours, run on the CPU, name every Gaussian that a tile sees, nearest first."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from emulated_kernels import COMPILER, OnCpu

from splatbatch.training.cuda.lists import TILE_PX, PaddedTileLists, tile_lists
from splatbatch.training.cuda.project import Sight

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU")
NUM, SIZE = 120, (100, 70)


def seen() -> Sight:
    """Gaussians on an image of 100 x 70 pixels and beside it; some too faint to be seen."""
    torch.manual_seed(0)
    shape = torch.randn(NUM, 2, 2) * 4
    covariances = shape @ shape.transpose(1, 2) + 0.3 * torch.eye(2)
    inverse, opacities = torch.linalg.inv(covariances), torch.rand(NUM)
    reach = (2 * (255 * opacities).clamp_min(1.0001).log()).sqrt().clamp_max(3.33)
    radii = (reach[:, None] * covariances.diagonal(dim1=1, dim2=2).sqrt()).ceil().int()
    radii[opacities < 1 / 255] = 0
    conics = torch.stack([inverse[:, 0, 0], inverse[:, 0, 1], inverse[:, 1, 1]], dim=1)
    means2d, depths = torch.rand(NUM, 2) * torch.tensor([120.0, 84.0]) - 5, torch.rand(NUM) * 5 + 1
    most = torch.tensor([-(-side // TILE_PX) for side in SIZE])
    first, last = ((means2d + sign * radii) / TILE_PX for sign in (-1, 1))
    spans = torch.minimum(last.ceil().clamp_min(0), most) - torch.minimum(first.floor().clamp_min(0), most)
    counts = torch.where(radii.amin(1) > 0, spans.prod(1), 0).int()
    distances = torch.where(counts > 0, depths, torch.inf)
    rows = torch.cat([means2d, conics, opacities[:, None], torch.zeros(NUM, 6)], dim=1)
    return Sight(rows[None], radii[None], counts, distances)


def by_tile(lists: PaddedTileLists) -> list[list[int]]:
    offsets = lists.offsets.flatten().tolist()
    columns, rows = -(-SIZE[0] // TILE_PX), -(-SIZE[1] // TILE_PX)
    return [lists.ids[offsets[tile] : offsets[tile + 1]].tolist() for tile in range(rows * columns)]


def strongest(of: Sight, one: int, tile: int) -> float:
    """How much a Gaussian covers the pixel of a tile that it covers most."""
    columns = -(-SIZE[0] // TILE_PX)
    x, y = (torch.arange(TILE_PX) + TILE_PX * place + 0.5 for place in (tile % columns, tile // columns))
    left, top, xx, xy, yy, opacity = of.rows[0, one, :6]
    x, y = x - left, (y - top)[:, None]
    return float((opacity * torch.exp(-0.5 * (xx * x * x + yy * y * y) - xy * x * y)).max())


def test_every_tile_lists_what_it_sees_nearest_first(kernels: OnCpu) -> None:
    gaussians = seen()
    for tile, listed in enumerate(by_tile(tile_lists(gaussians, SIZE, 2048, kernels))):
        depths = gaussians.distances[listed]
        assert not (depths[1:] < depths[:-1]).any()
        visible = {one for one in range(NUM) if gaussians.counts[one] and strongest(gaussians, one, tile) >= 1 / 255}
        assert visible <= set(listed)


def test_lists_that_are_too_short_are_the_beginning_of_the_whole_ones(kernels: OnCpu) -> None:
    whole, cut = (by_tile(tile_lists(seen(), SIZE, capacity, kernels)) for capacity in (2048, 150))
    assert sum(map(len, cut)) < sum(map(len, whole))
    assert all(long[: len(short)] == short for long, short in zip(whole, cut, strict=True))


def test_tiles_of_a_vast_image_are_numbered_in_32_bits(kernels: OnCpu) -> None:
    vast = (TILE_PX * 200, TILE_PX * 170)
    lists = tile_lists(seen(), vast, 4096, kernels)
    assert int(lists.offsets[0, -1, 0]) <= 4096
    assert lists.offsets.shape == (1, 171, 200)


def test_what_is_not_seen_is_in_no_list_whatever_lies_in_its_row(kernels: OnCpu) -> None:
    gaussians = seen()
    hidden = torch.arange(NUM) % 2 == 0
    counts, distances = gaussians.counts.masked_fill(hidden, 0), gaussians.distances.masked_fill(hidden, torch.inf)
    lists = by_tile(tile_lists(replace(gaussians, counts=counts, distances=distances), SIZE, 2048, kernels))
    assert not {one for listed in lists for one in listed} & set(hidden.nonzero().flatten().tolist())
