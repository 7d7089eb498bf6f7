"""How a Gaussian divides its light among copies of itself: the relocation of 3DGS-MCMC."""

import torch
from torch import Tensor


def compute_relocation(opacities: Tensor, scales: Tensor, ratios: Tensor, binoms: Tensor) -> tuple[Tensor, Tensor]:
    """New opacities `[N]` and scales `[N, 3]` of Gaussians that become `ratios` `[N]` copies in the same place.

    Equation 9 of 3DGS-MCMC (Kheradmand 2024), as gsplat's RelocationCUDA.cu computes it: with n copies of opacity o',

        o' = 1 - (1 - o)^(1/n)
        scale' = scale * o / sum_{i=1..n} sum_{k=0..i-1} C(i-1, k) (-1)^k o'^(k+1) / sqrt(k+1)

    `binoms[i, k]` is C(i, k), `[n_max, n_max]`; more than n_max copies count as n_max. The terms alternate in sign and
    reach thousands, so they are summed in float64 whatever the inputs are.
    """
    num_max = binoms.shape[0]
    copies = ratios.clamp(1, num_max).long()
    old = opacities.double()
    new = 1 - (1 - old) ** (1 / copies)
    k = torch.arange(num_max, dtype=torch.float64)
    terms = (-1.0) ** k / (k + 1).sqrt() * new[:, None] ** (k + 1)  # [N, n_max]
    binom_sums = binoms.double().cumsum(0)  # row n - 1 is the sum over i <= n
    denominators = (binom_sums[copies - 1] * terms).sum(1)
    return new.to(opacities.dtype), (old / denominators)[:, None].to(scales.dtype) * scales
