"""Fidelity: PSNR on held-out photographs against that of a blurred photograph."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from splatbatch.training.evaluation.evaluate import covered_psnr, psnr_as
from splatbatch.training.inspection.subject import InspectedSplat
from splatbatch.training.photos.posed_image import PosedImage

BLUR_PX = 8
"""Side, in pixels of the small copies, of the squares whose mean colours make a blurred photograph."""
MOST_DB = 30.0
"""Largest PSNR of a blur that counts, since in a scene with little detail a blur is too good a standard."""


@torch.inference_mode()
def psnrs(subject: InspectedSplat) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Return the PSNR in dB of the small copies of held-out photographs, by name.

    Of the splat on valid pixels; then, for photographs with enough covered pixels, of splat and blur on these.
    """
    valid, covered, blurs = dict[str, float](), dict[str, float](), dict[str, float]()
    for look in subject.holdout:
        name, small, colors = look.photo.name, look.small, subject.shown(look).colors
        if small.counts():
            valid[name] = psnr_as(colors, small)
        ours = covered_psnr(small.as_taken(colors).clamp(0, 1), small)
        blurred = covered_psnr(blur_of(small), small)
        if ours is not None and blurred is not None:
            covered[name], blurs[name] = ours, blurred
    return valid, covered, blurs


def worse_db(splat: Mapping[str, float], blur: Mapping[str, float]) -> float | None:
    """Return by how many dB the splat is worse than a blur in the mean, at least 0; None without photographs."""
    if not splat:
        return None
    return max(0.0, min(MOST_DB, statistics.fmean(blur.values())) - statistics.fmean(splat.values()))


def blur_of(photo: PosedImage) -> Tensor:
    """Return a blurred photograph, [H, W, 3] in [0, 1]: means of squares of `BLUR_PX`, interpolated bilinearly."""
    pixels = (photo.target().float() / 255).movedim(-1, 0)[None]
    means = avg_pool2d(pixels, BLUR_PX, ceil_mode=True)
    size = (photo.view.height, photo.view.width)
    return interpolate(means, size=size, mode="bilinear", align_corners=False)[0].movedim(0, -1)
