"""This package's own kernels for NVIDIA GPUs, in CUDA C++: with them a training step never waits for the GPU.

They compute projection with colours, tile lists, blending, loss, colour correction, Adam and the noise of `mcmc`. A
step as a CUDA graph takes 727 us with these kernels, and 1,412 us with gsplat's projection and blending. That is on
patch p1 of caliterra with 200,000 Gaussians (H200, 995 x 748 px).
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from splatbatch.config import Training
from splatbatch.errors import first_line
from splatbatch.training.cuda.blend import Lists, blend
from splatbatch.training.cuda.driver import GpuKernels, Kernels
from splatbatch.training.cuda.lists import TILE_PX
from splatbatch.training.cuda.loss import photometric_loss
from splatbatch.training.cuda.project import NAMES, ProjectionInput, project


def serves(tensor: Tensor, training: Training) -> bool:
    """Return whether to use this package's kernels for a tensor: on a GPU, if they work and `training.kernels` is auto.

    The first call that asks for the kernels loads and tries them.
    """
    return tensor.is_cuda and training.kernels == "auto" and not why_not_here()


@cache
def loaded() -> GpuKernels:
    """Return this package's kernels on the current GPU, loaded once per process.

    Kernels that neither the wheel nor the cache of the user has are compiled, which takes seconds.

    Raises:
        CompileError: the kernels cannot be compiled or loaded here.
        RuntimeError: torch finds no GPU or no driver.
        AssertionError: torch was built without CUDA.
    """
    return GpuKernels()


@cache
def why_not_here() -> str:
    """Return why this package's kernels cannot be used on the current GPU, in one line; an empty string if they can.

    The first call loads and tries the kernels, and must come before a step is recorded as a CUDA graph. Raises nothing.
    """
    try:
        with torch.inference_mode(False), torch.enable_grad():  # the first call may come from an evaluation
            _try(loaded())
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - an old driver, a new GPU, no NVRTC: gsplat's may be there
        return first_line(error)
    return ""


def _try(kernels: Kernels) -> None:
    """Run projection, blending and loss for one Gaussian, forward and backward."""
    shapes = ((1, 3), (1, 4), (1, 3), (1,), (1, 1, 3), (1, 0, 3))
    values = (torch.full(shape, 0.5, device="cuda", requires_grad=True) for shape in shapes)
    camera = torch.eye(4, device="cuda")
    shot = ProjectionInput(camera, camera[:3, :3].contiguous(), TILE_PX, TILE_PX, 0, 0.01, 1e10, antialiased=False)
    seen = project(dict(zip(NAMES, values, strict=True)), shot, kernels)
    starts = torch.zeros(1, dtype=torch.int32, device="cuda")
    image, _ = blend(seen.rows, Lists(starts, starts, None, 1, TILE_PX, TILE_PX), kernels)
    torch.autograd.backward(photometric_loss(image[0], torch.zeros_like(image[0]), 0.2, kernels))
