"""Projection, tile lists and blending: a rendering that never waits for the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gsplat.cuda._wrapper import fully_fused_projection, rasterize_to_pixels
from torch import Tensor

from splatbatch.training.cuda import native
from splatbatch.training.cuda.native import Sight
from splatbatch.training.cuda.tile_lists import TILE_PX, Footprints, count_entries, tile_lists
from splatbatch.training.cuda.view_colors import view_colors
from splatbatch.training.rendering.view import RasterOptions, Rendering, View

EPS2D_PX = 0.3  # gsplat's default: what a Gaussian is widened by, so that it covers a pixel


def rasterize(gaussians: Mapping[str, Tensor], view: View, options: RasterOptions, capacity: int | None) -> Rendering:
    """Render Gaussians; `capacity` is how many entries the tile lists hold. None counts them, and waits for the count.

    `info` holds what gsplat's own `rasterization` puts there for its strategies, and `num_entries`, [] int64: where it
    is more than the capacity, the farthest Gaussians are missing from the picture.
    """
    size = view.width, view.height
    library = native.chosen()
    sight = _see(gaussians, view, options, library)
    radii, means2d = sight.radii, sight.means2d
    if capacity is None:
        capacity = max(1, int(count_entries(means2d[0], radii[0], size)))
    seen = Footprints(means2d[0], radii[0], sight.depths[0], sight.conics[0], sight.opacities[0])
    lists = tile_lists(seen, size, capacity, sight.counted)
    if library is None:
        image, alphas = rasterize_to_pixels(
            *(*sight.footprints, *size, TILE_PX, lists.offsets, lists.ids), masks=lists.masks, absgrad=options.absgrad
        )
    else:
        drawn = native.Lists(lists.offsets, lists.ids, lists.masks, lists.offsets.shape[-1], *size)
        image, alphas = native.blend(sight.footprints, drawn, library, absgrad=options.absgrad)
    info: dict[str, Any] = {
        "width": view.width,
        "height": view.height,
        "n_cameras": 1,
        "gaussian_ids": None,
        "means2d": means2d,
        "radii": radii,
        "num_entries": lists.num,
    }
    return Rendering(image[0], alphas[0], info)


@torch.no_grad()
def num_entries(gaussians: Mapping[str, Tensor], view: View) -> Tensor:
    """Return how many entries the tile lists of a rendering need, [] int64."""
    sight = _see(gaussians, view, RasterOptions(sh_degree=0), native.chosen())
    return count_entries(sight.means2d[0], sight.radii[0], (view.width, view.height))


def _see(gaussians: Mapping[str, Tensor], view: View, options: RasterOptions, library: native.Library | None) -> Sight:
    """Return what a camera sees: from one kernel of ours, or else with gsplat's projection and our colours."""
    if library is not None:
        shot = native.Shot(
            *(view.viewmat.float().contiguous(), view.K.float().contiguous(), view.width, view.height),
            *(options.sh_degree, options.near_plane, options.far_plane),
            antialiased=options.antialiased,
        )
        return native.project(gaussians, shot, library)
    (radii, means2d, depths, conics), opacities = _project(gaussians, view, options)
    colors = view_colors(gaussians, view.viewmat, radii[0], options.sh_degree)[None]
    return Sight(means2d, conics, opacities, colors, depths, radii)


def _project(
    gaussians: Mapping[str, Tensor], view: View, options: RasterOptions
) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Return radii, means2d, depths and conics, each [1, N, ...], and the opacities to blend with, [1, N]."""
    opacities = gaussians["opacities"].sigmoid()
    *projected, compensations = fully_fused_projection(
        *(gaussians["means"], None, gaussians["quats"], gaussians["scales"].exp()),
        *(view.viewmat[None], view.K[None], view.width, view.height),
        eps2d=EPS2D_PX,
        near_plane=options.near_plane,
        far_plane=options.far_plane,
        calc_compensations=options.antialiased,
        opacities=opacities,
    )
    radii, means2d, depths, conics = projected
    blended = opacities[None] if compensations is None else opacities[None] * compensations
    return (radii, means2d, depths, conics), blended
