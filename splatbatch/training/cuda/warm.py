"""`python -m splatbatch.training.cuda.warm GROUP`: build some kernels ahead, and print how long that took, as JSON.

Triton compiles a kernel once for each kind of its arguments: for rows that 16 divides and others, for each type of
picture, each degree of the harmonics. These are all made here, small. Degrees below 3 throughout are left to the first
patch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import Parameter

from splatbatch.training.cuda import native
from splatbatch.training.cuda.native import library

KERNELS = (
    *("_blur_pair_across", "_compare", "_blur_slopes_across", "_derive", "_even"),
    *("_forward", "_backward", "_spread", "_adam", "_count", "_emit"),
)
"""Our kernels, as Triton names them in its cache."""
SIXTEEN_OR_NOT = (64, 60)
"""Widths: where rows begin at multiples of 16, a kernel may read four values at once."""
COEFFICIENTS = (0, 2, 4)
"""Of a tone: a gain alone, vignetting too, and a tilt."""
NUM = 60
SMALL_AND_LARGE_PX = ((200, 150), (4096, 2304))
"""Tiles that 16 bits can number, and more."""
CAPACITY = 1 << 12


def loss(dtype: torch.dtype, device: torch.device, widths: Sequence[int] = SIXTEEN_OR_NOT) -> None:
    """Compile the loss, its derivative, and SSIM, for photographs of bytes or, where masks are, of floats."""
    from splatbatch.training.cuda import photometric

    for width in widths:
        photo = torch.zeros(NUM, width, 3, dtype=dtype, device=device)
        render = torch.full((NUM, width, 3), 0.5, device=device, requires_grad=True)
        torch.autograd.backward(photometric.photometric_loss(render, photo))
        photometric.ssim(render.detach(), photo)


def evening(device: torch.device, widths: Sequence[int] = SIXTEEN_OR_NOT) -> None:
    """Compile what makes photographs even, and the loss against them."""
    from splatbatch.training.cuda import photometric

    for width, num_coefficients in product(widths, COEFFICIENTS):
        photo = torch.zeros(NUM, width, 3, dtype=torch.uint8, device=device)
        render = torch.full((NUM, width, 3), 0.5, device=device, requires_grad=True)
        tone = torch.ones(4 + num_coefficients, device=device)
        target = photometric.even(render, photo, tone, torch.eye(3, device=device))
        torch.autograd.backward(photometric.photometric_loss(render, target, as_taken=photo))


def colors(degree: int, device: torch.device, num: int = NUM) -> None:
    """Compile colours and their derivative, for a degree that a training goes through."""
    from splatbatch.training.cuda.view_colors import view_colors

    gaussians = {
        name: torch.zeros(num, *shape, device=device, requires_grad=True)
        for name, shape in {"means": (3,), "sh0": (1, 3), "shN": (15, 3)}.items()
    }
    radii = torch.ones(num, 2, dtype=torch.int32, device=device)
    viewmat = torch.eye(4, device=device)
    viewmat[2, 3] = 3.0
    torch.autograd.backward(view_colors(gaussians, viewmat, radii, degree).sum())


def optimizer(device: torch.device) -> None:
    """Compile Adam."""
    from splatbatch.training.cuda.adam import Adam

    parameter = Parameter(torch.zeros(NUM, device=device))
    parameter.grad = torch.ones_like(parameter)
    Adam(parameter, 0.01, 1e-15).step()


def lists(device: torch.device, num: int = NUM, sizes: Sequence[tuple[int, int]] = SMALL_AND_LARGE_PX) -> None:
    """Compile tile lists."""
    from splatbatch.training.cuda.tile_lists import Footprints, count_entries, tile_lists

    means2d, radii = torch.zeros(num, 2, device=device), torch.ones(num, 2, dtype=torch.int32, device=device)
    depths, conics = torch.ones(num, device=device), torch.ones(num, 3, device=device)
    for size in sizes:
        count_entries(means2d, radii, size)
        tile_lists(Footprints(means2d, radii, depths, conics, depths), size, CAPACITY)


def gsplat(device: torch.device) -> None:
    """Build gsplat's own kernels, with nvcc where no wheel has brought them, and use them once.

    Raises:
        RuntimeError: there is no CUDA toolkit to build them with.
    """
    from gsplat.cuda._backend import _C

    from splatbatch.training.rendering.rasterize import rasterize
    from splatbatch.training.rendering.view import RasterOptions, View

    if _C is None:
        raise RuntimeError("gsplat finds no CUDA toolkit to build its kernels with")
    shapes = {"means": (3,), "quats": (4,), "scales": (3,), "opacities": (), "sh0": (1, 3), "shN": (15, 3)}
    gaussians: dict[str, Tensor] = {
        name: torch.full((64, *shape), 0.1, device=device, requires_grad=True) for name, shape in shapes.items()
    }
    K = torch.tensor([[30.0, 0, 16], [0, 30, 16], [0, 0, 1]], device=device)
    viewmat = torch.eye(4, device=device)
    viewmat[2, 3] = 3.0
    rendering = rasterize(gaussians, View(viewmat, K, 32, 32), RasterOptions(fused=False))
    torch.autograd.backward(rendering.colors.sum())


def our_own(device: torch.device) -> None:
    """Build our kernels in CUDA C++, and use them once.

    Raises:
        RuntimeError: they cannot be built or used here.
    """
    del device
    if why := native.why_not_here():
        raise RuntimeError(why)


STAMP = "splatbatch-"
"""Begins the name of what says, in Triton's cache, that a group of kernels lies there."""
NATIVE = "native"
OF_BYTES, OF_FLOATS, EVENING, OF_DEGREE = "loss of bytes", "loss of floats", "evening", "colors {}"
OURS: dict[str, Callable[[torch.device], None]] = {
    **{f"{OF_BYTES}, {width} wide": partial(loss, torch.uint8, widths=[width]) for width in SIXTEEN_OR_NOT},
    **{f"{OF_FLOATS}, {width} wide": partial(loss, torch.float32, widths=[width]) for width in SIXTEEN_OR_NOT},
    EVENING: evening,
    "optimizer": optimizer,
    "tile lists": lists,
    **{OF_DEGREE.format(degree): partial(colors, degree) for degree in range(4)},
}
"""Our own kernels in groups that can be built by themselves: each in a process of its own, all at once."""
GROUPS: dict[str, Callable[[torch.device], None]] = {"gsplat": gsplat, NATIVE: our_own, **OURS}


def made(name: str, capability: tuple[int, int]) -> Path:
    """Return what is there once a group is compiled: a library, or a note that this Triton has compiled our sources."""
    import triton

    if name == NATIVE:
        return library.file_for(capability)
    hashed = hashlib.sha256(f"{triton.__version__} {capability} {name}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        hashed.update(path.read_bytes())
    return _cache() / f"{STAMP}{hashed.hexdigest()[:32]}"


def _cache() -> Path:
    home = Path(os.environ.get("TRITON_HOME") or Path.home())
    return Path(os.environ.get("TRITON_CACHE_DIR") or home / ".triton" / "cache")


def _note(name: str) -> None:
    """Tell trainings to come that they need not compile a group ahead."""
    if name in OURS:
        with contextlib.suppress(OSError):
            made(name, torch.cuda.get_device_capability()).touch()


def main(name: str) -> None:
    """Build a group; what goes wrong is told, not raised."""
    started, error = time.monotonic(), ""
    try:
        GROUPS[name](torch.device("cuda"))
        torch.cuda.synchronize()
        _note(name)
    except Exception as failure:  # noqa: BLE001 - compilers, drivers and packages fail in ways of their own
        error = f"{type(failure).__name__}: {(str(failure).strip().splitlines() or ['no reason given'])[-1]}"
    print(json.dumps({"group": name, "seconds": round(time.monotonic() - started, 1), "error": error}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
