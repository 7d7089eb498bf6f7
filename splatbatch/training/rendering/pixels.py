"""What was drawn, as the bytes of a picture: a frame of a film, a view of the report."""

from __future__ import annotations

import torch
from torch import Tensor

from splatbatch.training.photos.decode import Pixels


def to_pixels(colors: Tensor) -> Pixels:
    """Return colours [H, W, 3] as bytes on the host; what lies beyond 0 and 1 is cut off."""
    found: Pixels = (255 * colors.clamp(0, 1)).round().to(torch.uint8).contiguous().cpu().numpy()
    return found
