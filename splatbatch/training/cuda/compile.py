"""This package's CUDA kernels, compiled by NVRTC (NVIDIA's run-time compiler), which torch's wheels bring.

No CUDA toolkit, compiler or headers are needed. The wheel of splatbatch has machine code for most GPUs; other code is
compiled in seconds and kept in the user's cache. NVRTC is called by ctypes: cuda-bindings would do as well, but is
missing beside torch's build for CPUs, which the tests use. This module does not import torch, so that a wheel can be
built without torch.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import lzma
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p, create_string_buffer
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from splatbatch.caches import oldest, own_cache
from splatbatch.files import aside
from splatbatch.processes import num_cores

SOURCE = Path(__file__).parent / "source"
SHIPPED = Path(__file__).parent / "compiled"
"""Folder of the machine code in a wheel; absent in a clone of the repository."""
FAST = ("--use_fast_math",)
LOSS = ("compare_bytes", "compare_floats", "compare_backward_bytes", "compare_backward_floats")
PROGRAMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("blend", "project", "even", *LOSS), FAST),
    **dict.fromkeys(("lists", "step"), ()),
}
"""Programs, each a file `source/NAME.cu` with one or more kernels, and their flags for NVRTC, which are added."""
ARCHITECTURES = (75, 80, 86, 90, 100, 120)
"""Architectures for which a wheel has machine code, as 10 x major + minor of the compute capability.

Machine code runs on later GPUs of the same major version, too (CUDA C++ Programming Guide, binary compatibility): 8.6
serves 8.9, 10.0 serves 10.3, 12.0 serves 12.1.
"""
LEAST_CAPABILITY = (7, 0)
"""Least compute capability (Volta): threads of a warp must be able to wait for each other."""
DIGEST_BYTES = 32
MOST_KEPT = 99
"""Largest number of files in the cache: nine programs for eleven NVRTC versions or architectures; the oldest go."""


class CompileError(RuntimeError):
    """Raised if kernels cannot be compiled or loaded for a GPU; the message says why."""


@dataclass(frozen=True)
class Cubin:
    """Machine code of a program, and whether it is from the wheel."""

    content: bytes
    """The machine code, an ELF file."""
    is_shipped: bool = False
    """Whether the machine code is from the wheel of splatbatch; else it was compiled on this machine."""
    unkept: str = ""
    """Reason why a compiled program could not be written to the cache; empty: it is there, or is from the wheel."""


def cubin(program: str, capability: tuple[int, int], *, shipped: bool = True) -> Cubin:
    """Return the machine code of a program for GPUs of a compute capability, from the wheel, the cache or NVRTC.

    Compiled code is written to the cache; a failed write is no error, see `Cubin.unkept`. Several processes may do this
    at once: each writes a whole file, and the last file stays.

    Args:
        program: one of `PROGRAMS`.
        capability: compute capability of the GPU, major and minor.
        shipped: whether to use the wheel's machine code; an old driver may refuse that of a newer NVRTC.

    Raises:
        CompileError: the GPU is too old; or code must be compiled, and there is no NVRTC, it does not know this GPU, or
            it fails.
    """
    found = _shipped(program, capability) if shipped else None
    if found is not None:
        return Cubin(found, is_shipped=True)
    if capability < LEAST_CAPABILITY:
        raise CompileError(
            f"GPU too old: compute capability {_spelled(capability)} is below {_spelled(LEAST_CAPABILITY)}"
        )
    compiler = nvrtc()
    architecture = compiler.architecture_for(capability)
    path = _kept_at(program, architecture, compiler)
    if (kept := _read(path)) is not None:
        return Cubin(kept)
    content = compiler.compile(program, architecture)
    return Cubin(content, unkept=_keep(path, content))


def lacking(capability: tuple[int, int]) -> tuple[str, ...]:
    """Return the programs that must be compiled for a GPU of a compute capability, in the order of `PROGRAMS`.

    Those are all that neither the wheel nor the cache has; empty if there are none. Nothing is compiled.

    Raises:
        CompileError: the wheel lacks a program, and there is no NVRTC, or none that knows this GPU.
    """
    wanted = [program for program in PROGRAMS if _shipped(program, capability) is None]
    if not wanted:
        return ()
    compiler = nvrtc()
    architecture = compiler.architecture_for(capability)
    return tuple(one for one in wanted if _read(_kept_at(one, architecture, compiler)) is None)


@cache
def compile_all(capability: tuple[int, int]) -> dict[str, Cubin]:
    """Return the machine code of all programs, by name, for a GPU of a compute capability.

    Missing programs are compiled in parallel, one thread each. The result is cached in this process.

    Raises:
        CompileError: the GPU is too old; or a program must be compiled, and there is no NVRTC, it does not know this
            GPU, or it fails.
    """
    with ThreadPoolExecutor(len(PROGRAMS)) as pool:
        found = {program: pool.submit(cubin, program, capability) for program in PROGRAMS}
        return {program: one.result() for program, one in found.items()}


def ship(folder: Path) -> None:
    """Compile all programs for all of `ARCHITECTURES` into a folder, the wheel's `compiled/`; needs no GPU.

    The folder is made if missing, and its files are removed first.

    Raises:
        CompileError: there is no NVRTC, it is too old for an architecture, or it fails.
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    compiler = nvrtc()

    for old in folder.iterdir():
        old.unlink()

    def one(program: str, architecture: int) -> None:
        content = compiler.compile(program, architecture)
        (folder / f"{_name(program, architecture)}.xz").write_bytes(lzma.compress(content))

    with ThreadPoolExecutor(num_cores()) as pool:
        for done in [pool.submit(one, program, number) for program in PROGRAMS for number in ARCHITECTURES]:
            done.result()


def _shipped(program: str, capability: tuple[int, int]) -> bytes | None:
    """Return the wheel's machine code for a GPU; None if there is none, or it is of other sources."""
    architecture = best_of(ARCHITECTURES, capability)
    if architecture is None:
        return None
    try:
        return lzma.decompress((SHIPPED / f"{_name(program, architecture)}.xz").read_bytes())
    except (OSError, lzma.LZMAError):
        return None


def best_of(architectures: tuple[int, ...], capability: tuple[int, int]) -> int | None:
    """Return the highest architecture, such as 86, whose machine code runs on a GPU of a compute capability.

    None if no architecture of the list does.
    """
    own = 10 * capability[0] + capability[1]
    return max((one for one in architectures if one // 10 == capability[0] and one <= own), default=None)


@cache
def _key(program: str) -> str:
    """Return a hash of a program's sources and flags."""
    digest = hashlib.sha256(repr(PROGRAMS[program]).encode())
    for path in (SOURCE / f"{program}.cu", *sorted(SOURCE.glob("*.cuh"))):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _name(program: str, architecture: int) -> str:
    return f"{program}.{_key(program)}.sm_{architecture}"


def _kept_at(program: str, architecture: int, compiler: Nvrtc) -> Path:
    version = "{}.{}".format(*compiler.version)
    return own_cache() / "kernels" / f"{_name(program, architecture)}.nvrtc_{version}"


def _read(path: Path) -> bytes | None:
    """Return a program from the cache; None if the file is missing or its hash is wrong."""
    try:
        kept = path.read_bytes()
    except OSError:
        return None
    content = kept[DIGEST_BYTES:]
    return content if hashlib.sha256(content).digest() == kept[:DIGEST_BYTES] else None


def _keep(path: Path, content: bytes) -> str:
    """Write a program to the cache, and remove the oldest ones if there are too many; return why that failed, or ""."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside(path) as written:
            written.write_bytes(hashlib.sha256(content).digest() + content)
    except OSError as error:
        return f"{path.parent}: {error.strerror or error}"
    with suppress(OSError):  # another process may remove them, too
        for old in oldest(path.parent, MOST_KEPT):
            old.unlink(missing_ok=True)
    return ""


class Nvrtc:
    """NVIDIA's run-time compiler, called by ctypes (docs.nvidia.com/cuda/nvrtc).

    `version` is that of the library, major and minor; `architectures` are all that it compiles for, ascending. The
    constructor takes the loaded library, and raises CompileError if one of its functions fails.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.nvrtcGetErrorString.restype = c_char_p
        library.nvrtcGetErrorString.argtypes = [c_int]
        major, minor, num = c_int(), c_int(), c_int()
        self._call("nvrtcVersion", byref(major), byref(minor))
        self._call("nvrtcGetNumSupportedArchs", byref(num))
        numbers = (c_int * num.value)()
        self._call("nvrtcGetSupportedArchs", numbers)
        self.version = major.value, minor.value
        self.architectures = tuple(sorted(numbers))

    def architecture_for(self, capability: tuple[int, int]) -> int:
        """Return the highest architecture of this NVRTC, such as 90, whose machine code runs on a GPU of a capability.

        Raises:
            CompileError: there is no such architecture; the message says whether an older or a newer torch is needed.
        """
        architecture = best_of(self.architectures, capability)
        if architecture is None:
            least, most = (f"{one // 10}.{one % 10}" for one in (self.architectures[0], self.architectures[-1]))
            other = "an older" if capability < (self.architectures[0] // 10, self.architectures[0] % 10) else "a newer"
            said = "torch's compiler NVRTC {}.{} serves GPUs of capability {} to {}".format(*self.version, least, most)
            raise CompileError(f"{said}, this GPU has {_spelled(capability)}: install {other} torch, see pytorch.org")
        return architecture

    def compile(self, program: str, architecture: int) -> bytes:
        """Return the machine code of a program of `PROGRAMS` for an architecture, such as 90; releases the GIL.

        Raises:
            CompileError: the compiler refuses the program or the architecture.
        """
        headers = sorted(SOURCE.glob("*.cuh"))
        texts = (c_char_p * len(headers))(*(path.read_bytes() for path in headers))
        names = (c_char_p * len(headers))(*(path.name.encode() for path in headers))
        options = [f"--gpu-architecture=sm_{architecture}", "--std=c++17", *PROGRAMS[program]]
        given = (c_char_p * len(options))(*(option.encode() for option in options))
        handle, size = c_void_p(), c_size_t()
        source = (SOURCE / f"{program}.cu").read_bytes()
        name = f"{program}.cu".encode()
        self._call("nvrtcCreateProgram", byref(handle), c_char_p(source), name, len(headers), texts, names)
        try:
            code = self._library.nvrtcCompileProgram(handle, len(options), given)
            if code:
                raise CompileError(f"torch's compiler NVRTC cannot compile {program}.cu: {self._log(handle)}")
            self._call("nvrtcGetCUBINSize", handle, byref(size))
            content = create_string_buffer(size.value)
            self._call("nvrtcGetCUBIN", handle, content)
        finally:
            self._library.nvrtcDestroyProgram(byref(handle))
        return content.raw

    def _log(self, handle: c_void_p) -> str:
        size = c_size_t()
        self._call("nvrtcGetProgramLogSize", handle, byref(size))
        text = create_string_buffer(size.value)
        self._call("nvrtcGetProgramLog", handle, text)
        lines = text.value.decode(errors="replace").strip().splitlines()
        return next((line for line in lines if "error" in line), "no reason given")

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CompileError(f"{name}: {self._library.nvrtcGetErrorString(code).decode()}")


@cache
def nvrtc() -> Nvrtc:
    """Return the NVRTC of torch's wheels, else one installed on the system; loaded once per process.

    Raises:
        CompileError: no NVRTC can be loaded, or one of its functions fails.
    """
    for name in _candidates():
        try:
            for builtins in sorted(Path(name).parent.glob("libnvrtc-builtins.so*")):
                ctypes.CDLL(str(builtins))  # NVRTC opens it by name without a path, which works once it is loaded
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.nvrtcCompileProgram.argtypes = [c_void_p, c_int, POINTER(c_char_p)]
        library.nvrtcDestroyProgram.argtypes = [POINTER(c_void_p)]
        return Nvrtc(library)
    raise CompileError("NVRTC, a compiler for GPUs, is missing: torch's CUDA wheels bring it, see pytorch.org")


def _candidates() -> Iterator[str]:
    """Yield paths of NVRTC libraries to try; first those for the CUDA version of torch, then by name, descending."""
    build = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
    wanted = f".so.{build.partition('.')[0]}" if build else ""
    found = [path for folder in _folders() for path in folder.glob("libnvrtc*.so*") if _is_nvrtc(path.name)]
    found.sort(key=lambda path: (bool(wanted) and path.name.endswith(wanted), path.name), reverse=True)
    yield from map(str, found)
    yield from sorted(("libnvrtc.so.13", "libnvrtc.so.12"), key=lambda name: not (wanted and name.endswith(wanted)))
    yield "/usr/local/cuda/lib64/libnvrtc.so"


def _is_nvrtc(name: str) -> bool:
    return re.fullmatch(r"libnvrtc(-[0-9a-f]+)?\.so(\.[\d.]+)?", name) is not None


def _folders() -> Iterator[Path]:
    """Yield the folders in which wheels have NVRTC: NVIDIA's packages, and torch's own folder."""
    for package, below in (("nvidia", "*/lib"), ("torch", "lib")):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            yield from Path(folder).glob(below)


def _spelled(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
