"""Rasteriser by this package's CUDA kernels: projection, tile lists and blending, without waiting for the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from splatbatch.training.cuda.blend import Lists, blend
from splatbatch.training.cuda.driver import Kernels
from splatbatch.training.cuda.lists import tile_lists
from splatbatch.training.cuda.project import ProjectionInput, Sight, project
from splatbatch.training.rendering.view import RasterOptions, RenderCamera, Rendering


def rasterize(
    gaussians: Mapping[str, Tensor], view: RenderCamera, options: RasterOptions, capacity: int | None, kernels: Kernels
) -> Rendering:
    """Render Gaussians over black; differentiable in all six parameters.

    `info` of the result is for the strategies: `rows` in place of gsplat's `means2d`, and `num_entries`, [] int32, the
    number of entries needed. If more than `capacity` are needed, the farthest Gaussians are missing from the picture.

    Args:
        gaussians: parameters before activation, on a GPU.
        view: the camera.
        options: of the rasteriser.
        capacity: number of entries of the tile lists; None: counted, which waits for the GPU.
        kernels: kernels to launch.
    """
    size = view.width, view.height
    seen = _see(gaussians, view, options, kernels)
    if capacity is None:
        capacity = max(1, int(seen.counts.sum()))
    lists = tile_lists(seen, size, capacity, kernels)
    drawn = Lists(lists.offsets, lists.ids, lists.masks, lists.offsets.shape[-1], *size)
    image, alphas = blend(seen.rows, drawn, kernels, absgrad=options.absgrad)
    info: dict[str, Any] = {
        "width": view.width,
        "height": view.height,
        "n_cameras": 1,
        "gaussian_ids": None,
        "rows": seen.rows,
        "radii": seen.radii,
        "num_entries": lists.num,
    }
    return Rendering(image[0], alphas[0], info)


@torch.no_grad()
def num_entries(gaussians: Mapping[str, Tensor], view: RenderCamera, kernels: Kernels) -> Tensor:
    """Return how many entries the tile lists of a rendering need, [] int64, without waiting for the GPU."""
    return _see(gaussians, view, RasterOptions(sh_degree=0), kernels).counts.sum()


def _see(gaussians: Mapping[str, Tensor], view: RenderCamera, options: RasterOptions, kernels: Kernels) -> Sight:
    shot = ProjectionInput(
        *(view.viewmat.float().contiguous(), view.K.float().contiguous(), view.width, view.height),
        *(options.sh_degree, options.near_plane, options.far_plane),
        antialiased=options.antialiased,
    )
    return project(gaussians, shot, kernels)
