"""The compiled kernels: built once by torch's own means, found again by what they were built from, called by ctypes.

The source needs no header of torch's: a build takes seconds, and every torch of the same CUDA can use it.
"""

from __future__ import annotations

import ctypes
import hashlib
import tempfile
from ctypes import POINTER, Structure, c_char_p, c_float, c_int, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from splatbatch import __version__
from splatbatch.caches import extensions_folder

SOURCE = Path(__file__).parent / "source"
WARP, PARTS, TILE_PX, ROW = 32, 8, 16, 12
"""As in gaussians.cuh and gradients.cuh: entries per slot, warps of a tile, its side, gradients per Gaussian."""
FLAGS = ("-O3", "--use_fast_math")


def _fields(pointers: str, floats: str = "", numbers: str = "") -> list[tuple[str, Any]]:
    kinds = ((pointers, c_void_p), (floats, c_float), (numbers, c_int))
    return [(name, kind) for names, kind in kinds for name in names.split()]


class Scene(Structure):
    """What is drawn: `struct Scene` of gaussians.cuh."""

    _fields_ = _fields(
        "means2d conics colors opacities offsets ids masks",
        numbers="num_entries num_tiles columns width height",
    )


class Drawn(Structure):
    """What forward makes: `struct Drawn` of forward.cuh."""

    _fields_ = _fields("colors alphas contributors num_batches")


class Gradients(Structure):
    """What backward is given and makes: `struct Gradients` of gradients.cuh."""

    _fields_ = _fields("colors alphas v_colors v_alphas contributors num_batches rows", numbers="has_absolute")


class Scenery(Structure):
    """Gaussians and a camera: `struct Scenery` of projection.cuh."""

    _fields_ = _fields(
        "means quats scales opacities sh0 shN viewmat K",
        "near_plane far_plane",
        "num num_higher num_used width height is_antialiased",
    )


class Projected(Structure):
    """What the camera sees: `struct Projected` of projection.cuh."""

    _fields_ = _fields("means2d conics opacities colors depths radii counts distances")


class Slopes(Structure):
    """What projection's backward is given and makes: `struct Slopes` of projection.cuh."""

    _fields_ = _fields(
        "v_means2d v_conics v_opacities v_colors radii colors v_means v_quats v_scales v_logits v_sh0 v_shN",
        numbers="means2d_stride conics_stride opacities_stride colors_stride",
    )


class Comparison(Structure):
    """A rendering and its photo: `struct Comparison` of loss.cuh."""

    _fields_ = [
        *_fields("render photo taken slopes sums upstream v_render"),
        ("weights", c_float * 11),
        *_fields("", floats="C1 C2 l1_share ssim_share clipped clipped_counts", numbers="width height photo_is_bytes"),
    ]


FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "blending_forward": (POINTER(Scene), POINTER(Drawn)),
    "blending_backward": (POINTER(Scene), POINTER(Gradients)),
    "loss_forward": (POINTER(Comparison),),
    "loss_backward": (POINTER(Comparison),),
    "projection_forward": (POINTER(Scenery), POINTER(Projected)),
    "projection_backward": (POINTER(Scenery), POINTER(Slopes)),
}
"""What they take, before the stream."""


def stream_of(tensor: Tensor) -> int:
    """Return the stream that kernels for a tensor are to run on."""
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else 0


def address(tensor: Tensor | None) -> int | None:
    """Return where a tensor lies; None, a null pointer, for none."""
    return None if tensor is None else tensor.data_ptr()


@dataclass(frozen=True)
class Library:
    """The functions of a compiled library."""

    file: ctypes.CDLL

    def __post_init__(self) -> None:
        for name, takes in FUNCTIONS.items():
            function = getattr(self.file, name)  # the same object each time, as indexing would not give
            function.argtypes, function.restype = [*takes, c_void_p], c_int
        self.file.native_error.argtypes, self.file.native_error.restype = [c_int], c_char_p

    def call(self, name: str, stream: int, *values: Structure) -> None:
        """Launch kernels on a stream.

        Raises:
            RuntimeError: CUDA refused them.
        """
        code = getattr(self.file, name)(*map(ctypes.byref, values), stream)
        if code:
            raise RuntimeError(f"{name}: {self.file.native_error(code).decode()}")


def num_slots(num_entries: int, num_tiles: int) -> int:
    """Return how many runs of up to 32 entries, each of one tile, there may be: see `slots` in gaussians.cuh."""
    return num_entries // WARP + num_tiles + 1


@cache
def compiled() -> Library:
    """Return the kernels for this GPU, compiled now if they have never been.

    Raises:
        OSError, RuntimeError, subprocess.CalledProcessError: there is no toolkit, or it fails.
    """
    return Library(ctypes.CDLL(str(built(torch.cuda.get_device_capability()))))


def is_built() -> bool:
    """Return whether the kernels for this GPU lie here, compiled."""
    return file_for(torch.cuda.get_device_capability()).is_file()


def built(capability: tuple[int, int]) -> Path:
    """Return the file of the kernels for GPUs of a compute capability, compiled now if it is not there: some seconds.

    Where several processes need them at once each compiles its own aside, and the last one stays: no process waits for
    another, or for the lock of one that was killed. For that GPU alone: TORCH_CUDA_ARCH_LIST, which may name others, is
    not asked. CUDA is not touched.

    Raises:
        OSError, RuntimeError, subprocess.CalledProcessError: there is no toolkit, or it fails.
    """
    file = file_for(capability)
    if file.exists():
        return file
    from torch.utils.cpp_extension import load

    file.parent.mkdir(parents=True, exist_ok=True)
    number = "{}{}".format(*capability)
    flags = [*FLAGS, f"-gencode=arch=compute_{number},code=sm_{number}"]
    sources = [str(SOURCE / "kernels.cu")]
    with tempfile.TemporaryDirectory(dir=file.parent) as aside:
        load(file.stem, sources, extra_cuda_cflags=flags, build_directory=aside, is_python_module=False)
        (Path(aside) / file.name).replace(file)
    return file


def file_for(capability: tuple[int, int]) -> Path:
    """Return where the kernels for GPUs of a compute capability lie, named after all that decides what is in them.

    That is where torch builds extensions, said here: to ask torch would import what takes longer than all else here.
    """
    digest = hashlib.sha256(repr((FLAGS, torch.version.cuda)).encode())
    for path in sorted(SOURCE.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    version = __version__.replace(".", "_")
    name = "splatbatch_native_{}_{}_sm_{}{}".format(version, digest.hexdigest()[:12], *capability)
    return extensions_folder() / name / f"{name}.so"
