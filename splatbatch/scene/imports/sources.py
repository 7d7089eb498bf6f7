"""What lies in a folder, as far as an import knows it: transforms.json, Metashape XML, a COLMAP export."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from splatbatch.files import open_regular
from splatbatch.plain_text import counted
from splatbatch.scene.imports.exports.model import suffix_of
from splatbatch.scene.imports.transforms.document import find_documents

Kind = Literal["transforms", "metashape", "colmap"]
_HEAD = 4096  # bytes of an XML file that are looked at
_EXPORTS = (".", "colmap_export", "opensfm/colmap_export", "colmap", "colmap/sparse/0", "sparse/0", "sparse",
            "dense/sparse", "undistorted/sparse")  # fmt: skip
OPENSFM = ("reconstruction.json", "opensfm/reconstruction.json")


@dataclass(frozen=True)
class Source:
    """Something that can be imported."""

    kind: Kind
    paths: tuple[Path, ...]
    """The JSON files, the XML file, or the folder of the model."""

    def in_words(self) -> str:
        """Return what it is, as a person would say it."""
        match self.kind:
            case "transforms":
                names = ", ".join(path.name for path in self.paths)
                return f"cameras of nerfstudio, instant-ngp or Blender ({names})"
            case "metashape":
                return f"cameras of Metashape ({self.paths[0].name})"
            case "colmap":
                return f"a COLMAP model outside of sparse/0 ({self.paths[0]})"


def find_sources(path: Path) -> list[Source]:
    """Return what a file or a folder holds that can be imported; the first is what it is taken for."""
    found = []
    if documents := find_documents(path):
        found.append(Source("transforms", tuple(documents)))
    found += [Source("metashape", (file,)) for file in _metashape_files(path)]
    folder = path if path.is_dir() else path.parent
    is_model_file = (
        path.is_file() and path.stem in ("cameras", "images", "points3D") and path.suffix in (".txt", ".bin")
    )
    if path.is_dir() or is_model_file:
        exports = (folder / name for name in (_EXPORTS if path.is_dir() else (".",)))
        found += [Source("colmap", (export,)) for export in exports if suffix_of(export)][:1]
    return found


def _metashape_files(path: Path) -> Iterator[Path]:
    files = [path] if path.is_file() else sorted(path.glob("*.xml"))
    for file in files:
        if file.suffix.lower() == ".xml" and (path.is_file() or _is_metashape(file)):
            yield file


def _is_metashape(file: Path) -> bool:
    try:
        with open_regular(file) as opened:
            head = opened.read(_HEAD)
    except OSError:
        return False
    return b"<document" in head and b"<chunk" in head


def what_instead(path: Path) -> str:
    """Return what to do with a folder that holds what is near to a source, and none; empty where nothing is."""
    if any((path / name).is_file() for name in OPENSFM):
        return "This is OpenSfM's reconstruction.json: run `opensfm export_colmap` on its folder, then import that."
    projects = sorted(path.glob("*.psx")) if path.is_dir() else [path] if path.suffix == ".psx" else []
    if projects:
        return f"{projects[0].name} is a Metashape project: export its cameras (File > Export > Export Cameras, XML)."
    tables = [file for file in (path.glob("*.csv") if path.is_dir() else []) if _is_csv_of_poses(file)]
    if tables:
        return f"{counted(len(tables), 'CSV file')} of RealityScan: export the registration as COLMAP instead."
    return ""


def _is_csv_of_poses(file: Path) -> bool:
    try:
        with open_regular(file) as opened:
            return opened.read(64).startswith(b"#name")
    except OSError:
        return False
