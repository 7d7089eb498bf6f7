"""Which pixels of a photograph a patch answers for: not those that show what lies outside its reach.

There the backdrop is coarse; nothing that the patch does can mend it but Gaussians that float, within reach, before
what another patch will draw: they would survive the crop.

The quarry cut in 2 on the CPU (160 x 120 pixels, 600 steps of mcmc, 1,000 Gaussians a patch, 500 in the backdrop):
the merged scene on its hold-out, one seed: 25.16 dB, SSIM 0.770 so, 94 % of the Gaussians survive the crop; 24.86
and 0.768
where all pixels count; 24.97 and 0.754 without border and backdrop, where 64 % survive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from splatbatch.errors import SceneError
from splatbatch.training.gaussians import SH_C0
from splatbatch.training.photos.posed_images import PosedImage, TrainingImages
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, Rendering

MOST_OUTSIDE = 0.5
"""Of what a pixel shows, by the backdrop's opacities, that may lie outside: of as much of it as is covered at all."""


@torch.no_grad()
def boundary_mask(views: TrainingImages) -> TrainingImages:
    """Return views whose photographs count where the patch answers for them; the same views without a backdrop.

    Held-out ones too: what they show of the backdrop says nothing of the patch.

    Raises:
        SceneError: no photograph shows the patch.
    """
    around = views.surroundings
    drawn = around.drawn_whole()
    if drawn is None:
        return views
    whole, is_outside = drawn
    marked = whole | label_colors(is_outside)  # from wherever it is seen
    training, holdout = (
        tuple(one for photo in photos if (one := _masked(photo, marked)).counts())
        for photos in (views.training, views.holdout)
    )
    if not training:
        raise SceneError("no photograph shows what lies within reach of the core: there is nothing to train on")
    return replace(views, training=training, holdout=holdout, surroundings=replace(around, backdrop_inside={}))


def label_colors(is_outside: Tensor) -> dict[str, Tensor]:
    """Return the colours of Gaussians of which each [N] lies outside, white, or within reach, black."""
    return {"sh0": ((is_outside.float() - 0.5) / SH_C0)[:, None, None].repeat(1, 1, 3)}


def _masked(photo: PosedImage, marked: Mapping[str, Tensor]) -> PosedImage:
    return boundary_mask_of(photo, rasterize(marked, photo.view, RasterOptions(sh_degree=0)))


def boundary_mask_of(photo: PosedImage, marked: Rendering) -> PosedImage:
    """Return a photograph whose pixels count where little of what they show lies outside, which is rendered white.

    Where the backdrop is thin, dark is not within: neither patch could mend there what the other is to draw. Where it
    is opaque this is the white itself.
    """
    valid, is_within = photo.valid(), marked.colors[..., 0] <= MOST_OUTSIDE * marked.alphas[..., 0]
    counts = is_within if valid is None else is_within & valid
    if photo.pixels.device == counts.device:
        return replace(photo, mask=counts)
    return replace(photo, mask=counts.to(photo.pixels.device).pin_memory())
