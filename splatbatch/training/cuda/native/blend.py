"""Blending as a differentiable function: buffers of fixed sizes and no wait, so that it can be recorded."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import torch
from torch import Tensor

from splatbatch.training.cuda.native.library import (
    PACKED_FLOATS,
    PARTS,
    TILE_PX,
    Drawn,
    Gradients,
    Library,
    Scene,
    address,
    num_slots,
    stream_of,
)

ALIGNED = 32
"""Floats that each gradient's beginning is a multiple of: 128 bytes."""

Backward = Literal["pixels", "buckets"]


@dataclass(frozen=True)
class Lists:
    """Which Gaussians each tile blends, and the picture they make."""

    offsets: Tensor  # [tiles] int32
    ids: Tensor  # [entries] int32
    masks: Tensor | None  # [tiles] bool
    columns: int  # tiles across
    width: int
    height: int


@dataclass(frozen=True)
class Way:
    """How it is computed: with which library, and which backward."""

    library: Library
    backward: Backward
    projects: bool = False
    """Whether projection and colours are computed by the library, too."""


class Blend(torch.autograd.Function):
    """means2d [1, N, 2], conics [1, N, 3], colours [1, N, C], opacities [1, N], background [1, C] -> image, alpha.

    The background may be None: black. With `absgrad`, the backward pass also sets `means2d.absgrad`, as gsplat does.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:  # noqa: D102
        *tensors, lists, way, is_learning, absgrad = inputs
        means2d, channels = tensors[0], tensors[2].shape[-1]
        image = means2d.new_empty(1, lists.height, lists.width, channels)
        alphas = means2d.new_empty(1, lists.height, lists.width, 1)
        kept = _to_keep(lists, way, channels) if is_learning else {}
        made = Drawn(colors=address(image), alphas=address(alphas), **{name: address(x) for name, x in kept.items()})
        way.library.call("blending_forward", stream_of(means2d), _scene(tensors, lists), made, channels)
        ctx.save_for_backward(*tensors, lists.offsets, lists.ids, lists.masks, image, alphas, *kept.values())
        ctx.kept, ctx.size, ctx.way, ctx.absgrad = tuple(kept), (lists.columns, lists.width, lists.height), way, absgrad
        ctx.set_materialize_grads(False)
        return image, alphas

    @staticmethod
    def backward(ctx: Any, *v_outputs: Any) -> Any:  # noqa: D102
        *tensors, offsets, ids, masks, image, alphas = ctx.saved_tensors[:10]
        kept = dict(zip(ctx.kept, ctx.saved_tensors[10:], strict=True))
        v_image, v_alphas = (None if v is None else v.contiguous() for v in v_outputs)
        v_image = torch.zeros_like(image) if v_image is None else v_image
        slopes = _Slopes(tensors, ctx.absgrad, packed=ctx.way.library.packs)
        given = Gradients(
            colors=address(image),
            alphas=address(alphas),
            v_colors=address(v_image),
            v_alphas=address(v_alphas),
            **{name: address(x) for name, x in kept.items()},
            **slopes.addresses,
        )
        lists = Lists(offsets, ids, masks, *ctx.size)
        scene, channels = _scene(tensors, lists), tensors[2].shape[-1]
        ctx.way.library.call(f"blending_backward_{ctx.way.backward}", stream_of(image), scene, given, channels)
        *of_inputs, absolute = slopes.results()
        if ctx.absgrad:
            tensors[0].absgrad = absolute
        v_background = (v_image * (1 - alphas)).sum((1, 2)) if ctx.needs_input_grad[4] else None
        return *of_inputs, v_background, None, None, None, None


def _scene(tensors: list[Tensor | None], lists: Lists) -> Scene:
    """`tensors` are means2d, conics, colours, opacities, background."""
    return Scene(
        *map(address, (*tensors, lists.offsets, lists.ids, lists.masks)),
        *(len(lists.ids), len(lists.offsets), lists.columns, lists.width, lists.height),
    )


def _to_keep(lists: Lists, way: Way, channels: int) -> dict[str, Tensor]:
    """Return what forward keeps for backward, by the names of `Drawn`."""
    num_tiles = len(lists.offsets)
    slots = num_slots(len(lists.ids), num_tiles)

    def whole(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.int32, device=lists.ids.device)

    kept = {"contributors": whole(slots, PARTS), "num_batches": whole(num_tiles, PARTS)}
    if way.backward == "buckets":
        kept["snapshots"] = torch.empty(slots, TILE_PX * TILE_PX, 1 + channels, device=lists.ids.device)
        kept["tiles"] = whole(slots)
    return kept


class _Slopes:
    """Zeros to add gradients to, of means2d, conics, colours, opacities and the absolute ones: one memory, one fill."""

    def __init__(self, tensors: list[Tensor], absgrad: bool, *, packed: bool) -> None:
        means2d, conics, colors, opacities, _ = tensors
        self._absgrad, self._packed, self._channels = absgrad, packed, colors.shape[-1]
        wanted = [means2d, conics, colors, opacities, *([means2d] if absgrad else [])]
        num = means2d.shape[1]
        sizes = [num * PACKED_FLOATS] if packed else [-(-x.numel() // ALIGNED) * ALIGNED for x in wanted]
        memory = means2d.new_zeros(sum(sizes))
        starts = [0, *accumulate(sizes)]
        if packed:
            self._all = memory.view(1, num, PACKED_FLOATS)
        self._each = (
            []
            if packed
            else [memory[start : start + x.numel()].view_as(x) for start, x in zip(starts, wanted, strict=False)]
        )

    @property
    def addresses(self) -> dict[str, int | None]:
        """Where the kernels add, by the names of `Gradients`."""
        names = ("v_means2d", "v_conics", "v_features", "v_opacities", "v_means2d_abs")
        if self._packed:
            place = address(self._all)
            return {"v_means2d": place, "v_means2d_abs": place if self._absgrad else None}
        return dict(zip(names, map(address, self._each), strict=False))

    def results(self) -> tuple[Tensor | None, ...]:
        """Return the five."""
        if self._packed:
            mean, conic, opacity, color, absolute = self._all.split((2, 3, 1, 4, 2), -1)
            return mean, conic, color[..., : self._channels], opacity[..., 0], absolute
        return (*self._each, *([] if self._absgrad else [None]))
