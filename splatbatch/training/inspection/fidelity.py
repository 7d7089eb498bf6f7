"""Fidelity: PSNR on held-out photographs against that of a blurred photograph."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from splatbatch.training.evaluation.evaluate import covered_psnr, psnr_as
from splatbatch.training.inspection.subject import InspectedSplat, SmallPhotograph
from splatbatch.training.photos.posed_image import PosedImage

BLUR_PX = 8
"""Side, in pixels of the small copies, of the squares whose mean colours make a blurred photograph."""
MOST_DB = 30.0
"""Largest PSNR of a blur that counts, since in a scene with little detail a blur is too good a standard."""


@dataclass(frozen=True)
class Fidelity:
    """PSNR in dB, by held-out photograph, of the splat and of a blur, on covered pixels of the small copies."""

    splat: dict[str, float]
    blur: dict[str, float]

    @property
    def worse_db(self) -> float | None:
        """Return by how many dB the splat is worse than a blur in the mean, at least 0; None without covered pixels."""
        if not self.splat:
            return None
        return max(0.0, min(MOST_DB, statistics.fmean(self.blur.values())) - statistics.fmean(self.splat.values()))


@torch.inference_mode()
def fidelity(subject: InspectedSplat) -> Fidelity:
    """Measure splat and blur on the held-out photographs that have enough covered pixels."""
    found = Fidelity({}, {})
    for look in subject.holdout:
        drawn = look.small.as_taken(subject.shown(look).colors)
        ours, blurred = covered_psnr(drawn.clamp(0, 1), look.small), _of_blur(look)
        if ours is not None and blurred is not None:
            found.splat[look.photo.name], found.blur[look.photo.name] = ours, blurred
    return found


def _of_blur(look: SmallPhotograph) -> float | None:
    return covered_psnr(blur_of(look.small), look.small)


def blur_of(photo: PosedImage) -> Tensor:
    """Return a blurred photograph, [H, W, 3] in [0, 1]: means of squares of `BLUR_PX`, interpolated bilinearly."""
    pixels = (photo.target().float() / 255).movedim(-1, 0)[None]
    means = avg_pool2d(pixels, BLUR_PX, ceil_mode=True)
    size = (photo.view.height, photo.view.width)
    return interpolate(means, size=size, mode="bilinear", align_corners=False)[0].movedim(0, -1)


@torch.inference_mode()
def psnrs(subject: InspectedSplat, looks: tuple[SmallPhotograph, ...]) -> dict[str, float]:
    """Return the PSNR in dB of the small copies, by name of the photograph; only of those with valid pixels."""
    return {look.photo.name: psnr_as(subject.shown(look).colors, look.small) for look in looks if look.small.counts()}
