"""The exploration of MCMC: noise on the positions, shaped like each Gaussian."""

from __future__ import annotations

import torch
from gsplat.strategy import ops
from torch import Tensor

from splatbatch.training.gaussians import Parameters

STEEPNESS, TRANSPARENT = 100.0, 0.005
"""3DGS-MCMC (Kheradmand 2024), equation 9: noise fades out, this steeply, above this opacity."""


@torch.no_grad()
def inject_noise(gaussians: Parameters, strength: Tensor) -> None:
    """Add covariance x noise x strength to the means, in place; `strength` is [], and is not read by the host.

    As gsplat's `inject_noise_to_position`, whose batched matrix product is slow for 3 x 3 matrices.
    """
    opacities = gaussians["opacities"].sigmoid()
    covariances, _ = ops.quat_scale_to_covar_preci(
        gaussians["quats"], gaussians["scales"].exp(), compute_covar=True, compute_preci=False, triu=False
    )
    share = torch.sigmoid(STEEPNESS * (TRANSPARENT - opacities)) * strength
    noise = torch.randn_like(gaussians["means"]) * share[:, None]
    gaussians["means"].add_((covariances * noise[:, None, :]).sum(-1))
