"""A transforms.json, or the split files of a Blender scene, as a capture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from splatbatch.fields import number
from splatbatch.plain_text import counted
from splatbatch.scene.imports.capture import Capture, Mistakes, Notes, Shot, Wish, some, spelt, unknown_keys
from splatbatch.scene.imports.checks import sizes_of
from splatbatch.scene.imports.pose import IDENTITY, NoPose, Similarity, as_matrix
from splatbatch.scene.imports.transforms import document as documents
from splatbatch.scene.imports.transforms import frames as framing
from splatbatch.scene.imports.transforms.document import Document
from splatbatch.scene.imports.transforms.frames import Frame, FrameReader
from splatbatch.scene.imports.transforms.intrinsics import KEYS as OF_LENS
from splatbatch.scene.imports.transforms.intrinsics import Intrinsics, read_camera
from splatbatch.scene.imports.transforms.points import cloud_beside, cloud_named, read_applied
from splatbatch.scene.photos.folders import photographs_below

_LISTS = tuple(f"{split}_filenames" for split in documents.SPLITS)
_KNOWN = OF_LENS | {"frames", "applied_transform", "applied_scale", "ply_file_path", *_LISTS}
_SAYS_NOTHING = {
    "orientation_override": "the frame of the model is not turned",
    "auto_scale_poses_override": "the frame of the model is not scaled",
    "center_method_override": "the frame of the model is not moved",
    "aabb_scale": "it is the box of instant-ngp",
    "scale": "it is how instant-ngp shows the scene; poses are as they are written",
    "offset": "it is how instant-ngp shows the scene; poses are as they are written",
    "from_na": "it is how instant-ngp shows the scene; poses are as they are written",
    "depth_unit_scale_factor": "no trainer here reads depth",
    "integer_depth_scale": "no trainer here reads depth",
    "enable_depth_loading": "no trainer here reads depth",
}
"""Keys that are known, and why nothing is made of them."""


def read(paths: list[Path], wish: Wish, notes: Notes, mistakes: Mistakes) -> Capture | None:
    """Return what the files say; None where mistakes leave nothing to go on with."""
    found = documents.read_documents(paths, mistakes)
    reader = FrameReader(wish.images, notes, mistakes, skips_missing=wish.skips_missing)
    undone = [_undone(each, notes, mistakes) for each in found]
    frames = [frame for each in found for frame in reader.read(each)]
    if reader.missing:
        notes.leave_out(f"{counted(len(reader.missing), 'pose')} without photograph: {some(reader.missing)}")
    shots = _shots(frames, dict(zip(map(id, found), undone, strict=True)), notes, mistakes)
    for each in found:
        _tell_keys(each, notes)
    if not shots:
        mistakes.add(paths[0].name, "no frame is left with a photograph and a pose", "See the mistakes of its frames.")
        return None
    _tell_unposed(found, frames, notes)
    return _capture(found[0], undone[0], frames, shots, (notes, mistakes))


def _capture(
    first: Document, undone: Similarity, frames: Sequence[Frame], shots: tuple[Shot, ...], told: tuple[Notes, Mistakes]
) -> Capture:
    notes, mistakes = told
    ids = {shot.name: number(frame.keys.get("colmap_im_id")) for shot, frame in zip(shots, frames, strict=False)}
    beside = cloud_beside(first, {name: int(value) for name, value in ids.items() if value is not None}, shots, notes)
    cloud = beside[0] if beside else cloud_named(first, undone, shots, notes, mistakes)
    is_moved = undone is not IDENTITY
    world = "the world before applied_transform: that of the reconstruction" if is_moved else "the world of the file"
    reference = {"from_file_to_model": undone.matrix()} if is_moved else {}
    kind = "transforms.json" if first.path.name == documents.MAIN else f"{first.path.name} and its like"
    return Capture(kind, beside[1] if beside else shots, cloud, world, reference=reference, of_points=undone)


def _undone(document: Document, notes: Notes, mistakes: Mistakes) -> Similarity:
    """Return what leads back from what was applied to the poses of a file."""
    where, given = document.path.name, document.top.get("applied_transform")
    scale = number(document.top.get("applied_scale"))
    if "applied_scale" in document.top and not (scale and scale > 0):
        what = f"applied_scale {spelt(document.top['applied_scale'])} is no number above 0"
        mistakes.add(where, what, "Write the scale that the poses were multiplied by, or remove the key.")
        scale = None
    try:
        undone = read_applied(document, None if given is None else as_matrix(given), scale)
    except NoPose as error:
        remedy = "It is 3 rows of 4 numbers: the rotation and shift that were applied to the world."
        mistakes.add(where, f"applied_transform {error}", remedy)
        return IDENTITY
    if undone is not IDENTITY:
        which = " and ".join(key for key in ("applied_transform", "applied_scale") if key in document.top)
        notes.convert(f"{which} was undone: the model lies in the world that it was computed in")
    return undone


def _shots(
    frames: Sequence[Frame], undone: dict[int, Similarity], notes: Notes, mistakes: Mistakes
) -> tuple[Shot, ...]:
    if not frames:
        return ()
    sizes, names = sizes_of([frame.photo for frame in frames]), framing.common_names(frames)
    splits, found = _splits(frames, mistakes), []
    for frame, name in zip(frames, names, strict=True):
        keys = Intrinsics(frame.keys, frame.document.top, frame.where, mistakes)
        camera = read_camera(keys, sizes.get(frame.photo), notes)
        rotation, center = undone[id(frame.document)].of_pose(frame.rotation, frame.center)
        if camera is not None:
            shot = Shot(name, frame.photo, camera, rotation, center, frame.where, frame.mask, frame.depth)
            found.append(replace(shot, split=frame.document.split or splits.get(frame.photo, "")))
    if len({id(frame.document.top) for frame in frames}) == 1:
        _tell_own_lenses(frames, notes)
    return tuple(found)


def _tell_own_lenses(frames: Sequence[Frame], notes: Notes) -> None:
    """Say where frames contradict the top: programs differ in which of the two they take."""
    top = frames[0].document.top
    keys = [
        key
        for key in sorted(OF_LENS & top.keys())
        if any(frame.keys.get(key, top[key]) != top[key] for frame in frames)
    ]
    if keys:
        notes.convert(f"{', '.join(keys)}: frames have values of their own, which count; those at the top count not")


def _splits(frames: Sequence[Frame], mistakes: Mistakes) -> dict[Path, str]:
    """Return the split of each photograph that train_filenames, val_filenames or test_filenames names."""
    found: dict[Path, str] = {}
    known = {str(frame.photo.resolve()): frame.photo for frame in frames}
    for document in {id(frame.document): frame.document for frame in frames}.values():
        for key in _LISTS:
            listed = document.top.get(key)
            for name in listed if isinstance(listed, list) else []:
                photo = known.get(str((document.folder / str(name)).resolve()))
                if photo:
                    found[photo] = key.partition("_")[0]
                else:
                    remedy = "Name photographs as their file_path does."
                    mistakes.add(document.path.name, f"{key}: {spelt(name)} is the photograph of no frame", remedy)
    return found


def _tell_keys(document: Document, notes: Notes) -> None:
    for key, why in _SAYS_NOTHING.items():
        if key in document.top:
            notes.leave_out(f"{key}: {why}")
    unknown = unknown_keys(document.top, frozenset(_KNOWN | _SAYS_NOTHING.keys()))
    if unknown:
        notes.leave_out(f"keys of {document.path.name} that are not known: {some(unknown, 8)}")
    of_frames = Counter[str]()
    for frame in document.top["frames"]:
        of_frames.update(unknown_keys(frame, frozenset(framing.KEYS)) if isinstance(frame, dict) else ())
    if of_frames:
        told = [f"{key} ({count})" for key, count in of_frames.most_common()]
        notes.leave_out(f"keys of frames that are not known: {some(told, 8)}")
    ply = sorted(path.name for path in document.folder.glob("*.ply"))
    if ply and "ply_file_path" not in document.top:
        notes.leave_out(f"{some(ply)} beside it: no ply_file_path names it (--points FILE takes it)")


def _tell_unposed(found: Sequence[Document], frames: Sequence[Frame], notes: Notes) -> None:
    """Say how many photographs beside those with a pose have none."""
    folders = {frame.photo.parent for frame in frames}
    posed = {frame.photo.absolute() for frame in frames}
    posed |= {extra.absolute() for frame in frames for extra in (frame.mask, frame.depth) if extra}
    others: list[Any] = []
    for folder in sorted(folders):
        others += [name for name in photographs_below(folder) if (folder / name).absolute() not in posed]
    if others:
        notes.leave_out(f"{counted(len(others), 'photograph')} without a pose: {some(sorted(set(others)))}")
