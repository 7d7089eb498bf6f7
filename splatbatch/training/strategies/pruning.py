"""Pruning by importance: what the photographs do not miss is removed, as much as a given loss of PSNR allows."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from splatbatch.training.strategies.importance import Album

MOST_MEASURED = 12
"""Photographs that tell what a removal costs."""
TRIALS = 6
"""Each halves what is unknown of how many may go."""
MOST_SHARE = 0.65
"""Of the Gaussians that are removed at once.

One H200, caliterra p0, p1 and p2, 7,000 steps, hold-out PSNR: 32.33 dB and 83,000 Gaussians with 65 % removed in this
order; by the sum over all photographs 31.74 dB and 84,000; as many as cost 0.5 dB at once by that sum, 31.81 dB and
116,000; with 3 % removed or less 32.05 dB and 239,000 (mean of five runs, which differ by 0.3)."""


def dispensable(gaussians: Mapping[str, Tensor], album: Album, loss_db: float) -> Tensor:
    """Return which Gaussians may go, [N]: the least important ones, for so many dB of PSNR on photographs at most.

    What is lost is measured by rendering without them: importances do not add up where Gaussians overlap.
    """
    album = album.fitting(gaussians)
    order = album.importance(gaussians).order()
    photos = album.photos[:: -(-len(album.photos) // MOST_MEASURED)]
    allowed = album.error(gaussians, photos) * 10 ** (loss_db / 10)
    fits, breaks = 0, 1 + int(MOST_SHARE * len(order))
    for _ in range(TRIALS):
        tried = (fits + breaks) // 2
        kept = order[tried:].sort().values
        costs = album.error({name: value[kept] for name, value in gaussians.items()}, photos)
        fits, breaks = (tried, breaks) if costs <= allowed else (fits, tried)
    leaves = torch.zeros_like(order, dtype=torch.bool)
    leaves[order[:fits]] = True
    return leaves
