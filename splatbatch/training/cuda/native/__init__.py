"""Kernels of our own in CUDA C++, where they can be built: projection with colours, blending, loss, and back.

Where they cannot, gsplat's are used, and Triton's for the loss. On p1 of caliterra with 200,000 Gaussians (H200,
995 x 748) a recorded step takes 727 us with ours and 1,412 with those; blending itself, both ways, 287 and 865.
"""

from __future__ import annotations

from functools import cache

import torch

from splatbatch.training.cuda.native.blend import Lists, blend
from splatbatch.training.cuda.native.library import TILE_PX, Library, built, compiled, is_built
from splatbatch.training.cuda.native.loss import photometric_loss
from splatbatch.training.cuda.native.project import NAMES, Shot, Sight, project

__all__ = [
    "Library",
    "Lists",
    "Shot",
    "Sight",
    "blend",
    "built",
    "chosen",
    "is_built",
    "photometric_loss",
    "project",
    "why_not_here",
]


def chosen() -> Library | None:
    """Return our kernels; None where gsplat's are to be used."""
    return None if why_not_here() else compiled()


@cache
def why_not_here() -> str:
    """Return why our kernels cannot be used on this GPU; "" if they can. Builds them where they have never been.

    Must be asked once before a step is recorded as a CUDA graph.
    """
    try:
        with torch.inference_mode(False), torch.enable_grad():
            _try(compiled())
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - no toolkit, another compiler, a new architecture: gsplat's are there
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no reason given'])[0]}"
    return ""


def _try(library: Library) -> None:
    """See one Gaussian, blend it, compare that, and back."""
    shapes = ((1, 3), (1, 4), (1, 3), (1,), (1, 1, 3), (1, 0, 3))
    values = (torch.full(shape, 0.5, device="cuda", requires_grad=True) for shape in shapes)
    camera = torch.eye(4, device="cuda")
    shot = Shot(camera, camera[:3, :3].contiguous(), TILE_PX, TILE_PX, 0, 0.01, 1e10, antialiased=False)
    sight = project(dict(zip(NAMES, values, strict=True)), shot, library)
    starts = torch.zeros(1, dtype=torch.int32, device="cuda")
    image, _ = blend(sight.footprints, Lists(starts, starts, None, 1, TILE_PX, TILE_PX), library)
    torch.autograd.backward(photometric_loss(image[0], (torch.zeros_like(image[0]), None), 0.2, library))
