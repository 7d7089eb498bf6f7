"""The points of a transforms.json: of a COLMAP model beside it, with its tracks, else of the PLY file that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.plain_text import counted
from splatbatch.scene.colmap.reconstruction import Reconstruction, read_points2d, read_reconstruction
from splatbatch.scene.colmap.types import Floats, Image
from splatbatch.scene.imports.agreement import share_that_see
from splatbatch.scene.imports.capture import Cloud, Mistakes, Notes, Shot, spelt
from splatbatch.scene.imports.ply import read_cloud
from splatbatch.scene.imports.pose import IDENTITY, Similarity
from splatbatch.scene.imports.transforms.document import Document

BESIDE = ("colmap/sparse/0", "colmap/sparse", "sparse/0", "sparse")
_LEAST_COMMON = 3
_ROTATIONS, _CENTERS = 2e-3, 2e-3
"""How far poses may differ, in radians and in shares of the cameras' spread, to be those of the same model."""
_SAME_WORLD = 1e-6
_SHARE_LOST = 0.5


@dataclass(frozen=True, eq=False)
class Pair:
    """A shot and the image of the COLMAP model that is the same photograph."""

    shot: Shot
    image: Image


def cloud_beside(
    document: Document, ids: Mapping[str, int], shots: Sequence[Shot], notes: Notes
) -> tuple[Cloud, tuple[Shot, ...]] | None:
    """Return the points of the COLMAP model beside a file, and the shots with its keypoints; None where none fits.

    Args:
        document: the transforms.json.
        ids: colmap_im_id by the name of the shot, where it is written.
        shots: those that were read.
        notes: say which model, and how its world was brought to this one.
    """
    folder = next((path for name in BESIDE if _is_model(path := document.folder / name)), None)
    if folder is None:
        return None
    try:
        model = read_reconstruction(folder)
    except SceneError as error:
        notes.leave_out(f"the COLMAP model beside it cannot be read: {error.message}")
        return None
    pairs = _pairs(shots, model.images, ids)
    moved = _same_world(pairs)
    name = folder.relative_to(document.folder)
    if moved is None or not len(model.points):
        why = f"{len(pairs)} of its photographs are the same" if len(pairs) < _LEAST_COMMON else "its poses are others"
        notes.leave_out(f"the COLMAP model in {name}: {'it has no points' if moved else why}")
        return None
    notes.convert(f"points with their tracks are those of {name}{_in_words(moved)}")
    return _cloud(model, moved, folder), _with_keypoints(shots, pairs, model)


def _is_model(folder: Path) -> bool:
    return any((folder / f"points3D.{suffix}").is_file() for suffix in ("bin", "txt"))


def _pairs(shots: Sequence[Shot], images: Sequence[Image], ids: Mapping[str, int]) -> list[Pair]:
    by_id, by_name = {image.id: image for image in images}, {image.name: image for image in images}
    bases = [PurePosixPath(image.name).name for image in images]
    by_base = {base: image for base, image in zip(bases, images, strict=True) if bases.count(base) == 1}
    pairs = []
    for shot in shots:
        own = by_id.get(ids.get(shot.name, -1))
        image = by_name.get(shot.name) or by_base.get(PurePosixPath(shot.name).name) or own
        pairs += [Pair(shot, image)] if image else []
    return pairs


def _same_world(pairs: Sequence[Pair]) -> Similarity | None:
    """Return what leads from the model's world to that of the shots; None where the poses are not the same."""
    if len(pairs) < _LEAST_COMMON:
        return None
    turns = np.array([pair.shot.rotation.T @ pair.image.rotation() for pair in pairs])  # [n, 3, 3]
    left, _, right = np.linalg.svd(turns.sum(axis=0))
    rotation = left @ right
    if np.linalg.det(rotation) < 0 or np.abs(turns - rotation).max() > _ROTATIONS:
        return None
    here = np.array([pair.shot.center for pair in pairs])
    there = np.array([pair.image.center() for pair in pairs]) @ rotation.T
    spread = there - there.mean(axis=0)
    scale = float((spread * (here - here.mean(axis=0))).sum() / (spread**2).sum())
    if not (np.isfinite(scale) and scale > 0):
        return None
    moved = Similarity(rotation, here.mean(axis=0) - scale * there.mean(axis=0), scale)
    off = np.linalg.norm(scale * there + moved.translation - here, axis=1)
    size = float(np.linalg.norm(here - here.mean(axis=0), axis=1).max())
    if off.max() > _CENTERS * size:
        return None
    is_same = np.abs(np.array(moved.matrix()) - np.eye(4)).max() < _SAME_WORLD * max(1.0, size)
    return IDENTITY if is_same else moved


def _in_words(moved: Similarity) -> str:
    if moved is IDENTITY:
        return ""
    return f", brought into this world by what the poses of both say (scale {moved.scale:.6g})"


def _cloud(model: Reconstruction, moved: Similarity, folder: Path) -> Cloud:
    points = model.points
    return Cloud(moved.of_points(points.xyz), points.rgb, str(folder), points.ids)


def _with_keypoints(shots: Sequence[Shot], pairs: Sequence[Pair], model: Reconstruction) -> tuple[Shot, ...]:
    """Return the shots with the model's keypoints, in pixels of their own cameras."""
    keypoints = read_points2d(model.folder)
    found = {}
    for pair in pairs:
        theirs, own = model.cameras[pair.image.camera_id], pair.shot.camera
        ratio = (own.width / theirs.width, own.height / theirs.height)
        seen = keypoints[pair.image.id]
        found[pair.shot.name] = replace(pair.shot, keypoints=replace(seen, xy=seen.xy * ratio))
    return tuple(found.get(shot.name, shot) for shot in shots)


def cloud_named(
    document: Document, undone: Similarity, shots: Sequence[Shot], notes: Notes, mistakes: Mistakes
) -> Cloud | None:
    """Return the points of ply_file_path in the world of the shots; None where none is named.

    `undone` leads from the world of the file to that of the shots.
    """
    written = document.top.get("ply_file_path")
    if written is None:
        return None
    path = document.folder / written if isinstance(written, str) and written else None
    if path is None or not path.is_file():
        what = f"ply_file_path {spelt(written)}: no such file"
        mistakes.add(document.path.name, what, "Put it there, name another with --points, or remove the key.")
        return None
    try:
        cloud, told = read_cloud(path)
    except SceneError as error:
        mistakes.add(document.path.name, error.message, error.hint)
        return None
    for line in told:
        notes.convert(line)
    return _placed(cloud, undone, shots, notes, written)


def _placed(cloud: Cloud, undone: Similarity, shots: Sequence[Shot], notes: Notes, name: str) -> Cloud:
    """Return the points moved as the poses were; some programs have left them where they were, which views tell."""
    moved = undone.of_points(cloud.xyz)
    if undone is not IDENTITY and share_that_see(shots, moved) < _SHARE_LOST * share_that_see(shots, cloud.xyz):
        notes.convert(f"{name}: its points lie where the photographs look without applied_transform undone: kept so")
        moved = cloud.xyz
    notes.convert(f"{counted(len(moved), 'point')} of {name}; they have no tracks")
    return replace(cloud, xyz=moved)


def read_applied(document: Document, matrix: Floats | None, scale: float | None) -> Similarity:
    """Return what leads from the world of a file back to the one before applied_transform and applied_scale."""
    from splatbatch.scene.imports.pose import similarity_of

    if matrix is None and scale is None:
        return IDENTITY
    applied = similarity_of(matrix) if matrix is not None else IDENTITY
    grown = Similarity(np.eye(3), np.zeros(3), scale if scale is not None else 1.0)
    return grown.after(applied).inverse()
