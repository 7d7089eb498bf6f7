"""Finds the patches of a scene, in natural order (p2 before p10), with the folders of their models and photographs.

Finding reads folders and names alone, so that thousands of patches are found fast; files are opened by the audit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from splatbatch.config import NO_OFFSET, Offset, Scene, near, no_such
from splatbatch.errors import SceneError
from splatbatch.scene.colors.correction import NEUTRAL, ColorCorrection
from splatbatch.scene.formats import seen_at
from splatbatch.scene.partition.files import find_partition
from splatbatch.scene.photos.folders import is_folder

if TYPE_CHECKING:
    from splatbatch.scene.partition.border import Border

MODEL_FOLDERS = ("sparse/0", "sparse")
MODEL_FILE_NAMES = tuple(
    f"{name}{suffix}" for suffix in (".bin", ".txt") for name in ("cameras", "images", "points3D", "rigs", "frames")
)
A_SCENE = "A scene has photographs in images/ and their COLMAP model (cameras, images, points3D) in sparse/0."
_DIGITS = re.compile(r"(\d+)")
_NUMBERED = re.compile(r"[A-Za-z_-]*\d+")
_WILDCARD = re.compile(r"[*?[]")


@dataclass(frozen=True)
class Patch:
    """A part of a scene, or a whole scene, that becomes one splat: a COLMAP model and its photographs.

    Tasks that train nothing have a patch with a name and folders alone, which need not be those of a model.
    """

    name: str
    sparse: Path
    """Folder of cameras, images and points3D (.bin or .txt); need not exist."""
    images: Path
    """Folder of the photographs, to which the image names of the model are relative; need not exist."""
    source: Path | None = None
    """Folder of the COLMAP scene that the patch was cut from, `scene.source`.

    None: the config names none, or nothing of it travelled with the task.
    """
    masks: Path | None = None
    """Folder of the masks; None: there are no masks."""
    offset: Offset = NO_OFFSET
    """Offset subtracted from the patch's coordinates before training, in units of the model; three zeros: none."""
    tones: Mapping[str, ColorCorrection] = field(default_factory=dict, hash=False)
    """Colour corrections by image name; photographs without an entry stay unchanged."""
    partition: Path | None = None
    """The partition.json of the split, which decides hold-out and core.

    None: the patch was not made by a split, or came through a store, with `held_out` and `border` instead.
    """
    border: Border | None = None
    """Border of the patch, by which its Gaussians are limited as `training.border` says.

    None: the patch has no core, or none was looked up yet, as by `find_patches`.
    """
    behind: Path | None = None
    """Folder with the results of the whole scene, whose splat is the backdrop; None: the patch has no backdrop."""
    is_whole: bool = False
    """Whether this patch is the whole scene, trained coarsely as the backdrop of the other patches."""
    held_out: tuple[str, ...] | None = None
    """Names of the held-out photographs, if they were chosen on another machine; None: they are chosen on this one.

    A task that travels through a store comes without the scene, partition or list that would decide.
    """
    by_name: bool = False
    """Whether photographs are held out one by one, if the output folder was begun so; False: whole frames are."""

    @property
    def is_evened(self) -> bool:
        """Whether training corrects the colours of any of the patch's photographs."""
        return bool(self.tones)

    def tone_of(self, photograph: str) -> ColorCorrection:
        """Return the colour correction of a photograph by its image name; `NEUTRAL` (no change) if it has none."""
        return self.tones.get(photograph, NEUTRAL)


def find_patches(scene: Scene) -> tuple[Patch, ...]:
    """Return the patches that a configuration describes, in natural order; at least one.

    They are the sub-folders of `scene.patches`, or the scenes of `scene.scenes`. A folder with a model of its own is
    one patch. A numbered sub-folder (p7) without a model counts too, so that the audit can report what is missing. The
    sub-folder `source`, the folder of `scene.source`, and hidden folders are no patches.

    Raises:
        SceneError: a folder is missing or cannot be read, or holds neither patches nor a model; a pattern of
            `scene.scenes` matches no model; or a split was interrupted while it put patches in place.
        LaterFormatError: a later version of splatbatch wrote partition.json.
        PermissionError: a folder that is searched may not be entered.
    """
    named = {"patches": None if scene.scenes else scene.patches, "masks": scene.masks, "source": scene.source}
    missing = {key: folder for key, folder in named.items() if folder and not is_folder(folder)}
    if missing:
        hint = " ".join(near(folder) for folder in missing.values()) + " Paths are relative to the folder of the YAML."
        lacking = [f"scene.{key}: {folder}: {no_such(folder, 'folder')}" for key, folder in missing.items()]
        raise SceneError("\n  ".join(lacking), hint)
    # masks beside a shared photograph folder are looked for once: there may be thousands of patches
    common = scene.model_copy(update={"masks": _masks(scene.images, scene.masks)}) if scene.images else scene
    if scene.scenes:
        places = scene_folders(scene.scenes)
        return tuple(replace(_patch(places[name], common), name=name) for name in sorted(places, key=natural_key))
    root = scene.patches
    if model_folder(root):
        return (_patch(root, common),)
    folders = [
        folder
        for folder in _subfolders(root)
        if folder.name != "source" and not (scene.source and scene.source.samefile(folder.path))  # beside its patches
        if _NUMBERED.fullmatch(folder.name) or model_folder(folder.path)
    ]
    if not any(model_folder(folder.path) for folder in folders):
        found = ", ".join(folder.name for folder in _subfolders(root)) or "nothing"
        hint = seen_at(root) or f"{A_SCENE} Patches are such folders side by side."
        raise SceneError(f"scene.patches: {root}: no patch with sparse/0 (found {found})", hint)
    folders.sort(key=lambda folder: natural_key(folder.name))
    patches = tuple(_patch(folder, common) for folder in folders)
    partition = find_partition(root)
    return tuple(replace(patch, partition=partition) for patch in patches) if partition else patches


def list_names(names: Sequence[str], most: int = 20) -> str:
    """Return names as one text: "p0, p1, p2, … p99"; of more than `most` names the first ones and the last."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])}, … {names[-1]}"


@lru_cache(maxsize=1 << 16)
def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key for names that orders p2 before p10, by the values of their numbers."""
    parts = _DIGITS.split(name)
    return tuple([(1, int(part), part) if part.isdecimal() else (0, 0, part) for part in parts if part])


def model_folder(folder: Path | str) -> Path | None:
    """Return the folder of the COLMAP model below `folder`: sparse/0, else sparse; None if neither has a cameras file.

    Where COLMAP left several models (sparse/0, sparse/1, …), the model with the most images is returned.

    Raises:
        PermissionError: one of several models lies in a folder that may not be entered.
    """
    if os.path.isdir(f"{folder}/sparse/1"):  # noqa: PTH112 - as below
        models = models_beside(Path(f"{folder}/sparse/1"))
        if models:
            return models[0][0]
    for name in MODEL_FOLDERS:
        # a string, not a path: there may be thousands of patches
        if any(os.path.isfile(f"{folder}/{name}/{file}") for file in ("cameras.bin", "cameras.txt")):  # noqa: PTH113
            return Path(f"{folder}/{name}")
    return None


def models_beside(sparse: Path) -> list[tuple[Path, int]]:
    """Return the models in the numbered folders around a model, itself included, with their numbers of images.

    Those with the most images stand first, equal ones by folder number. A model whose images cannot be read counts 0
    images. Empty if no folder holds a model, the name of `sparse` is no number, or its parent folder cannot be read.

    Args:
        sparse: folder of a model, such as sparse/0.

    Raises:
        PermissionError: a numbered folder may not be entered.
    """
    from splatbatch.scene.colmap.reconstruction import count_images  # reads arrays, which `status` has no use for

    if not sparse.name.isdecimal():
        return []
    folders = list[Path]()
    with contextlib.suppress(SceneError):
        folders = [Path(entry.path) for entry in _subfolders(sparse.parent) if entry.name.isdecimal()]
    models = [(path, count_images(path)) for path in folders if has_model(path)]
    return sorted(models, key=lambda model: (-model[1], int(model[0].name)))


def has_model(folder: Path) -> bool:
    """Return whether a folder itself holds a cameras.bin or cameras.txt; its other files are not checked.

    Raises:
        PermissionError: the folder may not be entered.
    """
    return any((folder / f"cameras.{suffix}").is_file() for suffix in ("bin", "txt"))


def _patch(folder: Path | os.DirEntry[str], scene: Scene) -> Patch:
    # a Path is made only where it is needed: for thousands of patches that takes longer than the disk accesses
    sparse = model_folder(os.fspath(folder)) or Path(folder) / MODEL_FOLDERS[0]
    images = scene.images or Path(folder) / "images"
    name = Path(folder).resolve().name if folder.name in ("", "..") else folder.name  # a link keeps the name it has
    masks = scene.masks if scene.images else _masks(images, scene.masks)
    return Patch(name, sparse, images, scene.source, masks)


def _masks(images: Path, named: Path | None) -> Path | None:
    """Return the folder of the masks: the named one, else masks/ beside the photographs."""
    beside = images.with_name("masks")
    return named or (beside if is_folder(beside) else None)


def _subfolders(root: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root) as entries:
            return sorted((one for one in entries if one.is_dir() and one.name[0] != "."), key=lambda one: one.name)
    except OSError as error:
        raise SceneError(
            f"scene.patches: {root}: cannot be read ({error.strerror})", "Make the folder readable."
        ) from error


def scene_folders(places: Sequence[Path]) -> Mapping[str, Path]:
    """Return the folders of several scenes by their names, in the order given; a folder named twice counts once.

    Args:
        places: folders, or patterns such as /data/360_v2/*; a pattern stands for the matching folders with a model.

    Raises:
        SceneError: a folder is missing, or a pattern matches no model; all such folders and patterns are listed.
        PermissionError: a folder that a pattern matches has several models, and one may not be entered.
    """
    found: dict[Path, Path] = {}
    lacking = []
    for place in places:
        matches = list(_matches(place))
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
    """Return a name for each folder, in their order: the folder's own, after those of its parents if needed.

    Different folders get different names: a part of a hash follows where even those are equal. Characters that are not
    letters, digits, or one of `_ . + -` become "-"; if nothing is left, the name is "scene". Names do not depend on the
    order of the folders, and differ on file systems that ignore case, too.
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
    """Return the last `depth` parts of a path joined into one valid part."""
    name = "-".join(path.parts[1:][-depth:])
    return re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "scene"


def _matches(place: Path) -> Iterator[Path]:
    if is_folder(place):
        yield place
    elif _WILDCARD.search(str(place)):
        found = Path(place.anchor).glob(str(place.relative_to(place.anchor)))
        yield from sorted(folder for folder in found if is_folder(folder) and model_folder(folder))
