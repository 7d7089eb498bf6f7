"""Gaussians as parameters: made from the sparse points, turned into a splat file's arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from splatbatch.config import Training
from splatbatch.scene.colmap.reconstruction import Points
from splatbatch.splats import Gaussians
from splatbatch.training.neighbours import neighbour_distance
from splatbatch.training.photos.views import Frame

SH_C0 = 0.28209479177387814  # Y_0^0 = 1 / (2 sqrt(pi)): colour = 0.5 + C0 sh0 (3DGS)
SMALLEST_SCALE = 1e-7

Parameters = dict[str, Parameter]
"""means [N, 3], scales [N, 3] (log), quats [N, 4], opacities [N] (logit), sh0 [N, 1, 3], shN [N, K, 3]."""


def first_values(points: Points, frame: Frame, training: Training) -> dict[str, Tensor]:
    """Return one Gaussian per sparse point, as large as the distance to its neighbours, in the colour of the point.

    In host memory: nothing here touches CUDA.
    """
    means = (points.xyz - frame.center) / frame.unit
    num, num_sh = len(means), (training.sh_degree + 1) ** 2
    settled = training.resolved()
    scale, opacity = float(settled.init_scale), float(settled.init_opacity)
    scales = np.log(np.maximum(neighbour_distance(means) * scale, SMALLEST_SCALE))
    generator = torch.Generator().manual_seed(training.seed)
    values = {
        "means": torch.from_numpy(means),
        "scales": torch.from_numpy(scales)[:, None].repeat(1, 3),
        "quats": torch.rand(num, 4, generator=generator),
        "opacities": torch.full((num,), math.log(opacity / (1 - opacity))),
        "sh0": torch.from_numpy((points.rgb / 255 - 0.5) / SH_C0)[:, None],
        "shN": torch.zeros(num, num_sh - 1, 3),
    }
    return {name: value.float() for name, value in values.items()}


def to_parameters(values: Mapping[str, Tensor], device: torch.device) -> Parameters:
    """Return values as what is optimised, on the device that trains."""
    return {name: Parameter(value.to(device)) for name, value in values.items()}


def from_splat(splat: Gaussians, frame: Frame, device: torch.device) -> Parameters:
    """Return what a splat file holds in the frame that is trained in: what `export` made of it, rounded as it was."""
    means = (splat.means.astype(np.float64) - frame.center) / frame.unit
    values = {
        "means": means.astype(np.float32),
        "scales": splat.scales - np.float32(math.log(frame.unit)),
        "quats": splat.quats,
        "opacities": splat.opacities,
        "sh0": splat.sh0[:, None],
        "shN": splat.shN,
    }
    # columns picked from a table lie apart; the kernels read rows that lie side by side
    whole = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in values.items()}
    return to_parameters(whole, device)


def export(gaussians: Parameters, frame: Frame) -> Gaussians:
    """Return the Gaussians in the coordinates of the model, less its offset, as arrays on the host."""

    def array(tensor: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return tensor.detach().float().cpu().numpy()

    means = array(gaussians["means"]).astype(np.float64) * frame.unit + frame.center
    return Gaussians(
        means=means.astype(np.float32),
        scales=array(gaussians["scales"]) + np.float32(math.log(frame.unit)),
        quats=array(torch.nn.functional.normalize(gaussians["quats"], dim=-1)),
        opacities=array(gaussians["opacities"]),
        sh0=array(gaussians["sh0"][:, 0]),
        shN=array(gaussians["shN"]),
    )
