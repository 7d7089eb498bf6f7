"""Finds the scene in a folder, or the scene that a folder belongs to; if there is none, says what the folder holds."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from splatbatch.config import Scene, near
from splatbatch.errors import SceneError
from splatbatch.scene.colmap.files import ModelError
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.scene.formats import seen_at
from splatbatch.scene.partition.record import partition_of
from splatbatch.scene.patches import A_SCENE, Patch, find_patches, model_folder
from splatbatch.scene.photos.folders import PHOTO_FOLDERS, PHOTOGRAPHS, find_photographs, is_folder

MOST_NAMED = 8
"""Most files and folders that the error names of a folder that is no scene."""


@dataclass(frozen=True)
class SceneLayout:
    """Folders of a scene, as the configuration names them.

    Paths begin with the searched folder, so that they are relative to the working folder if the searched folder is.
    """

    top: Path
    """Folder of the scene: the patches lie in it, or in its sub-folder patches/."""
    root: Path
    """Folder in which the patches lie, the value of `scene.patches`; the scene itself if it is one patch."""
    patches: tuple[Patch, ...]
    images: Path | None = None
    """Photograph folder of all patches, `scene.images`.

    None: each patch has its own images/, or no folder was found, or only one inside the first patch.
    """
    source: Path | None = None
    """Scene that the patches were cut from, `scene.source`; None: it is unknown."""
    notes: tuple[str, ...] = ()
    """Notes for people on folders that are not where they usually lie; empty if all are."""


def find_layout(place: Path) -> SceneLayout:
    """Return the layout of the scene in a folder, or of the scene that a path inside a scene belongs to.

    Args:
        place: folder of a scene or of patches, or a model folder, a file of a model, or a photograph folder.

    Raises:
        SceneError: there is no scene (the hint says what the folder holds, and what to do with it); or partition.json
            beside the patches cannot be read, or a split was interrupted.
        LaterFormatError: a later version of splatbatch wrote partition.json.
        PermissionError: a folder on the way to `place`, or one inside the scene, may not be entered.
    """
    top = _top(place)
    notes = () if top == place else (f"{place} belongs to the scene {top}, which is used",)
    if not top.is_dir():
        raise why_no_scene(place)
    holds_patches = (top / "patches").is_dir()
    root = top / "patches" if holds_patches else top
    try:
        patches = find_patches(Scene(patches=root))
    except SceneError as error:
        raise why_no_scene(place) if root == top else error from error
    found = SceneLayout(top, root, patches, source=top if holds_patches and model_folder(top) else None, notes=notes)
    if (partition := partition_of(root)) is not None:  # all patches have links to one folder
        return replace(found, images=patches[0].images.resolve(), source=partition.source)
    return _with_photographs(found)


def _with_photographs(found: SceneLayout) -> SceneLayout:
    """Return the layout with the folder of its photographs, where that is not images/ of each patch."""
    first = found.patches[0]
    usual = next((path for path in (found.top / "images", found.root.parent / "images") if path.is_dir()), None)
    own = all(patch.images.is_dir() for patch in found.patches)
    place = first.images if own else usual
    try:
        names = [image.name for image in read_images(first.sparse)]
    except ModelError:  # the audit says what is wrong with it
        names = []
    if place is not None and (not names or any((place / name).exists() for name in names)):
        return found if own else replace(found, images=usual)
    held = find_photographs(first.sparse, names)
    if held is None:
        note = f"no folder near {first.sparse} holds the photographs of that model: set scene.images to their folder"
        return replace(found, images=None if own else usual, notes=(*found.notes, note) if names else found.notes)
    said = f"photographs were found in {os.path.relpath(held.folder, found.top)}/ ({held.num} of {len(names)})"
    if len(found.patches) > 1 and held.folder.is_relative_to(first.sparse.absolute().parent.parent):
        said += f" for {first.name}; if each patch has such a folder, rename the folders to images/"
        return replace(found, notes=(*found.notes, said))
    return replace(found, images=held.folder, notes=(*found.notes, said))


def _top(place: Path) -> Path:
    """Return the folder of the scene that a model, its file, or a photograph folder is of; else the place itself."""
    whole = place.absolute()
    above = [whole.parent, *whole.parent.parents[:2]]
    if whole.is_file():
        is_of_scene = whole.suffix.lower() in {".bin", ".txt", *PHOTOGRAPHS}
        parts = above[:3] if is_of_scene else []
    elif whole.name.isdecimal() and above[0].name == "sparse":
        parts = above[1:2]
    elif whole.name == "sparse" or whole.name.casefold() in PHOTO_FOLDERS:
        parts = above[:1]
    else:
        parts = []
    top = next((part for part in parts if model_folder(part)), None)
    if top is None or (not place.is_file() and model_folder(place)):
        return place
    return top if place.is_absolute() else Path(os.path.relpath(top))


def why_no_scene(place: Path) -> SceneError:
    """Return the error for a path without a scene, for the caller to raise.

    Its message says whether the path is missing, a file, unreadable, empty, or has no model. Its hint says what to do,
    and names the format of files of another program.

    Raises:
        PermissionError: the folder above `place` may not be entered.
    """
    if not place.exists():
        return SceneError(f"{place}: no such folder", near(place))
    seen = seen_at(place)
    if not is_folder(place):
        if place.suffix.lower() in (".yml", ".yaml"):
            hint = f"If the file is the configuration: splatbatch verify-dims --config {quote(str(place))}"
        elif _top(place) != place:
            hint = f"The file belongs to the scene {_top(place)}: name that folder."
        else:
            hint = seen or f"Name a folder. {A_SCENE}"
        return SceneError(f"{place}: a file, not a folder", hint)
    if seen:
        return SceneError(f"{place}: no COLMAP model, and no patches with one", seen)
    try:
        names = sorted(name for name in os.listdir(place) if name[0] != ".")  # noqa: PTH208 - names alone
    except OSError as error:
        return SceneError(f"{place}: the folder cannot be read ({error.strerror})", "Make the folder readable.")
    if not names:
        return SceneError(f"{place}: an empty folder", f"{A_SCENE} `splatbatch demo NEW` writes a small scene.")
    found = ", ".join(names if len(names) <= MOST_NAMED else [*names[:MOST_NAMED], "…"])
    return SceneError(f"{place}: no COLMAP model, and no patches with one (found {found})", A_SCENE)
