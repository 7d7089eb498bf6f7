"""This package's kernels, loaded on the GPU of this process and launched through CUDA's driver API (libcuda)."""

from __future__ import annotations

import ctypes
from ctypes import Structure, addressof, byref, c_char_p, c_uint, c_void_p
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from splatbatch.training.cuda.compile import CompileError, Cubin, compile_all, cubin
from splatbatch.training.cuda.sources import kernels

TOO_OLD = (200, 209, 218, 222)
"""Error codes of CUDA's driver API by which a driver may say that it is too old for the machine code of a kernel.

Invalid image, no binary for this GPU, invalid PTX, unsupported PTX.
"""
NO_CONTEXT = 201
"""CUDA_ERROR_INVALID_CONTEXT: the error in a thread, as of autograd, that has not called CUDA's runtime yet."""


class Kernels(Protocol):
    """Interface to launch this package's kernels: on a GPU (`GpuKernels`), or a substitute in tests."""

    def launch(self, name: str, num: int, *arguments: Structure) -> None:
        """Launch a kernel with at least `num` threads, without waiting for its end; 0: nothing is launched.

        `arguments` are its structs, passed by value. An implementation may raise RuntimeError if the launch fails.
        """
        ...


class GpuKernels:
    """This package's kernels on the current GPU, in torch's primary context; they run on torch's current stream.

    All kernels are loaded at construction, so that no module is loaded while a CUDA graph is recorded.

    Raises:
        CompileError: the driver cannot be loaded, returns an error, or is too old for the machine code; or there is no
            machine code for this GPU, and none can be compiled.
        RuntimeError: torch finds no GPU or no NVIDIA driver.
        AssertionError: torch was built without CUDA.
    """

    def __init__(self) -> None:
        torch.cuda.current_stream().synchronize()  # opens the context
        capability = torch.cuda.get_device_capability()
        self._driver, self._context = _driver(), c_void_p()
        self._check("cuCtxGetCurrent", self._driver.cuCtxGetCurrent(byref(self._context)))
        self.unkept = ""
        """Reason why a compiled kernel could not be written to the cache; empty: all are cached, or from the wheel."""
        self._functions: dict[str, tuple[c_void_p, int]] = {}
        for program, made in compile_all(capability).items():
            self._load(program, made, capability)

    def launch(self, name: str, num: int, *arguments: Structure) -> None:
        """Launch a kernel with at least `num` threads, without waiting for its end; 0: nothing is launched.

        `arguments` are its structs, passed by value.

        Raises:
            KeyError: there is no kernel of this name.
            RuntimeError: the driver returned an error.
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
            said = f"the NVIDIA driver is too old for kernels of CUDA {torch.version.cuda} ({self._named(code)})"
            raise CompileError(f"{said}: update the driver, or install a torch for its CUDA, see pytorch.org")
        self._check("cuModuleLoadData", code)
        for name, kernel in kernels().items():
            if kernel.program == program:
                function = c_void_p()
                code = self._driver.cuModuleGetFunction(byref(function), module, c_char_p(name.encode()))
                self._check(name, code)
                self._functions[name] = function, kernel.threads
        return None

    def _check(self, what: str, code: int) -> None:
        if code:
            raise CompileError(f"{what}: {self._named(code)}")

    def _named(self, code: int) -> str:
        text = c_char_p()
        self._driver.cuGetErrorString(code, byref(text))
        return text.value.decode() if text.value else f"error {code}"


def open_context() -> None:
    """Open torch's context on the first visible GPU; unlike in torch's own call, other Python threads run meanwhile.

    Errors of the driver are left to the first use.

    Raises:
        CompileError: there is no driver.
    """
    driver = _driver()
    driver.cuInit(0)
    driver.cuDevicePrimaryCtxRetain(byref(c_void_p()), 0)


@cache
def _driver() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CompileError(f"the NVIDIA driver cannot be loaded ({error}): install it again") from None
    library.cuLaunchKernel.argtypes = [c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p]
    return library


def address(tensor: Tensor | None) -> int | None:
    """Return the address of a tensor's data for a kernel; None, which is a null pointer there, for no tensor."""
    return None if tensor is None else tensor.data_ptr()
