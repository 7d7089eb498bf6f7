"""Our CUDA C++ kernels compiled for the CPU by g++, their lanes run as fibres: see cuda_on_cpu.h."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from functools import cache
from pathlib import Path

from splatbatch.training.cuda.native.library import SOURCE, Library

COMPILER = shutil.which("g++")
FLAGS = ("-std=c++17", "-O2", "-march=native", "-ffp-contract=off", "-shared", "-fPIC")
APART = ("-fvisibility=hidden", "-fno-gnu-unique", "-U_FORTIFY_SOURCE", "-Wno-unknown-pragmas")
"""Libraries of several variants must not share what they call by one name."""


@cache
def emulated(folder: Path, *defines: str) -> Library:
    """Return the kernels, built with such defines into a folder."""
    assert COMPILER is not None
    file = folder / f"blending{'-'.join(('', *defines)).replace('=', '')}.so"
    include = ("-I", str(Path(__file__).parent), *(f"-D{define}" for define in defines))
    command = [COMPILER, "-x", "c++", *FLAGS, *APART, *include, str(SOURCE / "kernels.cu"), "-o", str(file)]
    subprocess.run(command, check=True)
    return Library(ctypes.CDLL(str(file)))


def in_order(library: Library, order: int) -> None:
    """Run the lanes of a warp in rising (1) or falling (-1) order."""
    library.file["emulated_order"](order)
