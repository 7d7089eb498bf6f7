"""Windows of held-out photographs, cheap to render, by whose PSNR early stopping decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splatbatch.output.records.metrics import MOST_PSNR_DB
from splatbatch.text import plural
from splatbatch.training.photos.dataset import evenly_spaced
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions

MOST_PHOTOS = 6
"""Largest number of photographs that a check of early stopping renders, of each a window (see `window_of`)."""
WINDOW_PX, SMALLEST_WINDOW_PX = 512, 64
"""Largest and smallest side of a window, in px; a photograph smaller than the smallest is its own window."""


def psnr_in(
    gaussians: Mapping[str, Tensor], window: PosedImage, options: RasterOptions, capacity: int | None
) -> Tensor:
    """Render a window and return the PSNR in dB, [], of its valid pixels, at most 100 dB; NaN without any.

    The photograph's colour correction is applied to the rendering. Does not wait for the GPU with a `capacity`.

    Args:
        gaussians: all Gaussians to render, backdrop included.
        window: window of a photograph; its mask is true where a pixel counts, None: everywhere.
        options: of the rasteriser.
        capacity: number of entries of the tile lists on a GPU; None: counted, which waits for the GPU.

    Raises:
        TrainerError: there are no kernels for the GPU.
    """
    colors = window.as_taken(rasterize(gaussians, window.view, options, capacity).colors).clamp(0, 1)
    square, counts = (colors - window.target() / 255).square().mean(dim=-1), window.valid()
    error = square.mean() if counts is None else torch.where(counts, square, 0).sum() / counts.sum()
    return (-10 * error.log10()).clamp_max(MOST_PSNR_DB)


@dataclass(frozen=True)
class StoppingWindows:
    """Windows of the held-out photographs that decide when a run ends; figures of a splat leave these photographs out.

    They are at most `MOST_PHOTOS` (6), evenly spaced among every other photograph by name. Of two photographs only one
    decides.
    """

    windows: tuple[PosedImage, ...] = ()
    """The windows, with masks true where a pixel counts; empty: fewer than 2 held out, or early stopping is off."""
    is_covered: bool = False
    """Whether covered pixels alone count, since at least two photographs have enough; else all valid pixels."""
    note: str = ""
    """A note for the user on why the run cannot end early, or on which pixels; empty where all is well."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the photographs that decide, in the order of the windows."""
        return tuple(window.name for window in self.windows)

    @classmethod
    def of(cls, holdout: Sequence[PosedImage]) -> StoppingWindows:
        """Choose windows among the held-out photographs of a run; of fewer than two, none, with a note.

        Those with too few covered pixels are left out if at least two others remain. Else, where coverage is known, a
        note says so.
        """
        seen = [replace(photo, mask=photo.coverage_mask) for photo in holdout if photo.coverage_mask is not None]
        is_covered, note = len(seen) > 1, ""
        if not is_covered:
            seen = list(holdout)
            if any(photo.covered_share is not None for photo in holdout):
                note = "fewer than 2 held-out photographs have enough covered pixels: all pixels decide on an early end"
        if len(seen) < 2:
            return cls(note=f"{plural(len(seen), 'held-out photograph')}, and 2 are needed: the run cannot end early")
        every_other = sorted(seen, key=lambda photo: photo.name)[::2]
        return cls(tuple(map(window_of, evenly_spaced(every_other, MOST_PHOTOS))), is_covered, note)


def window_of(photo: PosedImage) -> PosedImage:
    """Return a window of a photograph at full resolution, about where most pixels count; in the middle without a mask.

    A side is half of the photograph's, but 64 to 512 px long; a photograph's side below 64 px is taken whole. The
    coverage mask is not cropped.

    A rendering of the whole photograph at lower resolution would be as cheap. But Gaussians smaller than a pixel are
    enlarged there (Mip-Splatting, Yu 2024), so that the PSNR falls as detail is learned.
    """
    height, width = photo.pixels.shape[:2]
    down, across = (max(min(side, SMALLEST_WINDOW_PX), min(WINDOW_PX, side // 2)) for side in (height, width))
    top, left = (height - down) // 2, (width - across) // 2
    if photo.mask is not None:
        top, left = _fullest(photo.mask, (down, across))
    K = photo.view.K.clone()
    K[0, 2] -= left
    K[1, 2] -= top
    view = replace(photo.view, K=K, width=across, height=down)
    inside = (slice(top, top + down), slice(left, left + across))
    mask = None if photo.mask is None else _beside(photo, photo.mask[inside].clone())
    return replace(photo, view=view, pixels=_beside(photo, photo.pixels[inside]), mask=mask)


def _fullest(mask: Tensor, size: tuple[int, int]) -> tuple[int, int]:
    """Return top and left of the window in which most pixels count, among candidates that overlap by half."""
    tops, lefts = (
        torch.tensor(sorted({*range(0, side - part, max(1, part // 2)), side - part}))
        for side, part in zip(mask.shape, size, strict=True)
    )
    above = torch.nn.functional.pad(mask.cpu().int().cumsum(0).cumsum(1), (1, 0, 1, 0))  # summed-area table
    bottoms, rights = tops[:, None] + size[0], lefts[None] + size[1]
    inside = (
        above[bottoms, rights]
        - above[tops[:, None], rights]
        - above[bottoms, lefts[None]]
        + above[tops[:, None], lefts[None]]
    )
    best = int(inside.argmax())
    return int(tops[best // len(lefts)]), int(lefts[best % len(lefts)])


def _beside(photo: PosedImage, part: Tensor) -> Tensor:
    """Return a contiguous part of a photograph, in pinned memory if the photograph is in pinned memory."""
    return part.contiguous().pin_memory() if photo.pixels.is_pinned() else part
