"""Many COLMAP scenes instead of the patches of one: which they are, and a name for each that no other has."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from splatbatch.errors import SceneError
from splatbatch.scene.photos.folders import is_folder

ModelFolder = Callable[[Path], Path | None]
_WILDCARD = re.compile(r"[*?[]")


def scene_folders(places: Sequence[Path], model_folder: ModelFolder) -> Mapping[str, Path]:
    """Return the folders of scenes by name.

    Args:
        places: folders, or patterns such as /data/360_v2/*; what a pattern finds counts if it holds a model.
        model_folder: returns where the model of a folder lies; None if it has none.

    Raises:
        SceneError: a folder is missing, or a pattern finds nothing; all of them at once.
    """
    found: dict[Path, Path] = {}
    lacking = []
    for place in places:
        matches = list(_matches(place, model_folder))
        lacking += [] if matches else [str(place)]
        for folder in matches:
            found.setdefault(folder.resolve(), folder)
    if lacking:
        raise SceneError(
            f"scene.scenes: {', '.join(lacking)}: no COLMAP scene there",
            "A scene is a folder with photographs and a COLMAP model (cameras, images, points3D) in sparse/0.",
        )
    folders = list(found.values())
    return dict(zip(distinct_names(folders), folders, strict=True))


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """Return a name for each folder: its own, with those above it in front where two would be alike.

    A name depends on the order of the folders in nothing, and is fit for a file system that ignores case.
    """
    paths = [Path(os.path.abspath(folder)) for folder in folders]  # noqa: PTH100 - a link keeps the name it has
    names = [_tail(path, 1) for path in paths]
    for depth in range(2, max((len(path.parts) for path in paths), default=0)):
        alike = _repeated(names)
        names = [
            _tail(path, depth) if name.casefold() in alike else name for path, name in zip(paths, names, strict=True)
        ]
    alike = _repeated(names)
    marks = [hashlib.sha256(str(path).encode()).hexdigest()[:6] for path in paths]
    return [f"{name}-{mark}" if name.casefold() in alike else name for name, mark in zip(names, marks, strict=True)]


def _repeated(names: Sequence[str]) -> set[str]:
    return {name for name, count in Counter(map(str.casefold, names)).items() if count > 1}


def _tail(path: Path, depth: int) -> str:
    """Return the last parts of a path as one part of a path."""
    name = "-".join(path.parts[1:][-depth:])
    return re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "scene"


def _matches(place: Path, model_folder: ModelFolder) -> Iterator[Path]:
    if is_folder(place):
        yield place
    elif _WILDCARD.search(str(place)):
        found = Path(place.anchor).glob(str(place.relative_to(place.anchor)))
        yield from sorted(folder for folder in found if is_folder(folder) and model_folder(folder))
