"""A rasteriser with gsplat's signature for tiny pictures on the CPU: every Gaussian in every pixel, no tiles."""

from __future__ import annotations

from typing import Any

import torch
from gsplat.cuda._torch_impl import _fully_fused_projection, _quat_scale_to_covar_preci, _spherical_harmonics

LEAST_ALPHA, MOST_ALPHA = 1 / 255, 0.99
"""As in gsplat's kernels."""


def rasterization(  # noqa: PLR0917 - as gsplat has it
    means: torch.Tensor,
    quats: torch.Tensor,
    scales: torch.Tensor,
    opacities: torch.Tensor,
    colors: torch.Tensor,
    viewmats: torch.Tensor,
    Ks: torch.Tensor,
    width: int,
    height: int,
    *,
    sh_degree: int,
    packed: bool,
) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Return pictures [1, H, W, 3], their opacity [1, H, W, 1], and what a strategy asks of them; of one camera."""
    covariances, _ = _quat_scale_to_covar_preci(quats, scales, compute_preci=False)
    radii, means2d, depths, conics, _ = _fully_fused_projection(means, covariances, viewmats, Ks, width, height)
    eye = torch.linalg.inv(viewmats[0])[:3, 3]
    rgb = (_spherical_harmonics(sh_degree, means - eye, colors) + 0.5).clamp_min(0)
    grid = torch.meshgrid(torch.arange(width) + 0.5, torch.arange(height) + 0.5, indexing="xy")
    order = depths[0].argsort()
    offsets = torch.stack(grid, -1)[:, :, None] - means2d[0, order]  # [H, W, N, 2]
    a, b, c = conics[0, order].unbind(-1)
    exponent = 0.5 * (a * offsets[..., 0] ** 2 + c * offsets[..., 1] ** 2) + b * offsets[..., 0] * offsets[..., 1]
    is_seen = (radii[0, order] > 0).all(-1)
    alpha = (opacities[order] * is_seen * torch.exp(-exponent)).clamp_max(MOST_ALPHA)
    alpha = torch.where(alpha < LEAST_ALPHA, 0.0, alpha)
    left = torch.cumprod(torch.cat([torch.ones_like(alpha[..., :1]), 1 - alpha], -1), -1)
    weights = alpha * left[..., :-1]
    info = {"means2d": means2d, "radii": radii, "width": width, "height": height, "n_cameras": 1, "gaussian_ids": None}
    return (weights @ rgb[order])[None], (1 - left[..., -1:])[None], info
