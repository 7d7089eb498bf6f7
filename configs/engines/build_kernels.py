"""Build CUDA kernels for the GPUs that TORCH_CUDA_ARCH_LIST names; no GPU is needed.

    python build_kernels.py gsplat         # into its package: it takes `gsplat.csrc` where that is there
    python build_kernels.py splatbatch     # into TORCH_EXTENSIONS_DIR, where a training looks for them

Else each is compiled at its first use, with a CUDA toolkit that a container of runtime libraries lacks.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from torch.utils.cpp_extension import load

NAME = "csrc"


def build_gsplat(package: Path) -> Path:
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


def build_ours(architectures: str) -> list[Path]:
    """Compile splatbatch's kernels; return a library for each GPU that is named, as torch names them: "8.0;9.0+PTX"."""
    from splatbatch.training.cuda.native.library import built

    numbers = (one.removesuffix("+PTX").split(".") for one in architectures.replace(" ", ";").split(";"))
    return [built((int(major), int(minor))) for major, minor in numbers]


def main(wanted: str) -> None:
    """Build the kernels of one package, and print where they lie."""
    architectures = os.environ.get("TORCH_CUDA_ARCH_LIST")
    if not architectures:
        sys.exit("TORCH_CUDA_ARCH_LIST is not set: name the GPUs to build for, such as '8.0;8.6;8.9;9.0'")
    found = importlib.util.find_spec(wanted)
    if found is None or found.origin is None:
        sys.exit(f"{wanted} is not installed")
    made = [build_gsplat(Path(found.origin).parent)] if wanted == "gsplat" else build_ours(architectures)
    sys.stdout.writelines(f"{path}\n" for path in made)


if __name__ == "__main__":
    if sys.argv[1:] not in (["gsplat"], ["splatbatch"]):
        sys.exit(__doc__)
    main(sys.argv[1])
