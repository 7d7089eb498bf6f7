"""Blending of our own in CUDA C++, for three colours over tile lists, where it is wanted and can be built.

A trial: gsplat's blending is used unless the environment says SPLATBATCH_BLENDING=pixels or =buckets, which is the
backward pass: a warp per 8 x 4 pixels, or one per 32 Gaussians of a tile.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import torch
from torch import Tensor

from splatbatch.training.cuda.blending.function import Backward, Blend, Lists, Way
from splatbatch.training.cuda.blending.library import CHANNELS, TILE_PX, compiled

CHOICE = "SPLATBATCH_BLENDING"
WAYS: dict[str, Backward] = {"pixels": "pixels", "buckets": "buckets"}


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
    """Return how to blend; None: as gsplat does."""
    backward = wanted()
    return None if backward is None or why_not_here() else Way(compiled(), backward)


def wanted() -> Backward | None:
    """Return the backward pass that the environment asks for."""
    return WAYS.get(os.environ.get(CHOICE, ""))


@cache
def why_not_here() -> str:
    """Return why our blending, where it is wanted, cannot be used on this GPU; "" if it can. Builds it.

    Must be asked once before a step is recorded as a CUDA graph.
    """
    way = wanted()
    if way is None:
        return ""
    try:
        with torch.inference_mode(False), torch.enable_grad():
            _try(Way(compiled(), way))
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - no toolkit, another compiler, a new architecture: gsplat blends
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no reason given'])[0]}"
    return ""


def _try(way: Way) -> None:
    """Blend one Gaussian, and back."""
    shapes = ((1, 1, 2), (1, 1, 3), (1, 1, 3), (1, 1))
    gaussians = tuple(torch.full(shape, 0.5, device="cuda", requires_grad=True) for shape in shapes)
    offsets = torch.zeros(1, 1, 1, dtype=torch.int32, device="cuda")
    image, _ = blend(gaussians, (TILE_PX, TILE_PX, TILE_PX, offsets, offsets.flatten()), way)  # type: ignore[arg-type]
    torch.autograd.backward(image.sum())
