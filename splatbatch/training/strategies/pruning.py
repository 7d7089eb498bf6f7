"""Pruning by importance: what the photographs do not miss is removed, as much as a given loss of PSNR allows."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from splatbatch.config.schedule import MOST_PRUNED
from splatbatch.training.strategies.importance import PruningViews

MOST_MEASURED = 12
"""Photographs that tell what a removal costs."""
TRIALS = 6
"""Each halves what is unknown of how many may go."""


def prunable(gaussians: Mapping[str, Tensor], album: PruningViews, loss_db: float) -> Tensor:
    """Return which Gaussians may go, [N]: the least important ones, for so many dB of PSNR on photographs at most.

    What is lost is measured by rendering without them: importances do not add up where Gaussians overlap.
    """
    album = album.fitting(gaussians)
    order = album.importance(gaussians).order()
    photos = album.photos[:: -(-len(album.photos) // MOST_MEASURED)]
    allowed = album.error(gaussians, photos) * 10 ** (loss_db / 10)
    fits, breaks = 0, 1 + int(MOST_PRUNED * len(order))
    for _ in range(TRIALS):
        tried = (fits + breaks) // 2
        kept = order[tried:].sort().values
        costs = album.error({name: value[kept] for name, value in gaussians.items()}, photos)
        fits, breaks = (tried, breaks) if costs <= allowed else (fits, tried)
    leaves = torch.zeros_like(order, dtype=torch.bool)
    leaves[order[:fits]] = True
    return leaves
