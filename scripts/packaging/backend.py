"""How the package is built: setuptools, after the 3D viewer of the report has been packed by npm where that is here."""

from __future__ import annotations

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
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

ROOT = Path(__file__).resolve().parents[2]
VIEWER = ROOT / "splatbatch" / "report" / "viewer" / "web" / "dist" / "viewer.js.gz"
IN_SOURCES = (
    "graft configs\ngraft examples\ngraft scripts\ngraft docs\ninclude constraints.txt *.md\nglobal-exclude *.pyc\n"
)


def build_wheel(directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build the wheel, with the viewer."""
    _pack_viewer()
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


@contextmanager
def _manifest() -> Iterator[None]:
    """Tell setuptools what belongs to the sources besides the modules."""
    path = ROOT / "MANIFEST.in"
    path.write_text(IN_SOURCES)
    try:
        yield
    finally:
        path.unlink()
