"""The photographs behind Metashape's labels: an export names no files, so they are looked for below one folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from splatbatch.errors import SceneError
from splatbatch.scene.photos.folders import PHOTOGRAPHS

MOST_FILES = 200_000
"""Looked at before a folder counts as the wrong one."""


class Photographs:
    """The photographs below a folder, by name and by stem."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._by_key: dict[str, list[str]] = {}
        for name in _photographs(folder):
            path = PurePosixPath(name)
            for key in {name, path.name, path.stem, str(path.with_suffix(""))}:
                self._by_key.setdefault(key.casefold(), []).append(name)
        self.names = sorted({name for names in self._by_key.values() for name in names})

    def find(self, label: str, group: str) -> list[str]:
        """Return the photographs that a label may mean, those in the folder of its group before all others."""
        label = label.replace("\\", "/").strip("/")
        found = self._by_key.get(label.casefold(), [])
        if len(found) > 1 and (exact := [name for name in found if name in (label, PurePosixPath(label).name)]):
            found = exact
        if len(found) > 1 and group:
            in_group = [name for name in found if group.casefold() in map(str.casefold, PurePosixPath(name).parts)]
            found = in_group or found
        return sorted(found)


def folder_beside(path: Path) -> Path:
    """Return where photographs of an export are looked for: images/ or photos/ beside it, else its own folder."""
    beside = (path.parent / name for name in ("images", "Images", "photos", "Photos"))
    return next((folder for folder in beside if folder.is_dir()), path.parent)


def _photographs(folder: Path) -> Iterator[str]:
    seen = 0
    for parent, folders, files in os.walk(folder):
        # what an import has linked is there already
        folders[:] = sorted(name for name in folders if not (Path(parent) / name / "import.json").is_file())
        for file in sorted(files):
            seen += 1
            if seen > MOST_FILES:
                what = f"{folder}: more than {MOST_FILES:,} files: not only the photographs of this export"
                raise SceneError(what, "Name the folder of the photographs with --images DIR.")
            if Path(file).suffix.lower() in PHOTOGRAPHS:
                yield (Path(parent) / file).relative_to(folder).as_posix()
