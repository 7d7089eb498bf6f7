"""A splat cut at a border: what is too large there becomes small parts, so that neither side shines into the other.

Cut in 2 on the CPU (80 x 60 pixels, 500 to 600 steps of mcmc, one seed): the merged scene on its hold-out in dB, and
the patches' own splats on the pixels that they answer for:

                                                     quarry, cap 1,000   caliterra-small, cap 6,000
    backdrop and Gaussians held to the margin        30.1 (19.1)         22.4 (19.5)
    the backdrop in parts, as large as where they    30.9 (30.0)         21.3 (25.0)
      come from allows; they cover bare ground
    parts as large as where they lie allows          30.1 (22.3)         24.7 (25.3)
    and no thin pixel counts that shows others       31.2 (30.8)         24.5 (32.4), across the seam 35.3
    Gaussians up to half a core, backdrop as it is   27.7 (31.1)         28.8 (27.9)
    no border, no backdrop                           not run             29.6 (29.6), across the seam 34.0

A margin is three and a half pixels wide there; at full size nothing of this has been measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from splatbatch.training.border.boundary import Boundary
from splatbatch.training.cpu.projection import scaled_rotations
from splatbatch.training.gaussians import select

MOST_PARTS = 1024
"""Of one Gaussian."""
SHARE_OF_CAP = 3
"""A third of what a patch may have, at most, covers bare ground as it begins."""
SEED = 1


@dataclass(frozen=True)
class GaussianPieces:
    """Gaussians of which none is larger than it may be where it comes from."""

    values: dict[str, Tensor]
    origin: Tensor  # [M], the number of the Gaussian that each is, or is a part of
    is_part: Tensor  # [M]


def split_up(values: Mapping[str, Tensor], bounds: Boundary) -> GaussianPieces:
    """Return Gaussians with those in small parts that are too large so near a border; parts fill the same place."""
    scales = values["scales"].exp()
    largest = bounds.largest_scales(values["means"])[:, None]
    more = (scales / largest).clamp_min(1).prod(dim=1).ceil().clamp_max(MOST_PARTS) - 1
    more = more * (len(more) / more.sum().clamp_min(1)).clamp_max(1)  # twice as many in all, at most
    nums = 1 + more.long()
    origin = torch.repeat_interleave(nums)
    is_part = nums[origin] > 1
    pieces = select(values, origin)
    away = torch.randn(len(origin), 3, 1, generator=torch.Generator().manual_seed(SEED)) * is_part[:, None, None]
    pieces["means"] = pieces["means"] + (scaled_rotations(pieces["quats"], scales[origin]) @ away)[:, :, 0]
    held = bounds.largest_scales(pieces["means"])[:, None]  # where each lies: parts of one far away lie at the border
    pieces["scales"] = torch.minimum(torch.minimum(scales, largest)[origin], held).log()
    return GaussianPieces(pieces, origin, is_part)


def boundary_init(first: Mapping[str, Tensor], cover: Mapping[str, Tensor], cap: int) -> dict[str, Tensor]:
    """Return the first values of a patch, and with them what covers the ground near its border that has few points.

    Gaussians are held small there, and none grows where none is: black holes would stay.
    """
    if not cover:
        return dict(first)
    order = torch.randperm(len(cover["means"]), generator=torch.Generator().manual_seed(SEED))
    rows = order[: num_covering(cover, cap)]
    return {name: torch.cat((value, cover[name][rows].to(value))) for name, value in first.items()}


def num_covering(cover: Mapping[str, Tensor], cap: int) -> int:
    """Return how many Gaussians cover the ground near the border as a patch begins."""
    return min(len(cover["means"]), cap // SHARE_OF_CAP) if cover else 0
