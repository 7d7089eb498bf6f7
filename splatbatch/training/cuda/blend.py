"""Alpha blending by this package's kernels, differentiable, with buffers of fixed sizes, as CUDA graphs need them."""

from __future__ import annotations

from ctypes import Structure
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from splatbatch.training.cuda.driver import Kernels, address
from splatbatch.training.cuda.sources import constant, struct

Scene, Drawn, Gradients = struct("Scene"), struct("Drawn"), struct("Gradients")
WARP, PARTS = constant("WARP"), constant("PARTS")
"""Constants of the CUDA sources: threads of a warp, as many as entries of a tile list per slot; and warps per tile."""


@dataclass(frozen=True)
class Lists:
    """Tile lists, which name the Gaussians that each tile of the image blends, and the size of the image."""

    offsets: Tensor  # [tiles] int32
    ids: Tensor  # [entries] int32
    masks: Tensor | None  # [tiles] bool, False where nothing is drawn; None: all are drawn
    columns: int  # tiles across
    width: int  # px
    height: int  # px


def blend(rows: Tensor, lists: Lists, kernels: Kernels, *, absgrad: bool = False) -> tuple[Tensor, Tensor]:
    """Blend projected Gaussians over black; return an image [1, H, W, 3], not clamped, and its alpha [1, H, W, 1].

    Args:
        rows: [1, N, ROW], from `project.project`; image and alpha are differentiable in these.
        lists: tile lists.
        kernels: kernels to launch.
        absgrad: whether the last two numbers of a row's gradient are the sums, over pixels, of absolute gradients of
            the projected mean, as gsplat's `means2d.absgrad`.
    """
    is_learning = torch.is_grad_enabled() and rows.requires_grad
    image, alphas = Blend.apply(rows.contiguous(), lists, kernels, is_learning, absgrad)
    return image, alphas


class Blend(torch.autograd.Function):
    """Autograd function of `blend`, from contiguous rows to image and alpha."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:  # noqa: D102
        rows, lists, kernels, is_learning, absgrad = inputs
        image = rows.new_empty(1, lists.height, lists.width, 3)
        alphas = rows.new_empty(1, lists.height, lists.width, 1)
        kept = _to_keep(lists) if is_learning else ()
        made = Drawn(*map(address, (image, alphas, *kept)))
        num_threads = lists.offsets.numel() * PARTS * WARP
        name = "blend_to_learn" if kept else "blend"
        kernels.launch(name, num_threads, _scene(rows, lists), made)
        ctx.save_for_backward(rows, lists.offsets, lists.ids, lists.masks, image, alphas, *kept)
        ctx.size, ctx.kernels, ctx.absgrad = (lists.columns, lists.width, lists.height), kernels, absgrad
        ctx.set_materialize_grads(False)
        return image, alphas

    @staticmethod
    def backward(ctx: Any, *v_outputs: Any) -> Any:  # noqa: D102
        rows, offsets, ids, masks, image, alphas, contributors, num_batches = ctx.saved_tensors
        v_image, v_alphas = (None if v is None else v.contiguous() for v in v_outputs)
        v_image = torch.zeros_like(image) if v_image is None else v_image
        v_rows = torch.zeros_like(rows)
        places = map(address, (image, alphas, v_image, v_alphas, contributors, num_batches, v_rows))
        scene, given = _scene(rows, Lists(offsets, ids, masks, *ctx.size)), Gradients(*places)
        name = "blend_backward_absolute" if ctx.absgrad else "blend_backward"
        ctx.kernels.launch(name, offsets.numel() * PARTS * WARP, scene, given)
        return v_rows, None, None, None, None


def _scene(rows: Tensor, lists: Lists) -> Structure:
    return Scene(
        *map(address, (rows, lists.offsets, lists.ids, lists.masks)),
        *(len(lists.ids), lists.offsets.numel(), lists.columns, lists.width, lists.height),
    )


def _to_keep(lists: Lists) -> tuple[Tensor, Tensor]:
    """Return buffers for the values that forward keeps for backward: contributors, and numbers of batches."""
    num_tiles = lists.offsets.numel()
    slots = len(lists.ids) // WARP + num_tiles + 1  # see `slots` in gaussians.cuh
    return lists.ids.new_empty(slots, PARTS), lists.ids.new_empty(num_tiles, PARTS)
