"""Masks of photographs: which file says where a photograph counts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from splatbatch.scene.photos.folders import Folders, Found


def find_masks(folder: Path | None, names: Iterable[str]) -> dict[str, Path]:
    """Return the mask of every photograph that has one: photo.jpg.png as COLMAP names it, else photo.png."""
    if folder is None:
        return {}
    folders, masks = Folders(), {}
    for name in names:
        for candidate in (f"{name}.png", str(PurePosixPath(name).with_suffix(".png"))):
            place = folders.locate(folder, candidate)
            if isinstance(place, Found):
                masks[name] = Path(place.path)
                break
    return masks
