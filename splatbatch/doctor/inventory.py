"""Gathers facts about this machine and a batch in milliseconds, without torch and without starting a process."""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from splatbatch import __version__
from splatbatch.caches import extensions_folder
from splatbatch.config import Config, Recipe
from splatbatch.config.trainers.programs import OUR_TRAINER
from splatbatch.doctor import checks
from splatbatch.files import MIB, SHARED_MEMORY, free_mib, read_json
from splatbatch.machine import gpu
from splatbatch.machine.slots import is_on_cpu
from splatbatch.scene.memory_estimate import MemoryEstimate
from splatbatch.trainers.availability import missing

PACKAGES = ("torch", "gsplat", "pycolmap", "numpy")
COMPILERS = frozenset({"nvcc", "cicc", "ptxas", "cc1plus", "ninja", "clang++", "g++", "c++"})
CUDA_FOLDER = Path("/usr/local/cuda")


def machine() -> checks.Machine:
    """Return the facts about this machine, without versions of packages."""
    return checks.Machine(
        presence=gpu.presence(),
        driver=gpu.driver_version(),
        driver_cuda=gpu.cuda_version(),
        torch=torch_build(),
        shm_mib=_shared_memory(),
        open_files=_open_files(),
    )


def versions() -> Mapping[str, str]:
    """Return the versions of splatbatch, Python, the main packages and the optional ones that are installed."""
    found = {"splatbatch": __version__, "Python": platform.python_version()}
    for name in (*PACKAGES, *(package for package, _ in checks.EXTRAS.values())):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def torch_build() -> checks.TorchBuild | None:
    """Return the installed torch without importing it; None if there is none or its version cannot be read."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        return checks.parse_build(Path(spec.origin).with_name("version.py").read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError):
        return None


def job(config: Config, recipes: Mapping[str, Recipe], footprints: Mapping[str, MemoryEstimate]) -> checks.MachineNeeds:
    """Return what a batch needs of this machine.

    Args:
        config: the YAML.
        recipes: recipe of each patch.
        footprints: expected memory and number of Gaussians of each patch.
    """
    programs = {recipe.training.trainer: recipe.program for recipe in recipes.values()}
    wanted = {
        "notify": bool(config.notify.urls),
        "tensorboard": config.evaluation.tensorboard,
    }
    folder = config.output.folder
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return checks.MachineNeeds(
        folder=folder,
        can_write=there.is_dir() and os.access(there, os.W_OK | os.X_OK),
        free_mib=free_mib(there),
        need_mib=checks.disk_mib(recipes, footprints),
        wanted_mib=config.limits.free_disk_mib,
        lacking={name: missing(program) for name, program in programs.items()},
        trains_itself=OUR_TRAINER in programs,
        on_cpu=is_on_cpu(config.executor, config.training.device) and gpu.presence().is_here(),
        extras=frozenset(name for name, is_wanted in wanted.items() if is_wanted),
    )


def toolchain() -> checks.Toolchain:
    """Return the programs on this machine for building gsplat's kernels, and locks of earlier builds."""
    nvcc = _nvcc()
    return checks.Toolchain(
        nvcc=nvcc,
        nvcc_version=_nvcc_version(nvcc),
        compiler=shutil.which(os.environ.get("CXX") or "c++") or shutil.which("g++") or "",
        has_ninja=bool(shutil.which("ninja") or importlib.util.find_spec("ninja")),
        locks=tuple(_locks(extensions_folder())),
    )


def _nvcc() -> Path | None:
    homes = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    found = next((home / "bin/nvcc" for home in (*homes, CUDA_FOLDER) if (home / "bin/nvcc").is_file()), None)
    on_path = shutil.which("nvcc")
    return found or (Path(on_path) if on_path else None)


def _nvcc_version(nvcc: Path | None) -> checks.Version | None:
    if nvcc is None:
        return None
    said = (read_json(nvcc.resolve().parents[1] / "version.json") or {}).get("cuda_nvcc")
    return checks.parse_version(str(said.get("version"))) if isinstance(said, dict) else None


def _locks(root: Path) -> Iterator[checks.ExtensionLock]:
    found = [*root.glob("*/lock"), *root.glob("*/*/lock")]
    is_compiling = bool(found) and _is_compiling()
    for path in found:
        try:
            yield checks.ExtensionLock(path, time.time() - path.stat().st_mtime, is_compiling)
        except OSError:
            continue


def _is_compiling() -> bool:
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text(errors="replace").strip() in COMPILERS:
                return True
        except OSError:
            continue
    return False


def _shared_memory() -> tuple[int, int] | None:
    try:
        usage = shutil.disk_usage(SHARED_MEMORY)
    except OSError:
        return None
    return usage.total // MIB, usage.free // MIB


def _open_files() -> int:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if most == resource.RLIM_INFINITY else most
