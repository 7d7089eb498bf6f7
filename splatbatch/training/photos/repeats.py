"""Whether photographs repeat one another: known at loading, long before a training shows that it learns nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from splatbatch.splats.health import HealthFinding
from splatbatch.training.photos.posed_images import PosedImage

THUMBNAIL_PX = 16
MOST_SAMPLES_PX = 128
LARGEST_DIFFERENCE = 4.0
"""Of 255, in any of the 16 x 16 means. A JPEG (quality 75) of the same picture: 1.4; two drone views of a patch: 50."""


@torch.inference_mode()
def find_repeats(photos: Sequence[PosedImage]) -> HealthFinding | None:
    """Return a finding if photographs show the same picture; a hopeless one if all do."""
    if len(photos) < 2:
        return None
    thumbnails = torch.stack([_thumbnail(photo.pixels) for photo in photos])  # [n, 3 * 16 * 16]
    same = torch.cdist(thumbnails, thumbnails, p=float("inf")) <= LARGEST_DIFFERENCE
    first = same.int().argmax(dim=1).tolist()  # the first one that each is like
    repeats = [(index, like) for index, like in enumerate(first) if like != index]
    if not repeats:
        return None
    if len(repeats) == len(photos) - 1 and set(first) == {0}:
        shown_by = f"all {len(photos)} training photographs are the same picture, as {photos[0].name}"
        return HealthFinding("repeated_image", shown_by, is_fatal=True)
    index, like = repeats[0]
    pair = f"{photos[index].name} and {photos[like].name}"
    return HealthFinding(
        "repeated_images", f"{len(repeats)} of {len(photos)} training photographs repeat another, as {pair}"
    )


def _thumbnail(pixels: Tensor) -> Tensor:
    """Return the means of 16 x 16 parts of a photograph [H, W, 3], flat; of large ones every few pixels are enough."""
    stride = max(1, min(pixels.shape[:2]) // MOST_SAMPLES_PX)
    channels = pixels[::stride, ::stride].movedim(-1, 0).contiguous().float()
    return adaptive_avg_pool2d(channels, THUMBNAIL_PX).flatten().cpu()
