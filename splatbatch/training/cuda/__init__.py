"""Our own kernels for NVIDIA GPUs, written in Triton; with them a step never waits for the GPU."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from splatbatch.config import Training


def serves(tensor: Tensor, training: Training) -> bool:
    """Return whether these kernels are to work on a tensor: on a GPU that they can, unless `kernels` says gsplat."""
    return tensor.is_cuda and training.kernels == "auto" and not why_not_here()


@cache
def why_not_here() -> str:
    """Return why these kernels cannot run on this GPU, as on one that Triton does not know yet; "" if they can."""
    try:
        from splatbatch.training.cuda.photometric import photometric_loss

        with torch.inference_mode(False), torch.enable_grad():  # the first to ask may be an evaluation
            photo = torch.zeros(16, 16, 3, dtype=torch.uint8, device="cuda")
            render = torch.full((16, 16, 3), 0.5, device="cuda", requires_grad=True)
            photometric_loss(render, photo).backward()
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - no compiler, no Triton, a new architecture: there is a slower way
        return (
            f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason given'}"
        )
    return ""
