"""Projection, opacity, colour and tile counts of Gaussians as a differentiable function: one kernel, and one back."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import Structure
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from splatbatch.training.cuda.driver import Kernels, address
from splatbatch.training.cuda.sources import struct

Scenery, Projected, Slopes = struct("Scenery"), struct("Projected"), struct("Slopes")
SH_COUNTS = (0, 3, 8, 15)
"""Coefficients above degree 0, by degree."""
NAMES = ("means", "quats", "scales", "opacities", "sh0", "shN")


@dataclass(frozen=True)
class Shot:
    """The camera, and how it sees."""

    viewmat: Tensor  # [4, 4]
    K: Tensor  # [3, 3]
    width: int
    height: int
    sh_degree: int
    near_plane: float
    far_plane: float
    antialiased: bool


@dataclass(frozen=True)
class Sight:
    """What is seen of N Gaussians; undefined, but for the radii and what is counted, where a radius is 0."""

    means2d: Tensor  # [1, N, 2], px
    conics: Tensor  # [1, N, 3]
    opacities: Tensor  # [1, N]
    colors: Tensor  # [1, N, 3]
    depths: Tensor  # [1, N]
    radii: Tensor  # [1, N, 2] int32
    counts: Tensor  # [N] int32, tiles that the box around each touches
    distances: Tensor  # [N], depth; infinite where it touches none

    @property
    def footprints(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What is blended."""
        return self.means2d, self.conics, self.colors, self.opacities


def project(gaussians: Mapping[str, Tensor], shot: Shot, kernels: Kernels) -> Sight:
    """Return what a camera sees of Gaussians; differentiable in all six parameters."""
    made = Project.apply(*(gaussians[name].contiguous() for name in NAMES), shot, kernels)
    return Sight(*made)


class Project(torch.autograd.Function):
    """means, quats, scales, opacities, sh0, shN -> what `Sight` holds, in its order; the first four can be derived."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:  # noqa: D102
        *tensors, shot, kernels = inputs
        means, num = tensors[0], len(tensors[0])
        floats = {"means2d": (1, num, 2), "conics": (1, num, 3), "opacities": (1, num), "colors": (1, num, 3)}
        made = {name: means.new_empty(shape) for name, shape in floats.items()}
        made["depths"] = means.new_empty(1, num)
        made["radii"] = torch.empty(1, num, 2, dtype=torch.int32, device=means.device)
        made["counts"] = torch.empty(num, dtype=torch.int32, device=means.device)
        made["distances"] = means.new_empty(num)
        places = Projected(**{name: address(value) for name, value in made.items()})
        kernels.launch("project", num, _scenery(tensors, shot), places)
        ctx.save_for_backward(*tensors, made["radii"], made["colors"])
        ctx.shot, ctx.kernels = shot, kernels
        ctx.mark_non_differentiable(*(made[name] for name in ("depths", "radii", "counts", "distances")))
        ctx.set_materialize_grads(False)
        return tuple(made.values())

    @staticmethod
    def backward(ctx: Any, *v_outputs: Any) -> Any:  # noqa: D102
        *tensors, radii, colors = ctx.saved_tensors
        given = [_rows(v, colors, width) for v, width in zip(v_outputs[:4], (2, 3, 1, 3), strict=True)]
        results = [torch.empty_like(tensor) for tensor in tensors]
        slopes = Slopes(*map(address, (*given, radii, colors, *results)), *(rows.stride(0) for rows in given))
        ctx.kernels.launch("project_backward", len(tensors[0]), _scenery(tensors, ctx.shot), slopes)
        return *results, None, None


def _scenery(tensors: list[Tensor], shot: Shot) -> Structure:
    """`tensors` are those of `NAMES`."""
    return Scenery(
        *map(address, (*tensors, shot.viewmat, shot.K)),
        *(shot.near_plane, shot.far_plane, len(tensors[0]), tensors[5].shape[1], SH_COUNTS[shot.sh_degree]),
        *(shot.width, shot.height, int(shot.antialiased)),
    )


def _rows(v: Tensor | None, like: Tensor, width: int) -> Tensor:
    """Return a gradient [1, N, width] or [1, N] as rows whose numbers lie side by side; zeros where there is none."""
    if v is None:
        return like.new_zeros(like.shape[1], width)
    rows = v[0].view(-1, width) if v.is_contiguous() else v[0] if v.dim() == 3 else v[0][:, None]
    return rows if width == 1 or rows.stride(-1) == 1 else rows.contiguous()
