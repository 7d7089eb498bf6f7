"""Our kernels loaded on the GPU of this process and started from Python, by CUDA's driver alone (libcuda)."""

from __future__ import annotations

import ctypes
from ctypes import Structure, addressof, byref, c_char_p, c_float, c_int, c_longlong, c_uint, c_void_p
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from splatbatch.training.cuda.compile import CompileError, Cubin, compile_all, cubin

WARP, PARTS, TILE_PX, ROW = 32, 8, 16, 12
"""As in gaussians.cuh and gradients.cuh: entries per slot, warps of a tile, its side, gradients per Gaussian."""
TOO_OLD = (200, 209, 218, 222)
"""Invalid image, no binary for this GPU, invalid PTX, unsupported PTX: a driver may be older than NVRTC."""
NO_CONTEXT = 201
"""CUDA_ERROR_INVALID_CONTEXT: a thread, as autograd has, that has not called CUDA's runtime yet."""
KERNELS: dict[str, tuple[str, int]] = {
    "blend": ("blend", 256),
    "blend_to_learn": ("blend", 256),
    "blend_backward": ("blend", 128),
    "blend_backward_absolute": ("blend", 128),
    "project": ("project", 128),
    "project_backward": ("project", 128),
    "compare_bytes": ("compare_bytes", 128),
    "compare_floats": ("compare_floats", 128),
    "compare_backward_bytes": ("compare_backward_bytes", 128),
    "compare_backward_floats": ("compare_backward_floats", 128),
    "even": ("even", 256),
    "emit_short": ("lists", 256),
    "emit_int": ("lists", 256),
    "adam": ("step", 256),
    "explore": ("step", 256),
}
"""Of each kernel its program, and the threads of a block, as its source has them."""


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

    _fields_ = _fields("colors alphas v_colors v_alphas contributors num_batches rows")


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


class Entries(Structure):
    """The entries of tile lists: `struct Entries` of lists.cu."""

    _fields_ = _fields("means2d radii conics opacities order ends tiles ids", numbers="num capacity columns rows")


class Comparison(Structure):
    """A rendering and its photo: `struct Comparison` of loss.cuh."""

    _fields_ = [
        *_fields("render photo taken slopes sums upstream v_render"),
        ("weights", c_float * 11),
        *_fields("", floats="C1 C2 l1_share ssim_share clipped clipped_counts", numbers="width height"),
    ]


class Evening(Structure):
    """A photograph to be evened: `struct Evening` of even.cu."""

    _fields_ = _fields("render photo tone K target", "clipped clipped_counts", "width height num_coefficients")


class Parameter(Structure):
    """What Adam moves: `struct Parameter` of step.cu."""

    _fields_ = [
        *_fields("values gradients means squares steps rate"),
        ("num", c_longlong),
        *_fields("", "beta1 beta2 log_beta1 log_beta2 eps"),
    ]


class Exploration(Structure):
    """What mcmc's noise moves: `struct Exploration` of step.cu."""

    _fields_ = _fields("means quats scales opacities noise strength", "steepness transparent", "num")


ARGUMENTS: dict[str, tuple[type[Structure], ...]] = {
    **dict.fromkeys(("blend", "blend_to_learn"), (Scene, Drawn)),
    **dict.fromkeys(("blend_backward", "blend_backward_absolute"), (Scene, Gradients)),
    "project": (Scenery, Projected),
    "project_backward": (Scenery, Slopes),
    **{name: (Comparison,) for name in KERNELS if name.startswith("compare")},
    "even": (Evening,),
    **dict.fromkeys(("emit_short", "emit_int"), (Entries,)),
    "adam": (Parameter,),
    "explore": (Exploration,),
}
"""What each kernel takes, by value."""


class Kernels(Protocol):
    """Our kernels, where they can be started."""

    def launch(self, name: str, num: int, *arguments: Structure) -> None:
        """Start a kernel with at least `num` threads; none if that is 0. Nothing here waits for it."""
        ...


class OnGpu:
    """Our kernels on the current GPU, in torch's primary context; they run on torch's current stream.

    All programs are loaded at once, before any step is recorded as a CUDA graph.

    Raises:
        CompileError: they are not here for this GPU, and cannot be compiled; or its driver is too old for them.
    """

    def __init__(self) -> None:
        torch.cuda.current_stream().synchronize()  # opens the context
        capability = torch.cuda.get_device_capability()
        self._driver, self._context = _driver(), c_void_p()
        self._check("cuCtxGetCurrent", self._driver.cuCtxGetCurrent(byref(self._context)))
        self.unkept = ""
        """Why what was compiled could not be kept for the next process."""
        self._functions: dict[str, tuple[c_void_p, int]] = {}
        for program, made in compile_all(capability).items():
            self._load(program, made, capability)

    def launch(self, name: str, num: int, *arguments: Structure) -> None:
        """Start a kernel with at least `num` threads; none if that is 0. Nothing here waits for it.

        Raises:
            RuntimeError: CUDA refused it.
        """
        if num == 0:
            return
        function, threads = self._functions[name]
        places = (c_void_p * len(arguments))(*map(addressof, arguments))
        stream = c_void_p(torch.cuda.current_stream().cuda_stream)
        size = (-(-num // threads), 1, 1, threads, 1, 1, 0)
        code = self._driver.cuLaunchKernel(function, *size, stream, places, None)
        if code == NO_CONTEXT:
            self._driver.cuCtxSetCurrent(self._context)
            code = self._driver.cuLaunchKernel(function, *size, stream, places, None)
        if code:
            raise RuntimeError(f"CUDA error: {name}: {self._named(code)}")

    def _load(self, program: str, made: Cubin, capability: tuple[int, int]) -> None:
        self.unkept = self.unkept or made.unkept
        module = c_void_p()
        code = self._driver.cuModuleLoadData(byref(module), c_char_p(made.content))
        if code in TOO_OLD and made.is_shipped:  # made by a newer NVRTC than torch's
            return self._load(program, cubin(program, capability, shipped=False), capability)
        if code in TOO_OLD:
            said = f"the driver does not load what NVRTC of CUDA {torch.version.cuda} has made ({self._named(code)})"
            raise CompileError(f"{said}: update it, or install a torch for the driver's CUDA, see pytorch.org")
        self._check("cuModuleLoadData", code)
        for name, (of, threads) in KERNELS.items():
            if of == program:
                function = c_void_p()
                code = self._driver.cuModuleGetFunction(byref(function), module, c_char_p(name.encode()))
                self._check(name, code)
                self._functions[name] = function, threads
        return None

    def _check(self, what: str, code: int) -> None:
        if code:
            raise CompileError(f"{what}: {self._named(code)}")

    def _named(self, code: int) -> str:
        text = c_char_p()
        self._driver.cuGetErrorString(code, byref(text))
        return text.value.decode() if text.value else f"error {code}"


@cache
def _driver() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CompileError(f"no NVIDIA driver: {error}") from None
    library.cuLaunchKernel.argtypes = [c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p]
    return library


def address(tensor: Tensor | None) -> int | None:
    """Return where a tensor lies; None, a null pointer, for none."""
    return None if tensor is None else tensor.data_ptr()


def num_slots(num_entries: int, num_tiles: int) -> int:
    """Return how many runs of up to 32 entries, each of one tile, there may be: see `slots` in gaussians.cuh."""
    return num_entries // WARP + num_tiles + 1
