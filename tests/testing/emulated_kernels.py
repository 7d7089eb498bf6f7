"""Our kernels compiled for the CPU by g++, their lanes run as fibres: see cuda_on_cpu.h."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from ctypes import Structure, addressof, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from splatbatch.training.cuda.compile import PROGRAMS, SOURCE
from splatbatch.training.cuda.sources import kernels

COMPILER = shutil.which("g++")
HERE = Path(__file__).parent
FLAGS = (
    *("-std=c++17", "-O2", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"),
    *("-fvisibility=hidden", "-U_FORTIFY_SOURCE", "-Wno-unknown-pragmas"),
)


@dataclass(frozen=True)
class OnCpu:
    """The kernels, a library for each program."""

    programs: dict[str, ctypes.CDLL]

    def launch(self, name: str, num: int, *arguments: Structure) -> None:
        """Run a kernel with at least `num` threads, one after the other."""
        kernel = kernels()[name]
        places = (c_void_p * len(arguments))(*map(addressof, arguments))
        self.programs[kernel.program][f"start_{name}"](-(-num // kernel.threads), kernel.threads, places)

    def in_order(self, order: int) -> None:
        """Run the lanes of a warp in rising (1) or falling (-1) order."""
        for library in self.programs.values():
            library["emulated_order"](order)


@cache
def emulated(folder: Path) -> OnCpu:
    """Return the kernels, built into a folder unless they are there."""
    return OnCpu({program: _built(program, folder) for program in PROGRAMS})


def _built(program: str, folder: Path) -> ctypes.CDLL:
    assert COMPILER is not None
    file = folder / f"{program}.so"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f"{file.name}.{os.getpid()}"
        started = "".join(f"STARTED_BY_TESTS({name})\n" for name, one in kernels().items() if one.program == program)
        command = [COMPILER, "-x", "c++", *FLAGS, "-I", str(HERE), "-I", str(SOURCE), "-"]
        source = f'#include "{program}.cu"\n{started}'
        subprocess.run([*command, "-o", str(aside)], input=source, text=True, check=True)
        aside.replace(file)
    return ctypes.CDLL(str(file))


def kept_folder() -> Path:
    """Return where these kernels lie once they are built: another place for other sources, compilers or processors."""
    version = subprocess.run([str(COMPILER), "--version"], capture_output=True, text=True, check=True).stdout
    files = [HERE / "cuda_on_cpu.h", *sorted(SOURCE.iterdir())]
    content = [path.read_bytes() for path in files if path.is_file()]
    processor = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    text = b"\0".join(
        [
            version.encode(),
            processor.encode(),
            *(flag.encode() for flag in FLAGS),
            Path(__file__).read_bytes(),
            *content,
        ]
    )
    return HERE.parents[1] / "build" / "emulated" / hashlib.sha256(text).hexdigest()[:16]
