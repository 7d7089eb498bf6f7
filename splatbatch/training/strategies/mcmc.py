"""`mcmc`: gsplat's MCMCStrategy, also for the CPU; no step waits for the GPU."""

from __future__ import annotations

from functools import cache

import torch
from gsplat.strategy import MCMCStrategy, ops
from torch import Tensor

from splatbatch.config import Training
from splatbatch.training import cuda
from splatbatch.training.cpu.projection import scaled_rotations
from splatbatch.training.gaussians import Parameters
from splatbatch.training.rendering.view import Rendering
from splatbatch.training.strategies.strategy import Strategy

REGULARISERS = {"opacities": 0.01, "scales": 0.01}  # 3DGS-MCMC (Kheradmand 2024), section 4; gsplat's preset
STEEPNESS, TRANSPARENT = 100.0, 0.005
"""Slope and midpoint of the sigmoid by which noise fades with the opacity (3DGS-MCMC, equation 9)."""


class Mcmc(Strategy):
    """Strategy of 3DGS-MCMC (Kheradmand 2024): relocate dead Gaussians, add 5 % up to the cap, add noise to the means.

    Dead are Gaussians that are too transparent, or outside the bounds of the patch.
    """

    regulariser_weights = REGULARISERS

    def __post_init__(self) -> None:
        use_our_relocation()
        training = self.recipe.training
        self._rule = MCMCStrategy(cap_max=training.cap(), min_opacity=self.recipe.refinement.prune_opa)
        self._binoms = self._rule.initialize_state()["binoms"].to(self.gaussians["means"].device)

    def regularise(self, loss: Tensor) -> Tensor:
        """Return the loss plus the weighted means of opacities and scales, [] (3DGS-MCMC, section 4)."""
        opacities, scales = self.gaussians["opacities"].sigmoid(), self.gaussians["scales"].exp()
        return (
            loss
            + self.regulariser_weights["opacities"] * opacities.mean()
            + self.regulariser_weights["scales"] * scales.mean()
        )

    def step_post_backward(self, rendering: Rendering, means_rate: Tensor) -> None:
        """Add noise to the means, in place: more to transparent Gaussians, and in proportion to `means_rate`."""
        del rendering
        inject_noise(self.gaussians, means_rate * self.recipe.refinement.noise_lr, self.recipe.training)

    def refine(self, step: int) -> bool:
        """Relocate dead Gaussians and add new ones if the schedule has this step, counted from 0.

        Returns whether that was done, so that recorded steps (CUDA graphs) are invalid.
        """
        plan = self.plan
        if not plan.refine_start < step < plan.refine_stop or step % plan.refine_every:
            return False
        min_opacity, outside = self._rule.min_opacity, self.border.out_of_bounds(self.gaussians)
        dead = self.gaussians["opacities"].sigmoid() <= min_opacity
        dead = dead if outside is None else dead | outside
        if dead.any() and not dead.all():
            ops.relocate(self.gaussians, self.optimizers, {}, dead, self._binoms, min_opacity)
        self._rule._add_new_gs(self.gaussians, self.optimizers, self._binoms)
        return True

    def has_grown(self, step: int) -> bool:
        """Return whether refinement has ended at this step, or the cap is reached, so that no Gaussians are added."""
        return step >= self.plan.refine_stop or len(self.gaussians["means"]) >= self.recipe.training.cap()

    def limit(self, most: int) -> None:
        """Set the number of Gaussians up to which new Gaussians are added; a larger number is not reduced."""
        self._rule.cap_max = most


@torch.no_grad()
def inject_noise(gaussians: Parameters, strength: Tensor, training: Training) -> None:
    """Add covariance x noise x strength to the means of Gaussians, in place, less for opaque ones.

    Same formula as gsplat's `inject_noise_to_position`, whose batched matrix product is slow for 3 x 3 matrices. A
    single kernel where this package's kernels are used. `strength`, [], is not read by the host, so nothing waits.
    """
    noise, fading = torch.randn_like(gaussians["means"]), (STEEPNESS, TRANSPARENT)
    if cuda.serves(noise, training):
        from splatbatch.training.cuda.step import perturb_means

        perturb_means(gaussians, noise, strength, fading, cuda.loaded())
        return
    share = torch.sigmoid(STEEPNESS * (TRANSPARENT - gaussians["opacities"].sigmoid())) * strength
    axes = scaled_rotations(gaussians["quats"], gaussians["scales"].exp())  # [N, 3, 3]
    along = (axes * (noise * share[:, None])[:, :, None]).sum(1)  # M^T noise; below multiplied by M
    gaussians["means"].add_((axes * along[:, None, :]).sum(-1))


@cache
def use_our_relocation() -> None:
    """Replace `compute_relocation` in `gsplat.strategy.ops` by that of this module; further calls do nothing.

    gsplat's version needs its CUDA extension, which may not be built. `ops` imports the function by value, so it is
    replaced in that module only (gsplat 1.5.3). gsplat's DefaultStrategy does not use the function.
    """
    ops.compute_relocation = compute_relocation


def compute_relocation(opacities: Tensor, scales: Tensor, ratios: Tensor, binoms: Tensor) -> tuple[Tensor, Tensor]:
    """Return new opacities `[N]` and scales `[N, 3]` of Gaussians that become `ratios` `[N]` copies in the same place.

    Opacities, 0 to 1, and scales, standard deviations, are after activation.

    Equation 9 of 3DGS-MCMC (Kheradmand 2024), as in gsplat's RelocationCUDA.cu, which sums in float32: with n copies of
    opacity o',

        o' = 1 - (1 - o)^(1/n)
        scale' = scale * o / sum_{i=1..n} sum_{k=0..i-1} C(i-1, k) (-1)^k o'^(k+1) / sqrt(k+1)

    `binoms[i, k]` is C(i, k), `[n_max, n_max]`; fewer than 1 copy count as 1, more than n_max as n_max. The terms
    alternate in sign and reach thousands, so they are summed in float64 whatever the inputs are.
    """
    num_max = binoms.shape[0]
    copies = ratios.clamp(1, num_max).long()
    old = opacities.double()
    new = 1 - (1 - old) ** (1 / copies)
    k = torch.arange(num_max, dtype=torch.float64, device=opacities.device)
    terms = (-1.0) ** k / (k + 1).sqrt() * new[:, None] ** (k + 1)  # [N, n_max]
    binom_sums = binoms.double().cumsum(0)  # row n - 1 is the sum over i <= n
    denominators = (binom_sums[copies - 1] * terms).sum(1)
    return new.to(opacities.dtype), (old / denominators)[:, None].to(scales.dtype) * scales
