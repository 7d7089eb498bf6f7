"""Build gsplat's CUDA kernels into its package, for the GPUs that TORCH_CUDA_ARCH_LIST names; no GPU is needed.

gsplat takes `gsplat.csrc` where it is there, and else compiles at its first use, with a CUDA toolkit that a container
of runtime libraries lacks.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from torch.utils.cpp_extension import load

NAME = "csrc"


def build(package: Path) -> Path:
    """Compile what lies in an installed gsplat; return the library beside its Python files."""
    cuda = package / "cuda"
    sources = [*sorted((cuda / "csrc").glob("*.cu")), *sorted((cuda / "csrc").glob("*.cpp")), cuda / "ext.cpp"]
    made = package / "build"
    made.mkdir(exist_ok=True)
    load(
        name=NAME,
        sources=[str(one) for one in sources],
        extra_cflags=["-O3", "-Wno-attributes"],
        extra_cuda_cflags=["-O3", "-use_fast_math"],  # as gsplat builds them itself
        extra_include_paths=[str(cuda / "include"), str(cuda / "csrc/third_party/glm")],
        build_directory=str(made),
        verbose=True,
    )
    library = package / f"{NAME}.so"
    shutil.copy(made / library.name, library)
    shutil.rmtree(made)
    return library


if __name__ == "__main__":
    if not os.environ.get("TORCH_CUDA_ARCH_LIST"):
        sys.exit("TORCH_CUDA_ARCH_LIST is not set: name the GPUs to build for, such as '8.0;8.6;8.9;9.0'")
    found = importlib.util.find_spec("gsplat")
    if found is None or found.origin is None:
        sys.exit("gsplat is not installed")
    sys.stdout.write(f"{build(Path(found.origin).parent)}\n")
