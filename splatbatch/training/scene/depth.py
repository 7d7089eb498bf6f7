"""How far away is what a picture shows: Gaussians drawn in the colour of their depth, by the same rasteriser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from splatbatch.training.gaussians import SH_C0
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RasterOptions, RenderCamera

FAINTEST = 1e-6


def depth_of(
    gaussians: Mapping[str, Tensor], view: RenderCamera, options: RasterOptions, capacity: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the mean depth along the camera's axis, in units of the Gaussians, and the opacity of a view, [H, W].

    The mean weighs each Gaussian as its colour weighs in the picture. `capacity`: see `rasterize`.
    """
    depths = gaussians["means"] @ view.viewmat[2, :3] + view.viewmat[2, 3]
    grey = ((depths - 0.5) / SH_C0)[:, None, None].expand(-1, 1, 3).contiguous()  # colour = 0.5 + C0 sh0
    rendering = rasterize({**gaussians, "sh0": grey}, view, replace(options, sh_degree=0), capacity)
    alphas = rendering.alphas[..., 0]
    return rendering.colors[..., 0] / alphas.clamp_min(FAINTEST), alphas


def places_of(depths: Tensor, view: RenderCamera) -> Tensor:
    """Return where pixels of a view [H, W] of such depths lie, in the frame that the view is in, float64 [H, W, 3]."""
    K, viewmat = view.K.double(), view.viewmat.double()
    x = (torch.arange(view.width, device=depths.device) + 0.5 - K[0, 2]) / K[0, 0]
    y = (torch.arange(view.height, device=depths.device) + 0.5 - K[1, 2]) / K[1, 1]
    rays = torch.stack([x.expand(view.height, -1), y[:, None].expand(-1, view.width), torch.ones_like(depths)], dim=-1)
    local = rays * depths.double()[..., None]
    return (local - viewmat[:3, 3]) @ viewmat[:3, :3]
