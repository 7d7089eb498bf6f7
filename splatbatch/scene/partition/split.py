"""Cuts a scene into patches: writes new patches aside, keeps unchanged ones, and puts all in place at the end.

The next split finishes an interrupted one, or removes what that one left.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from splatbatch.config import Offset, near, no_such
from splatbatch.errors import OutputError, SceneError
from splatbatch.files import (
    MOST_JSON_BYTES,
    abandoned_files,
    path_beside,
    read_regular,
    sync_folder,
    write_text,
)
from splatbatch.scene.colmap.copies import Subset, hash_of_files
from splatbatch.scene.colmap.files import ModelError, shown
from splatbatch.scene.colmap.indexed_model import IndexedModel
from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.scene.colmap.rigs import Rigs, read_rigs
from splatbatch.scene.colmap.types import CAMERA_MODELS, misspelt
from splatbatch.scene.finder import why_no_scene
from splatbatch.scene.partition.boxes import Box
from splatbatch.scene.partition.cuts import evenness
from splatbatch.scene.partition.files import PARTITION, PATCH, SPLIT_READY, is_of_split
from splatbatch.scene.partition.picture import draw
from splatbatch.scene.partition.plan import PartitionPlan, SplitOptions, plan_split
from splatbatch.scene.partition.record import Core, Partition, patch_record, read_partition, relative, write_partition
from splatbatch.scene.patches import has_model, list_names, model_folder, natural_key
from splatbatch.scene.photos.folders import find_photographs, is_folder, reduced_copies
from splatbatch.terminal import Advance, unheard
from splatbatch.text import plural

SPARSE = "sparse/0"
PICTURE = "partition.svg"
WRITERS = 2
"""Number of patches written at the same time; more would take more memory, and gained nothing on two CPU cores."""
State = Literal["new", "stays", "changes"]


Shared = Mapping[str, Path]
"""Folders of the scene to which every patch links, by the name of the link: images, and those of the others that exist.

The others are images_2, images_4, images_8 and masks.
"""


def find_source(given: Path) -> Path:
    """Return the folder of a scene's COLMAP model: the given folder, or sparse/0 or sparse below it.

    The given folder, too, if there is no model; whether there is one is for the caller to check.

    Raises:
        PermissionError: the given folder may not be entered.
    """
    return given if has_model(given) else model_folder(given) or given


def find_shared(source: Path, images: Path | None) -> Shared:
    """Return the folders to which patches link: photographs, their reduced copies (images_2, …) and masks, if any.

    Args:
        source: folder of the scene's model.
        images: folder of the photographs (--images). None: images/ one or two levels above the model, whatever it
            holds, else the folder near the model that holds most of its photographs.

    Raises:
        SceneError: there is no such folder, or none near the model holds its photographs, or the model cannot be read.
    """
    if images is not None and not is_folder(images):
        raise SceneError(f"--images {images}: {no_such(images, 'folder')}", near(images))
    folder = images or _photographs_of(source)
    copies = {f"images_{divisor}": each for divisor, each in reduced_copies(folder).items()}
    masks = folder.with_name("masks")
    return {"images": folder, **copies, **({"masks": masks} if is_folder(masks) else {})}


def _photographs_of(source: Path) -> Path:
    """Return images/ near a model, else the folder near it that holds its photographs."""
    above = source.absolute()
    if usual := next((each / "images" for each in above.parents[:2] if is_folder(each / "images")), None):
        return usual
    if held := find_photographs(source, [image.name for image in read_images(source)]):
        return held.folder
    raise SceneError(
        f"{source}: no folder near this model holds its photographs",
        "Name the folder of the photographs: --images DIR.",
    )


def missing_photographs(shared: Shared, sightings: IndexedModel) -> str:
    """Return a note on how many photographs of a model are missing, with the first names; empty if none is.

    Args:
        shared: folders to which patches link, among them `images`.
        sightings: the scene's model.

    Raises:
        SceneError: all photographs are missing.
        PermissionError: a folder of photographs may not be entered.
    """
    folder, names = shared["images"], [image.name for image in sightings.images]
    missing = [name for name in names if not (folder / name).exists()]
    if len(missing) == len(names):
        raise SceneError(
            f"--images {folder}: none of the model's {plural(len(names), 'photograph')} lies there, such as {names[0]}",
            "Name the folder that the image names of the model are relative to.",
        )
    return f"{plural(len(missing), 'photograph')} missing in {folder}: {', '.join(missing[:5])}" if missing else ""


@dataclass(frozen=True, eq=False)
class PatchContents:
    """Contents of the folder of a patch, to be written or compared: model, patch.json and links."""

    subset: Subset
    """Photographs and points of the scene's model that form the patch's model."""
    record: str
    """Text of patch.json, with a line end at its end."""
    links: Mapping[str, str]
    """Targets of the links by name; relative to the patch's folder, unless both have only the root in common."""

    def write(self, folder: Path) -> str:
        """Write the contents into a folder, made if absent, and return the hash of model and patch.json.

        Raises:
            OSError: a file cannot be written, or the folder has contents of a patch already.
            KeyError: a camera has a model that COLMAP does not know, or a rig has a camera that the model lacks.
        """
        (folder / SPARSE).mkdir(parents=True)
        found = self.subset.write(folder / SPARSE)
        write_text(folder / PATCH, self.record)
        for name, target in self.links.items():
            (folder / name).symlink_to(target, target_is_directory=True)
        return _with(found, self.record)

    def hash(self) -> str:
        """Return the hash that `write` would return, without writing; links do not count.

        Raises:
            KeyError: as in `write`.
        """
        return _with(self.subset.hash(), self.record)

    def is_in(self, folder: Path, cut_from: str) -> bool:
        """Return whether a folder holds exactly these model files and links, unchanged since they were written.

        False if a file is missing or cannot be read. Other files in the folder do not count, except beside the model.

        Args:
            folder: folder of the patch.
            cut_from: hash that `write` returned.

        Raises:
            KeyError: as in `write`.
        """
        names = [name for name, _ in self.subset.files()]
        try:
            there = sorted(os.listdir(folder / SPARSE))  # noqa: PTH208 - names alone
            links = {name: os.readlink(folder / name) for name in self.links}  # noqa: PTH115 - as it is written
            record = read_regular(folder / PATCH, MOST_JSON_BYTES).decode()
            found = hash_of_files(folder / SPARSE, names)
        except (OSError, UnicodeDecodeError):
            return False
        return there == sorted(names) and links == self.links and _with(found, record) == cut_from


def content_of(partition: Partition, name: str, subset: Subset, shared: Shared) -> PatchContents:
    """Return the contents that the folder of a patch is to have.

    Args:
        partition: partition, whose path decides where links begin.
        name: name of the patch.
        subset: photographs and points of the patch.
        shared: folders to which patches link.
    """
    chosen = {image.name for image, is_in in zip(subset.observations.images, subset.photos, strict=True) if is_in}
    record = json.dumps(patch_record(partition, name, chosen), indent=1) + "\n"
    out = Path(os.path.realpath(partition.path.parent))
    real = {link: Path(os.path.realpath(folder.parent)) / folder.name for link, folder in shared.items()}
    links = {link: relative(folder, out / name) for link, folder in real.items()}
    return PatchContents(subset, record, links)


def check_out(out: Path) -> None:
    """Check that patches may be written into a folder: it is missing, empty, or made by `splatbatch split`.

    Raises:
        SceneError: the folder holds other files, or is no folder.
        LaterFormatError: a later version of splatbatch wrote its partition.json.
        OSError: the folder cannot be listed.
    """
    if out.is_dir():
        names = sorted(os.listdir(out))  # noqa: PTH208 - names alone
        if names and not is_of_split(out / PARTITION) and not (out / SPLIT_READY).is_dir():
            lies = ", ".join(names[:5])
            raise SceneError(f"--out {out}: not empty, and not made by splatbatch split ({lies})", "Name a new folder.")
    elif out.exists() or out.is_symlink():
        raise SceneError(f"--out {out}: not a folder", "Name a new folder.")


@contextlib.contextmanager
def prepared(out: Path) -> Iterator[Path]:
    """Yield a temporary folder for new patches, which are put into `out` after the block; removed if the block fails.

    Folders that killed splits left are removed first. `out` may be absent, empty, or hold an earlier split.

    Raises:
        OutputError: another split is being put in place in `out`, or the folder cannot be renamed.
        LaterFormatError: a later version of splatbatch wrote the partition.json in `out`.
        SceneError: a partition.json cannot be read.
        OSError: the temporary folder cannot be made, or a patch cannot be moved.
    """
    has_split = is_of_split(out / PARTITION)
    place = out / "split" if has_split else out
    aside = path_beside(place)
    for left in (aside, *abandoned_files(place)):
        shutil.rmtree(left, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        why_not = (
            f"{out}: another split is putting its patches in place"
            if has_split
            else f"--out {out}: the patches cannot be put in place"
        )
        try:
            aside.rename(out / SPLIT_READY if has_split else out)
        except OSError as error:
            raise OutputError(f"{why_not} ({error.strerror})", "Run `splatbatch split` again.") from error
        if not finish(out):
            sync_folder(out.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def finish(out: Path) -> bool:
    """Put the complete patches in `SPLIT_READY` in place, and return whether that folder existed.

    May be interrupted and called again: each patch is moved once, and partition.json last. Files that others put into a
    patch's folder are kept, except links named images… or masks….

    Raises:
        SceneError: a partition.json cannot be read.
        OSError: a file or folder cannot be moved or removed.
    """
    ready = out / SPLIT_READY
    if not ready.is_dir():
        return False
    if (ready / PARTITION).exists():
        now = read_partition(ready / PARTITION)
        names = {core.name for core in now.cores}
        before = {core.name for core in read_partition(out / PARTITION).cores} if (out / PARTITION).exists() else set()
        for name in sorted(names | before):
            _put(ready, out, name, is_gone=name not in names)
        for name in (PICTURE, PARTITION):
            if (ready / name).exists():
                (ready / name).replace(out / name)
        sync_folder(out)
    shutil.rmtree(ready)
    return True


def _put(ready: Path, out: Path, name: str, *, is_gone: bool) -> None:
    """Put one patch in place of an older one; files that other programs put beside its own are kept."""
    new, old = ready / name, out / name
    if not new.is_dir() and not is_gone:
        return  # it stays as it is, or is in place already
    if old.is_dir():
        away = ready / f".{name}"  # removed with `ready`
        if is_gone:
            away.mkdir(exist_ok=True)
            for path in filter(_is_ours, list(old.iterdir())):
                path.rename(away / path.name)
            with contextlib.suppress(OSError):  # it holds other files
                old.rmdir()
        else:
            for path in list(old.iterdir()):
                if not _is_ours(path) and not (new / path.name).exists():
                    path.rename(new / path.name)
            old.rename(away)
    if new.is_dir():
        new.rename(old)


def _is_ours(path: Path) -> bool:
    return path.name in ("sparse", PATCH) or (path.is_symlink() and path.name.startswith(("images", "masks")))


def _with(model: str, record: str) -> str:
    return hashlib.sha256(f"{model}\0{record}".encode()).hexdigest()


@dataclass(frozen=True)
class SplitRequest:
    """Scene, target folder and options of a split.

    `source` is the folder of the scene or of its model. `images` is the folder of the photographs; None: it is searched
    near the model.
    """

    source: Path
    images: Path | None
    out: Path
    options: SplitOptions
    trained: frozenset[str] = frozenset()
    """Names of patches of an earlier split that have a trained splat.

    A split that would drop any is refused, unless it is a dry run.
    """


@dataclass(frozen=True)
class CutPatch:
    """JSON record of one patch of a split.

    `state` compares the patch with an earlier split in the same folder: new, unchanged (`stays`) or different
    (`changes`), also where files on the disk were changed or are missing. `num_test` counts
    photographs that are held out everywhere, `num_core_points` points inside the core.
    """

    name: str
    state: State
    num_images: int
    num_test: int
    num_points: int
    num_core_points: int
    cost: float
    """Share of the scene's training work that the patch costs; the shares may sum to more than 1."""
    bounds: Box
    """Part of the core that the scene's points fill, in the axes of partition.json."""


@dataclass(frozen=True)
class SplitFacts:
    """JSON record of `split --json`.

    `partition` and `source` are absolute paths, of partition.json and the model's folder. `evenness` is the ratio of
    the highest to the lowest cost of a patch. `num_test` counts photographs that are held out everywhere, and
    `num_contiguous` those of the held-out block.
    """

    partition: str
    source: str
    num_photographs: int
    num_test: int
    num_contiguous: int
    offset: Offset
    evenness: float
    patches: tuple[CutPatch, ...]
    gone: tuple[str, ...]
    """Names of patches of an earlier split in the same folder that this split does not have, sorted."""
    notes: tuple[str, ...]
    """Notes for the user, in words; may be empty."""
    hold_out: str
    """Note on how many frames are held out; empty if each held-out photograph was taken alone."""


def _facts(plan: PartitionPlan, states: Mapping[str, State], notes: tuple[str, ...]) -> SplitFacts:
    partition, images, patches = plan.partition, plan.observations.images, list[CutPatch]()
    for core in partition.cores:
        num_test = sum(images[at].name in partition.test for at in np.flatnonzero(plan.parts[core.name].photos))
        counts = (core.num_images, num_test, core.num_points, core.num_core_points)
        patches.append(CutPatch(core.name, states[core.name], *counts, core.cost, core.bounds))
    before = plan.before.cores if plan.before else ()
    return SplitFacts(
        str(partition.path),
        str(partition.source),
        len(images),
        len(partition.test),
        len(partition.contiguous),
        partition.offset,
        round(evenness([part.cost for part in plan.parts.values()]), 3),
        tuple(patches),
        tuple(sorted({core.name for core in before} - states.keys())),
        notes,
        plan.hold_out,
    )


def split(request: SplitRequest, *, dry_run: bool = False, advance: Advance = unheard) -> SplitFacts:
    """Cut a scene into patches, and write them with partition.json and a picture into the target folder.

    Unchanged patches of an earlier split stay as they are.

    Args:
        request: scene, target folder and options.
        dry_run: whether nothing is written, and the result says what would be.
        advance: called with the number of patches done and the total, after each patch; never in a dry run.

    Raises:
        ConfigError: the options cannot be met; the nearest possible ones are named.
        SceneError: model or photographs are missing or cannot be read, or a camera model is unknown. Or the folder
            holds other files or an unreadable partition.json, or a trained patch would be lost. Or, in a dry run, an
            earlier split was interrupted there; otherwise that split is finished first.
        LaterFormatError: a later version of splatbatch wrote the partition.json in the folder.
        OutputError: another split is putting its patches in place there, or the patches cannot be moved there.
        OSError: the folder cannot be listed, a file cannot be written, or a folder of photographs cannot be entered.
    """
    source = find_source(request.source)
    if not has_model(source):
        raise why_no_scene(request.source)
    check_out(request.out)
    if not dry_run:
        finish(request.out)
    shared = find_shared(source, request.images)
    plan = plan_split(source, request.out, request.options)
    lost = sorted(request.trained - {core.name for core in plan.partition.cores}, key=natural_key)
    if lost and not dry_run:
        message = f"--out {request.out}: {list_names(lost, 5)}: trained, but not among the patches of the new split"
        hint = "`splatbatch split --drop` removes trained patches all the same. Or split into a new folder (--out)."
        raise SceneError(message, hint)
    for camera in plan.observations.cameras.values():
        if camera.model not in CAMERA_MODELS:
            message = f"{source}: camera {camera.id} is of the unknown camera model {shown(camera.model)}"
            hint = "Undistort the reconstruction to PINHOLE cameras: colmap image_undistorter."
            raise SceneError(message, f"Write {right} in cameras.txt." if (right := misspelt(camera.model)) else hint)
    rigs, why_not = _rigs(plan.observations)
    elsewhere = (
        "" if request.images or shared["images"].name == "images" else f"photographs were found in {shared['images']}"
    )
    notes = tuple(filter(None, (*plan.notes, elsewhere, why_not, missing_photographs(shared, plan.observations))))
    subsets = {name: Subset(plan.observations, part.photos, part.points, rigs) for name, part in plan.parts.items()}
    contents = {name: content_of(plan.partition, name, one, shared) for name, one in subsets.items()}
    if dry_run:
        return _facts(plan, {name: _state(plan, name, content)[0] for name, content in contents.items()}, notes)
    return _written(plan, contents, notes, advance)


def _written(
    plan: PartitionPlan, contents: dict[str, PatchContents], notes: tuple[str, ...], advance: Advance
) -> SplitFacts:
    out, total = plan.partition.path.parent, len(plan.partition.cores)

    def put(core: Core) -> tuple[Core, State]:
        content = contents[core.name]
        state, cut_from = _state(plan, core.name, content)
        return replace(core, cut_from=cut_from or content.write(aside / core.name)), state

    # hashing and writing one patch leaves the other core free
    with prepared(out) as aside, ThreadPoolExecutor(WRITERS) as pool:
        states, cores = dict[str, State](), list[Core]()
        for core, state in pool.map(put, plan.partition.cores):
            cores.append(core)
            states[core.name] = state
            advance(len(cores), total)
        plan = replace(plan, partition=replace(plan.partition, cores=tuple(cores)))
        draw(plan, aside / PICTURE)
        write_partition(replace(plan.partition, path=aside / PARTITION), home=out)
    return _facts(plan, states, notes)


def _state(plan: PartitionPlan, name: str, content: PatchContents) -> tuple[State, str]:
    """Return how a patch compares with an earlier split, and the hash of its files if they stay; else empty."""
    core = plan.before.core(name) if plan.before else None
    if core is None:
        return "new", ""
    stays = content.hash() == core.cut_from and content.is_in(plan.partition.path.parent / name, core.cut_from)
    return ("stays", core.cut_from) if stays else ("changes", "")


def _rigs(sightings: IndexedModel) -> tuple[Rigs | None, str]:
    """Return the usable rigs and frames of the source, if any, and why they cannot be used, in words."""
    try:
        rigs = read_rigs(sightings.folder)
    except ModelError as error:
        return None, f"{shown(error.message)}: the patches have no rigs and frames; COLMAP makes trivial ones"
    if rigs is None:
        return None, ""
    if misfit := rigs.misfit(sightings.images, sightings.cameras):
        return None, f"rigs and frames of the source: {misfit}: left out; COLMAP makes trivial ones"
    return rigs, ""
