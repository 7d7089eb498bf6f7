"""Fidelity: whether held-out photographs are shown better than by a blur of them, and what was merely memorised."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from splatbatch.training.evaluation.evaluate import covered_psnr, psnr_as
from splatbatch.training.inspection.subject import InspectedSplat, SmallPhotograph
from splatbatch.training.photos.dataset import evenly_spaced
from splatbatch.training.photos.posed_image import PosedImage

BLUR_PX = 8
"""Side of the squares whose mean colour makes a blur, in the small copies that are inspected."""
MOST_DB = 30.0
"""Of a blur: better than that a splat need not be, however little detail a scene has."""


@dataclass(frozen=True)
class Fidelity:
    """The PSNR of small copies of held-out photographs on covered pixels, in dB: of the splat, and of a blur."""

    splat: dict[str, float]
    blur: dict[str, float]

    @property
    def worse_db(self) -> float | None:
        """Return by how much the splat is worse than a blur, in the mean; None where no pixel is covered."""
        if not self.splat:
            return None
        return max(0.0, min(MOST_DB, statistics.fmean(self.blur.values())) - statistics.fmean(self.splat.values()))


@torch.inference_mode()
def fidelity(subject: InspectedSplat) -> Fidelity:
    """Measure the splat on the held-out photographs."""
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
    """Return a photograph, [H, W, 3] in [0, 1], of whose squares only the mean colours are left."""
    pixels = (photo.target().float() / 255).movedim(-1, 0)[None]
    means = avg_pool2d(pixels, BLUR_PX, ceil_mode=True)
    size = (photo.view.height, photo.view.width)
    return interpolate(means, size=size, mode="bilinear", align_corners=False)[0].movedim(0, -1)


MOST_VIEWS = 8


@torch.inference_mode()
def psnrs(subject: InspectedSplat, looks: tuple[SmallPhotograph, ...]) -> dict[str, float]:
    """Return the PSNR of small copies of photographs, in dB; of those of which any pixel counts."""
    return {look.photo.name: psnr_as(subject.shown(look).colors, look.small) for look in looks if look.small.counts()}


def gap_db(subject: InspectedSplat, held_out: dict[str, float]) -> float | None:
    """Return by how much trained photographs are better than held-out ones; None without either."""
    trained = psnrs(subject, evenly_spaced(subject.training, MOST_VIEWS))
    if not trained or not held_out:
        return None
    return statistics.fmean(trained.values()) - statistics.fmean(held_out.values())
