"""Our tile lists, run on the CPU lane by lane: every Gaussian that a pixel of a tile sees, nearest first."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from emulated_native import COMPILER, emulated, in_order, shared_folder

from splatbatch.training.cuda import native
from splatbatch.training.cuda.native.lists import tile_lists
from splatbatch.training.cuda.tile_lists import Footprints

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no g++ to compile the kernels for the CPU")
SIZE = (75, 41)  # 5 x 3 tiles


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> native.Library:
    return emulated(shared_folder(tmp_path_factory))


def some_footprints(num: int, largest: float = 8.0) -> Footprints:
    """Ellipses over and around an image, some not seen; half of them as far away as another."""
    generator = torch.Generator().manual_seed(num)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator)

    angles, sides = uniform(num) * torch.pi, 0.4 + largest * uniform(num, 2) ** 2
    turn = torch.stack((angles.cos(), -angles.sin(), angles.sin(), angles.cos()), 1).view(num, 2, 2)
    covariance = turn @ torch.diag_embed(sides**2) @ turn.transpose(1, 2)
    inverse = covariance.inverse()
    radii = (3.33 * torch.stack((covariance[:, 0, 0], covariance[:, 1, 1]), 1).sqrt()).ceil().int()
    radii[uniform(num) < 0.2] = 0
    conics = torch.stack((inverse[:, 0, 0], inverse[:, 0, 1], inverse[:, 1, 1]), 1)
    means2d = uniform(num, 2) * torch.tensor([SIZE[0] + 40.0, SIZE[1] + 40.0]) - 20
    depths = (uniform(num) * max(1, num // 2)).ceil() / 7
    return Footprints(means2d, radii, depths, conics, uniform(num) * 0.9 + 0.05)


def lists_of(seen: Footprints, library: native.Library, capacity: int) -> tuple[list[list[int]], int]:
    made = tile_lists(seen, SIZE, capacity, library)
    starts = made.offsets.flatten().tolist()
    assert starts[15:] == [min(int(made.num), capacity)] * 5
    assert made.masks.flatten().tolist() == [True] * 15 + [False] * 5
    return [made.ids[start:end].tolist() for start, end in pairwise(starts[:16])], int(made.num)


def expected_of(seen: Footprints, tile: int) -> tuple[set[int], set[int]]:
    """Return which Gaussians any pixel of a tile sees, and whose box touches it."""
    first = torch.tensor([tile % 5, tile // 5]) * 16.0
    there = (seen.radii > 0).all(1)
    radii, means = seen.radii.double(), seen.means2d.double()
    boxes = there & (means - radii < first + 16).all(1) & (means + radii > first).all(1)
    pixels = torch.cartesian_prod(torch.arange(16), torch.arange(16)).double() + 0.5 + first
    dx, dy = (means[:, None] - pixels).unbind(-1)
    xx, xy, yy = seen.conics.double().t()[..., None]
    alphas = seen.opacities[:, None] * torch.exp(-0.5 * (xx * dx * dx + yy * dy * dy) - xy * dx * dy)
    return set((boxes & (alphas >= 1 / 255).any(1)).nonzero()[:, 0].tolist()), set(boxes.nonzero()[:, 0].tolist())


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("num", "largest"), [(0, 8.0), (1, 8.0), (33, 8.0), (700, 8.0), (90, 300.0), (7000, 200.0)])
def test_every_tile_lists_what_its_pixels_see(num: int, largest: float, order: int, library: native.Library) -> None:
    seen = some_footprints(num, largest)
    in_order(library, order)
    lists, total = lists_of(seen, library, 15 * num + 1)
    in_order(library, 1)
    assert sum(map(len, lists)) == total
    for tile, listed in enumerate(lists):
        seen_by_pixels, boxed = expected_of(seen, tile)
        assert len(set(listed)) == len(listed)
        assert seen_by_pixels <= set(listed) <= boxed
        assert listed == sorted(listed, key=lambda n: (float(seen.depths[n]), n))
    if num == 7000:
        assert max(map(len, lists)) > 2048


def test_tiles_that_are_only_touched_are_mostly_left_out(library: native.Library) -> None:
    seen = some_footprints(700)
    _, total = lists_of(seen, library, 20_000)
    boxed = sum(len(expected_of(seen, tile)[1]) for tile in range(15))
    visible = sum(len(expected_of(seen, tile)[0]) for tile in range(15))
    assert total < visible + (boxed - visible) / 4


def test_where_there_is_too_little_room_every_tile_gets_its_share(library: native.Library) -> None:
    seen = some_footprints(700)
    whole, num = lists_of(seen, library, 20_000)
    some, told = lists_of(seen, library, num // 2)
    assert told == num
    for part, all_of_it in zip(some, whole, strict=True):
        assert abs(len(part) - len(all_of_it) / 2) <= 1
        assert set(part) <= set(all_of_it)
        assert part == [n for n in all_of_it if n in set(part)]
