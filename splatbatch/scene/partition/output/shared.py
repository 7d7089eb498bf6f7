"""What all patches share and none copies: photographs, their smaller copies, masks; by links."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from splatbatch.errors import SceneError
from splatbatch.plain_text import counted
from splatbatch.scene.colmap.sightings import Sightings
from splatbatch.scene.partition.record import relative
from splatbatch.scene.patches import model_folder
from splatbatch.scene.photos.folders import is_folder
from splatbatch.scene.photos.resolution import DIVISORS


@dataclass(frozen=True)
class Shared:
    """Folders of the scene by the name of the link that each patch has."""

    folders: dict[str, Path] = field(default_factory=dict)

    def links(self, patch: Path) -> dict[str, str]:
        """Return where the links in a patch's folder point: relative, unless nothing but the root is in common."""
        base = Path(os.path.realpath(patch.parent)) / patch.name
        return {
            name: relative(Path(os.path.realpath(folder.parent)) / folder.name, base)
            for name, folder in self.folders.items()
        }


def find_source(given: Path) -> Path:
    """Return the folder of the model: the given one, or sparse/0 below it."""
    has_model = any((given / f"cameras.{suffix}").exists() for suffix in ("bin", "txt"))
    return given if has_model else model_folder(given) or given


def find_shared(source: Path, images: Path | None) -> Shared:
    """Return the folders that patches share; photographs are looked for beside the model where none are named.

    Raises:
        SceneError: there is no such folder.
    """
    above = source.absolute()
    beside = next((each / "images" for each in above.parents[:2] if is_folder(each / "images")), None)
    folder = images or beside
    if folder is None or not is_folder(folder):
        raise SceneError(
            f"--images {folder or ''}: no such folder", "Name the folder of the photographs: --images DIR."
        )
    others = {f"images_{divisor}": folder.with_name(f"{folder.name}_{divisor}") for divisor in DIVISORS.values()}
    others["masks"] = folder.with_name("masks")
    there = {name: one for name, one in others.items() if name != "images_1" and is_folder(one)}
    return Shared({"images": folder, **there})


def missing_photographs(shared: Shared, sightings: Sightings) -> str:
    """Return, in words, how many photographs lie nowhere; empty if all are there.

    Raises:
        SceneError: none is there.
    """
    folder, names = shared.folders["images"], [image.name for image in sightings.images]
    missing = [name for name in names if not (folder / name).exists()]
    if len(missing) == len(names):
        raise SceneError(
            f"--images {folder}: none of the model's {counted(len(names), 'photograph')} lies there, as {names[0]}",
            "Name the folder that the image names of the model are relative to.",
        )
    return f"{counted(len(missing), 'photograph')} missing in {folder}: {', '.join(missing[:5])}" if missing else ""
