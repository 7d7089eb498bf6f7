"""Projection, opacity, colour and tile counts of Gaussians: one CUDA kernel forward, one for the gradients."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import Structure
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from splatbatch.training.cuda.driver import Kernels, address
from splatbatch.training.cuda.sources import constant, struct

Scenery, Projected, Slopes = struct("Scenery"), struct("Projected"), struct("Slopes")
ROW = constant("ROW")
SH_COUNTS = (0, 3, 8, 15)
"""Number of spherical harmonics above degree 0, by degree."""
NAMES = ("means", "quats", "scales", "opacities", "sh0", "shN")


@dataclass(frozen=True)
class ProjectionInput:
    """Camera and options of a projection, as the kernels take them; width and height are in px.

    Planes, the least and the largest depth of a rendered Gaussian, are in the unit of the Gaussians.
    """

    viewmat: Tensor  # [4, 4], world to camera
    K: Tensor  # [3, 3], px
    width: int
    height: int
    sh_degree: int
    near_plane: float
    far_plane: float
    antialiased: bool


@dataclass(frozen=True)
class Sight:
    """Result of the projection of N Gaussians.

    A radius of 0 means that the Gaussian is not visible; its `rows` are then not defined.
    """

    rows: Tensor  # [1, N, ROW]: means2d 2 (px), conics 3, opacity, colours 3, and three unused
    radii: Tensor  # [1, N, 2] int32
    counts: Tensor  # [N] int32, tiles that the box around each touches
    distances: Tensor  # [N], depth; infinite where it touches none


def project(gaussians: Mapping[str, Tensor], shot: ProjectionInput, kernels: Kernels) -> Sight:
    """Project Gaussians, parameters before activation by name, onto the image of a camera, with their colours.

    Differentiable in all six parameters; does not wait for the GPU.
    """
    made = Project.apply(*(gaussians[name].contiguous() for name in NAMES), shot, kernels)
    return Sight(*made)


class Project(torch.autograd.Function):
    """Autograd function from the parameters, in the order of `NAMES`, to the fields of `Sight`.

    Only its `rows` are differentiable.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:  # noqa: D102
        *tensors, shot, kernels = inputs
        means, num = tensors[0], len(tensors[0])
        rows, distances = means.new_empty(1, num, ROW), means.new_empty(num)
        radii, counts = (torch.empty(shape, dtype=torch.int32, device=means.device) for shape in ((1, num, 2), (num,)))
        places = Projected(*map(address, (rows, radii, counts, distances)))
        kernels.launch("project", num, _scenery(tensors, shot), places)
        ctx.save_for_backward(*tensors, radii, rows)
        ctx.shot, ctx.kernels = shot, kernels
        ctx.mark_non_differentiable(radii, counts, distances)
        return rows, radii, counts, distances

    @staticmethod
    def backward(ctx: Any, *v_outputs: Any) -> Any:  # noqa: D102
        *tensors, radii, rows = ctx.saved_tensors
        results, v_rows = [torch.empty_like(tensor) for tensor in tensors], v_outputs[0].contiguous()
        slopes = Slopes(*map(address, (v_rows, radii, rows, *results)))
        ctx.kernels.launch("project_backward", len(tensors[0]), _scenery(tensors, ctx.shot), slopes)
        return *results, None, None


def _scenery(tensors: list[Tensor], shot: ProjectionInput) -> Structure:
    """Return the arguments of the kernels; `tensors` are the parameters in the order of `NAMES`."""
    return Scenery(
        *map(address, (*tensors, shot.viewmat, shot.K)),
        *(shot.near_plane, shot.far_plane, len(tensors[0]), tensors[5].shape[1], SH_COUNTS[shot.sh_degree]),
        *(shot.width, shot.height, int(shot.antialiased)),
    )
