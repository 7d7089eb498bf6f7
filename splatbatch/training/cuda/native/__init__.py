"""Kernels of our own in CUDA C++, where they are wanted and can be built: blending, and projection with colours.

A trial: gsplat's are used unless the environment says SPLATBATCH_NATIVE=pixels or =buckets, which is the backward pass
of blending: a warp per 8 x 4 pixels, or one per 32 Gaussians of a tile; with +projection behind it, projection, too.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import torch
from torch import Tensor

from splatbatch.training.cuda.native.blend import Backward, Blend, Lists, Way
from splatbatch.training.cuda.native.library import CHANNELS, TILE_PX, Library, compiled
from splatbatch.training.cuda.native.project import NAMES, Shot, Sight, project

__all__ = ["Library", "Shot", "Sight", "Way", "project"]

CHOICE = "SPLATBATCH_NATIVE"
WAYS: dict[str, tuple[Backward, bool]] = {
    "pixels": ("pixels", False),
    "buckets": ("buckets", False),
    "pixels+projection": ("pixels", True),
    "buckets+projection": ("buckets", True),
}


def rasterize_to_pixels(
    means2d: Tensor, conics: Tensor, colors: Tensor, opacities: Tensor, *lists: Any, **options: Any
) -> tuple[Tensor, Tensor]:
    """Blend as gsplat's function of this name does, with its arguments, for one image of tiles of 16 pixels."""
    way = chosen()
    if way is not None and colors.shape[-1] in CHANNELS:
        return blend((means2d, conics, colors, opacities), lists, way, **options)
    from gsplat.cuda import _wrapper

    image, alphas = _wrapper.rasterize_to_pixels(means2d, conics, colors, opacities, *lists, **options)
    return image, alphas


def blend(
    gaussians: tuple[Tensor, Tensor, Tensor, Tensor],
    lists: tuple[Any, ...],
    way: Way,
    *,
    backgrounds: Tensor | None = None,
    masks: Tensor | None = None,
    absgrad: bool = False,
) -> tuple[Tensor, Tensor]:
    """Blend in a given way; `lists` are gsplat's arguments from the image's width to the Gaussians of the lists."""
    width, height, _, offsets, ids = lists
    drawn = Lists(offsets.flatten(), ids, None if masks is None else masks.flatten(), offsets.shape[-1], width, height)
    tensors = [value if value is None else value.contiguous() for value in (*gaussians, backgrounds)]
    is_learning = torch.is_grad_enabled() and any(value is not None and value.requires_grad for value in tensors)
    image, alphas = Blend.apply(*tensors, drawn, way, is_learning, absgrad)
    return image, alphas


def chosen() -> Way | None:
    """Return which of our kernels to use; None: gsplat's."""
    asked = wanted()
    return None if asked is None or why_not_here() else Way(compiled(), *asked)


def wanted() -> tuple[Backward, bool] | None:
    """Return what the environment asks for: a backward pass, and whether projection is ours."""
    return WAYS.get(os.environ.get(CHOICE, ""))


@cache
def why_not_here() -> str:
    """Return why our kernels, where they are wanted, cannot be used on this GPU; "" if they can. Builds them.

    Must be asked once before a step is recorded as a CUDA graph.
    """
    asked = wanted()
    if asked is None:
        return ""
    try:
        with torch.inference_mode(False), torch.enable_grad():
            _try(Way(compiled(), *asked))
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - no toolkit, another compiler, a new architecture: gsplat's are there
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no reason given'])[0]}"
    return ""


def _try(way: Way) -> None:
    """See one Gaussian, blend it, and back."""
    shapes = ((1, 3), (1, 4), (1, 3), (1,), (1, 1, 3), (1, 0, 3))
    values = (torch.full(shape, 0.5, device="cuda", requires_grad=True) for shape in shapes)
    camera = torch.eye(4, device="cuda")
    shot = Shot(camera, camera[:3, :3].contiguous(), TILE_PX, TILE_PX, 0, 0.01, 1e10, antialiased=False)
    sight = project(dict(zip(NAMES, values, strict=True)), shot, way.library)
    offsets = torch.zeros(1, 1, 1, dtype=torch.int32, device="cuda")
    gaussians = (sight.means2d, sight.conics, sight.colors, sight.opacities)
    image, _ = blend(gaussians, (TILE_PX, TILE_PX, TILE_PX, offsets, offsets.flatten()), way)
    torch.autograd.backward(image.sum())
