"""How the package is built: setuptools, after the report's 3D viewer and the GPU kernels have been made."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401 - what pip asks of a backend
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

ROOT = Path(__file__).resolve().parents[2]
VIEWER = ROOT / "splatbatch" / "report" / "viewer" / "web" / "dist" / "viewer.js.gz"
KERNELS = ROOT / "splatbatch" / "training" / "cuda"
NVRTC = "nvidia-cuda-nvrtc==13.0.88"  # torch's own: constraints.txt
IN_SOURCES = (
    "graft configs\ngraft examples\ngraft scripts\ngraft docs\ninclude constraints.txt *.md\nglobal-exclude *.pyc\n"
)


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return what pip installs first: setuptools' own, and what compiles the kernels, where it can be had."""
    can_compile = sys.platform == "linux" and platform.machine() == "x86_64"
    return [*build_meta.get_requires_for_build_wheel(config_settings), *([NVRTC] if can_compile else [])]


def build_wheel(directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build the wheel, with the viewer and the kernels."""
    _pack_viewer()
    _compile_kernels()
    return build_meta.build_wheel(directory, config_settings, metadata_directory)


def build_sdist(directory: str, config_settings: Any = None) -> str:
    """Build the source archive: all that a wheel is made from, the viewer as it was packed included."""
    _pack_viewer()
    with _manifest():
        return build_meta.build_sdist(directory, config_settings)


def _pack_viewer() -> None:
    """Run scripts/build_web; without npm the wheel is built without the viewer, and that is said."""
    try:
        subprocess.run([str(ROOT / "scripts" / "build_web")], check=True, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError) as error:
        if not VIEWER.exists():
            print(f"the 3D viewer of the report is not in this wheel: {error}", file=sys.stderr)


def _compile_kernels() -> None:
    """Compile the kernels for the GPUs of today; without NVRTC they are compiled where they are first used."""
    sys.path.insert(0, str(ROOT))
    specified = importlib.util.spec_from_file_location("kernels_of_the_wheel", KERNELS / "compile.py")
    if specified is None or specified.loader is None:
        return
    module = sys.modules[specified.name] = importlib.util.module_from_spec(specified)
    specified.loader.exec_module(module)
    try:
        module.ship(KERNELS / "compiled")
    except module.CompileError as error:
        print(f"the GPU kernels are not compiled in this wheel: {error}", file=sys.stderr)


@contextmanager
def _manifest() -> Iterator[None]:
    """Tell setuptools what belongs to the sources besides the modules."""
    path = ROOT / "MANIFEST.in"
    path.write_text(IN_SOURCES)
    try:
        yield
    finally:
        path.unlink()
