"""gsplat's rasteriser, for `training.kernels: gsplat` and for GPUs on which this package's kernels do not work."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from splatbatch.caches import extensions_folder
from splatbatch.errors import TrainerError
from splatbatch.training import cuda
from splatbatch.training.rendering.view import RasterOptions, RenderCamera, Rendering

REMEDY = "`splatbatch doctor` says what is missing; `splatbatch doctor --warm` builds kernels where a CUDA toolkit is"


def is_built() -> bool:
    """Return whether gsplat's CUDA extension is installed: in gsplat's wheel, or built by torch (gsplat 1.5.3).

    The extension is only looked for as a file, not loaded. False if gsplat is not installed and torch has built none.
    """
    spec = importlib.util.find_spec("gsplat")
    packages = (spec.submodule_search_locations or ()) if spec else ()
    if any(path for package in packages for path in Path(package).glob("csrc*.so")):
        return True
    cuda_version = str(torch.version.cuda or "")
    python = f"py{sys.version_info.major}{sys.version_info.minor}{getattr(sys, 'abiflags', '')}"
    build = f"{python}_cu{cuda_version.replace('.', '')}"
    root = extensions_folder()
    folder = root if "TORCH_EXTENSIONS_DIR" in os.environ else root / build
    return bool(cuda_version) and (folder / "gsplat_cuda" / "gsplat_cuda.so").is_file()


def build_gsplat() -> None:
    """Load gsplat's CUDA extension, built with nvcc where the wheel has none, and use it once, forward and backward.

    Raises:
        RuntimeError: there is no CUDA toolkit to build the extension with, or CUDA fails.
        ImportError: gsplat is not installed.
        TrainerError: the built extension is not where `is_built` looks.
    """
    from gsplat.cuda._backend import _C

    if _C is None:
        raise RuntimeError("gsplat finds no CUDA toolkit to build its kernels with: install one, with nvcc")
    shapes = {"means": (3,), "quats": (4,), "scales": (3,), "opacities": (), "sh0": (1, 3), "shN": (15, 3)}
    gaussians: dict[str, Tensor] = {
        name: torch.full((64, *shape), 0.1, device="cuda", requires_grad=True) for name, shape in shapes.items()
    }
    K = torch.tensor([[30.0, 0, 16], [0, 30, 16], [0, 0, 1]], device="cuda")
    viewmat = torch.eye(4, device="cuda")
    viewmat[2, 3] = 3.0
    rendering = rasterize(gaussians, RenderCamera(viewmat, K, 32, 32), RasterOptions(fused=False))
    torch.autograd.backward(rendering.colors.sum())
    torch.cuda.synchronize()


@cache
def _require(*, wanted: bool) -> None:
    if is_built():
        return
    why = "training.kernels: gsplat" if wanted else f"our GPU kernels do not work here ({cuda.why_not_here()})"
    raise TrainerError(f"no kernels for this GPU: {why}, and gsplat's CUDA extension is not built", hint=REMEDY)


def rasterize(gaussians: Mapping[str, Tensor], view: RenderCamera, options: RasterOptions) -> Rendering:
    """Render Gaussians on a GPU over black, with gsplat's kernels; differentiable in all six parameters.

    `gaussians` are the parameters before activation, by name.

    Raises:
        TrainerError: gsplat's CUDA extension is not built; a training never builds it.
    """
    _require(wanted=not options.fused)
    from gsplat import rasterization

    colors, alphas, info = rasterization(
        means=gaussians["means"],
        quats=gaussians["quats"],
        scales=gaussians["scales"].exp(),
        opacities=gaussians["opacities"].sigmoid(),
        colors=torch.cat((gaussians["sh0"], gaussians["shN"]), 1),
        viewmats=view.viewmat[None],
        Ks=view.K[None],
        width=view.width,
        height=view.height,
        near_plane=options.near_plane,
        far_plane=options.far_plane,
        sh_degree=options.sh_degree,
        packed=False,  # rows for unseen Gaussians too: packing saves memory, which a patch has, but is slower
        absgrad=options.absgrad,
        rasterize_mode="antialiased" if options.antialiased else "classic",
    )
    return Rendering(colors[0], alphas[0], info)
