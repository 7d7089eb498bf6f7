"""The JSON of a transforms.json, or of the transforms_train/val/test.json of a Blender scene: found, read, bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from splatbatch.errors import SceneError
from splatbatch.json_text import parse
from splatbatch.scene.colmap.files import opened
from splatbatch.scene.imports.capture import Mistakes

MAIN = "transforms.json"
SPLITS = ("train", "val", "test")
LARGEST_MIB = 512
_MIB = 1 << 20
_REMEDY = "Write the file again, or take a whole copy; JSON ends with the bracket it began with."


@dataclass(frozen=True)
class Document:
    """One JSON file with frames."""

    path: Path
    split: str
    """train, val or test by its name; empty for all."""
    top: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        """Return the folder that its paths are relative to."""
        return self.path.parent


def find_documents(source: Path) -> list[Path]:
    """Return the files that a folder or a file stands for: transforms.json, else one for each split; none: no such."""
    if source.is_file():
        return [source] if source.suffix.lower() == ".json" else []
    if (source / MAIN).is_file():
        return [source / MAIN]
    return [path for split in SPLITS if (path := source / f"transforms_{split}.json").is_file()]


def read_documents(paths: list[Path], mistakes: Mistakes) -> list[Document]:
    """Return the files with their frames; what is no JSON, or has none, is a mistake."""
    found = []
    for path in paths:
        try:
            top = _read(path)
        except SceneError as error:
            mistakes.add(path.name, error.message, error.hint or _REMEDY)
            continue
        if not isinstance(top, dict) or not isinstance(top.get("frames"), list):
            what = "frames is missing, or no list" if isinstance(top, dict) else "holds no object at its top"
            mistakes.add(path.name, what, "A transforms.json has frames: [{file_path, transform_matrix}, …].")
        elif not top["frames"]:
            mistakes.add(path.name, "frames is empty", "Export it again with the photographs that have a pose.")
        else:
            split = path.stem.removeprefix("transforms_")
            found.append(Document(path, split if split in SPLITS else "", top))
    return found


def _read(path: Path) -> Any:
    with opened(path) as (file, size):
        if size > LARGEST_MIB * _MIB:
            raise SceneError(f"{size // _MIB} MiB, more than the {LARGEST_MIB} MiB that are read", _REMEDY)
        data = file.read()
    try:
        return parse(data)
    except JSONDecodeError as error:
        raise SceneError(f"line {error.lineno}, column {error.colno}: {error.msg}: no whole JSON", _REMEDY) from error
    except ValueError as error:
        raise SceneError(f"no JSON text ({error})", _REMEDY) from error
