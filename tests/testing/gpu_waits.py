"""Steps that wait for the GPU, as torch sees it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch

from splatbatch.training.photos.posed_image import PosedImage


def waits_in(run: Callable[[PosedImage, int], None], photos: Sequence[PosedImage], num_steps: int) -> list[str]:
    """Make so many steps, photograph by photograph; return what torch says of each wait."""
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        for index in range(num_steps):
            run(photos[index % len(photos)], 3)
    torch.cuda.set_sync_debug_mode("default")
    return [str(wait.message) for wait in waits if "synchroniz" in str(wait.message)]
