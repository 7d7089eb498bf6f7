"""Our CUDA C++ kernels compiled for the CPU by g++, their lanes run as fibres: see cuda_on_cpu.h."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from splatbatch.training.cuda.native.library import SOURCE, Library

COMPILER = shutil.which("g++")
FLAGS = (
    *("-std=c++17", "-O2", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"),
    *("-fvisibility=hidden", "-U_FORTIFY_SOURCE", "-Wno-unknown-pragmas"),
)


@cache
def emulated(folder: Path) -> Library:
    """Return the kernels, built into a folder unless they are there."""
    assert COMPILER is not None
    file = folder / "native.so"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f"{file.name}.{os.getpid()}"
        source, include = str(SOURCE / "kernels.cu"), str(Path(__file__).parent)
        command = [COMPILER, "-x", "c++", *FLAGS, "-I", include, source, "-o", str(aside)]
        subprocess.run(command, check=True)
        aside.replace(file)
    return Library(ctypes.CDLL(str(file)))


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Return where all processes of a test run build them."""
    own = factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "emulated"


def in_order(library: Library, order: int) -> None:
    """Run the lanes of a warp in rising (1) or falling (-1) order."""
    library.file["emulated_order"](order)
