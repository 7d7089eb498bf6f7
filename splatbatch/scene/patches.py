"""Finds the patches of a scene, in natural order (p2 before p10), with the folders of their models and photographs."""

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
    """A part of the scene that becomes one splat: a COLMAP model and its photographs."""

    name: str
    sparse: Path
    """Folder of cameras, images and points3D (.bin or .txt); need not exist."""
    images: Path
    """Folder that the image names of the model are relative to; need not exist."""
    source: Path | None = None
    """COLMAP scene that it was cut from, if the config names one."""
    masks: Path | None = None
    """Folder of the masks, if there is one."""
    offset: Offset = NO_OFFSET
    """Offset subtracted from its coordinates before training."""
    tones: Mapping[str, ColorCorrection] = field(default_factory=dict, hash=False)
    """Colour corrections of its photographs, by image name; photographs that are not in it stay unchanged."""
    partition: Path | None = None
    """The partition.json of its split, which decides hold-out and core; None: it was not split."""
    border: Border | None = None
    """Border of the patch, if it has a core."""
    behind: Path | None = None
    """Folder with the results of the whole scene, whose splat is the backdrop of a patch with a core."""
    is_whole: bool = False
    """Whether it is the whole scene, trained coarsely as the backdrop of its patches."""
    held_out: tuple[str, ...] | None = None
    """Held-out photographs chosen elsewhere, for a patch without its source, partition or list; None: chosen here."""
    by_name: bool = False
    """Whether photographs are held out one by one, as the batch's records say; else all of a frame together."""

    @property
    def is_evened(self) -> bool:
        """Whether training corrects the colours of any of its photographs."""
        return bool(self.tones)

    def tone_of(self, photograph: str) -> ColorCorrection:
        """Return the colour correction of a photograph; neutral if it has none."""
        return self.tones.get(photograph, NEUTRAL)


def find_patches(scene: Scene) -> tuple[Patch, ...]:
    """Return the patches of a scene, or the scenes of a list, in natural order; a plain COLMAP scene is one patch.

    A numbered sub-folder (p7) without a model counts too, so that the audit can report what it lacks.

    Raises:
        SceneError: a folder is missing, or holds neither patches nor a model.
    """
    named = {"patches": None if scene.scenes else scene.patches, "masks": scene.masks, "source": scene.source}
    missing = {key: folder for key, folder in named.items() if folder and not is_folder(folder)}
    if missing:
        hint = " ".join(near(folder) for folder in missing.values()) + " Paths begin at the folder of the YAML."
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
    folders = [folder for folder in _subfolders(root) if _may_be_patch(folder, scene.source)]
    if not any(model_folder(folder.path) for folder in folders):
        found = ", ".join(folder.name for folder in _subfolders(root)) or "nothing"
        hint = seen.in_words() if (seen := seen_at(root)) else f"{A_SCENE} Patches are such folders side by side."
        raise SceneError(f"scene.patches: {root}: no patch with sparse/0 (found {found})", hint)
    folders.sort(key=lambda folder: natural_key(folder.name))
    patches = tuple(_patch(folder, common) for folder in folders)
    partition = find_partition(root)
    return tuple(replace(patch, partition=partition) for patch in patches) if partition else patches


def list_names(names: Sequence[str], most: int = 20) -> str:
    """Return names in one text of at most `most` names: "p0, p1, p2, … p99"."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])}, … {names[-1]}"


@lru_cache(maxsize=1 << 16)
def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that orders p2 before p10."""
    parts = _DIGITS.split(name)
    return tuple([(1, int(part), part) if part.isdecimal() else (0, 0, part) for part in parts if part])


def model_folder(folder: Path | str) -> Path | None:
    """Return the folder of the COLMAP model below `folder`: sparse/0, else sparse; None if there is neither.

    Where COLMAP left several (sparse/0, sparse/1, …), it is the one with the most images.
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
    """Return the models in numbered folders beside one, itself included, with their numbers of images, most first.

    A model whose images cannot be read counts 0 images.
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
    """Return whether a folder itself holds the cameras of a COLMAP model."""
    return any((folder / f"cameras.{suffix}").is_file() for suffix in ("bin", "txt"))


def _may_be_patch(folder: os.DirEntry[str], source: Path | None) -> bool:
    """Return whether a folder is meant to be a patch; the source beside its patches is not."""
    is_source = folder.name == "source" or (source is not None and source.samefile(folder.path))
    return not is_source and bool(_NUMBERED.fullmatch(folder.name) or model_folder(folder.path))


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
        raise SceneError(f"scene.patches: {root}: cannot be read ({error.strerror})") from error


def scene_folders(places: Sequence[Path]) -> Mapping[str, Path]:
    """Return the folders of scenes by name; a pattern such as /data/360_v2/* stands for the models that it matches.

    Raises:
        SceneError: a folder is missing, or a pattern matches no model; all of them are listed.
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
    """Return a different name for each folder: its own, prefixed by parent folders where two would be equal.

    Names do not depend on the order of the folders, and stay different on file systems that ignore case.
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
