"""Gathers facts about this machine and a batch in milliseconds, without torch and without starting a process."""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from splatbatch import __version__
from splatbatch.config import Config, Recipe
from splatbatch.config.executor import scheme_of
from splatbatch.doctor import checks
from splatbatch.files import free_mib, shared_memory_mib
from splatbatch.machine import gpu
from splatbatch.machine.slots import is_on_cpu
from splatbatch.scene.memory_estimate import MemoryEstimate
from splatbatch.trainers.availability import missing

PACKAGES = ("torch", "gsplat", "pycolmap", "numpy")
"""Python packages whose versions are shown."""


def machine() -> checks.Machine:
    """Return the facts about this machine; `versions` is left empty, since reading them takes longer."""
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return checks.Machine(
        presence=gpu.presence(),
        driver=gpu.driver_version(),
        driver_cuda=gpu.cuda_version(),
        torch=torch_build(),
        shm_mib=shared_memory_mib(),
        open_files=sys.maxsize if most_files == resource.RLIM_INFINITY else most_files,
    )


def versions(packages: Iterable[str] = (*PACKAGES, *checks.EXTRAS)) -> Mapping[str, str]:
    """Return the versions of splatbatch, Python and packages, by name; packages that are not installed are left out."""
    found = {"splatbatch": __version__, "Python": platform.python_version()}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def torch_build() -> checks.TorchBuild | None:
    """Return the installed torch without importing it; None if torch is missing or its version cannot be read."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        return checks.parse_build(Path(spec.origin).with_name("version.py").read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError):
        return None


def job(config: Config, recipes: Mapping[str, Recipe], footprints: Mapping[str, MemoryEstimate]) -> checks.MachineNeeds:
    """Return the needs of a batch, and whether this machine meets them; no file is written.

    Args:
        config: the YAML.
        recipes: recipe of each patch, by name.
        footprints: expected memory and number of Gaussians of each patch, by name; patches without one are left out of
            the estimate of disk space.

    Raises:
        ExecutorError: the first GPU that CUDA_VISIBLE_DEVICES names does not exist.
    """
    programs = {recipe.training.trainer: recipe.program for recipe in recipes.values()}
    folder = config.output.folder
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return checks.MachineNeeds(
        folder=folder,
        can_write=there.is_dir() and os.access(there, os.W_OK | os.X_OK),
        free_mib=free_mib(there),
        need_mib=checks.disk_mib(recipes, footprints),
        wanted_mib=config.limits.free_disk_mib,
        lacking={name: missing(program) for name, program in programs.items()},
        on_cpu=is_on_cpu(config.executor, config.training.device) and gpu.presence().is_here(),
    )


def wanted_extras(config: Config) -> frozenset[str]:
    """Return the packages of optional extras that the YAML needs."""
    wanted = {
        "gsply": "compressed" in config.publish.formats,
        "apprise": config.notify.urls,
        "tensorboard": config.evaluation.tensorboard,
        "pyproj": config.scene.crs,
        "mlflow-skinny": config.tracking.mlflow,
        "asyncssh": scheme_of(config.executor.store) == "ssh",
        "obstore": scheme_of(config.executor.store) == "s3",
    }
    return frozenset(name for name, is_wanted in wanted.items() if is_wanted)
