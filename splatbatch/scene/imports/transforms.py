"""Reads a transforms.json (nerfstudio, instant-ngp), or the files of a Blender scene's splits, for an import.

Points are taken from a COLMAP model beside the file, with its tracks, else from the PLY file that the file names. A
frame's own keys of a lens go before those at the top. Focal lengths are read in pixels, else computed from the angle of
view. All mistakes are recorded, so that they are listed at once.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from json import JSONDecodeError
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.fields import number, whole_number
from splatbatch.json_text import parse
from splatbatch.scene.colmap.files import opened
from splatbatch.scene.colmap.reconstruction import read_points2d, read_reconstruction
from splatbatch.scene.colmap.types import Camera, Image
from splatbatch.scene.imports.agreement import share_that_see
from splatbatch.scene.imports.capture import (
    OPENGL,
    ImportLog,
    ImportOptions,
    NoPhotograph,
    PointCloud,
    PosedPhoto,
    SourceCapture,
    similarity_of,
    some,
    spelt,
    why_no_number,
)
from splatbatch.scene.imports.lens import Bend, Lens, bend_of, in_colmap, panorama
from splatbatch.scene.imports.ply import read_cloud
from splatbatch.scene.photos.folders import FolderListings, photographs_below
from splatbatch.scene.photos.headers import Size, sizes_of
from splatbatch.scene.similarity import IDENTITY, Similarity
from splatbatch.text import plural

OTHER_NAMES = {
    "fx": "Rename the keys fx and fy to fl_x and fl_y, as nerfstudio and instant-ngp call them.",
    "focal_length": "Write the focal length as fl_x and fl_y, in pixels.",
    "focal": "Write the focal length as fl_x and fl_y, in pixels.",
    **dict.fromkeys(
        ("K", "intrinsics", "intrinsic_matrix", "camera_intrinsics", "intrinsic", "cam_K"),
        "Write fl_x, fl_y, cx and cy instead of the matrix, whose rows 1 and 2 are fl_x 0 cx and 0 fl_y cy.",
    ),
}
"""Keys under which other programs write intrinsics, which are not read, with what to do about each."""
_CONTRARY = 0.01
"""Relative difference from which on a focal length and an angle of view contradict each other."""
BESIDE = ("colmap/sparse/0", "colmap/sparse", "sparse/0", "sparse")
_LEAST_COMMON = 3
_ROTATIONS, _CENTERS = 2e-3, 2e-3
"""Largest difference of poses of the same model, in radians and in shares of the cameras' spread."""
_SAME_WORLD = 1e-6
_SHARE_LOST = 0.5
MAIN = "transforms.json"
SPLITS = ("train", "val", "test")
LARGEST_MIB = 512
_SAYS_NOTHING = {
    "orientation_override": "the coordinates of a model are never rotated",
    "auto_scale_poses_override": "the coordinates of a model are never scaled",
    "center_method_override": "the coordinates of a model are never moved",
    "aabb_scale": "only instant-ngp needs the size of its box",
    "scale": "only instant-ngp uses this key, to show the scene; poses are taken as they are written",
    "offset": "only instant-ngp uses this key, to show the scene; poses are taken as they are written",
    "from_na": "only instant-ngp uses this key, to show the scene; poses are taken as they are written",
    "depth_unit_scale_factor": "depth images are not used in training",
    "integer_depth_scale": "depth images are not used in training",
    "enable_depth_loading": "depth images are not used in training",
}
"""Known keys at the top that are ignored, with the reason."""


_NUMBERS = (
    *("w", "h", "fl_x", "fl_y", "cx", "cy"),
    *("camera_angle_x", "camera_angle_y"),  # whole angles of view in radians
    *("x_fov", "y_fov"),  # the same in degrees, as instant-ngp writes them
    *("k1", "k2", "k3", "k4", "k5", "k6", "p1", "p2"),
)
"""Keys of a lens whose values are numbers; a frame's own keys go before those at the top."""
_COMPUTED = {
    "fl_x": "focal lengths are computed from camera_angle_x (and camera_angle_y, if it is written)",
    **dict.fromkeys(("cx", "cy"), "cx, cy are not written: the principal point is the middle of the image"),
}
"""How numbers are computed that are not written, by key."""
_OF_LENSES = {"camera_model", "is_fisheye", *_NUMBERS}
_APPLIED = {
    "applied_transform": "Write applied_transform as 3 rows of 4 numbers: the rotation and shift of the world.",
    "applied_scale": "Write applied_scale as the factor that the poses were multiplied by, or remove the key.",
}
"""Keys of what was done to the world after the poses were computed, with the remedies for wrong values."""
_LISTS = tuple(f"{split}_filenames" for split in SPLITS)
_KNOWN = {"frames", "ply_file_path", *_LISTS, *_APPLIED, *_OF_LENSES, *_SAYS_NOTHING}
_OF_FRAMES = {"file_path", "transform_matrix", "mask_path", "depth_file_path", "colmap_im_id", "sharpness", "rotation"}


@dataclass(frozen=True)
class TransformsFile:
    """A JSON file with frames that was read: a transforms.json, or the file of one split. `top` is its content."""

    path: Path
    split: str
    """Split in the file's name: train, val or test; empty if the name has none."""
    top: Mapping[str, Any]
    undone: Similarity
    """Similarity from the file's coordinates to those before applied_transform and applied_scale.

    `IDENTITY` (the same object) if the file has neither, or a faulty applied_scale. Of a faulty applied_transform
    nothing is undone.
    """


@dataclass(frozen=True, eq=False)
class TransformsFrame:
    """A frame of a file, with an existing photograph and a valid pose; its lens is not read yet.

    `where` is its place for messages, and `written` its keys and values. `mask` and `depth` are None if not named, or
    if the named file is missing.
    """

    where: str
    document: TransformsFile
    written: Mapping[str, object]
    pose: Similarity
    """Transform from camera coordinates (OpenGL's axes: y up, looking along -z) to the world."""
    name: str
    """Image name in the model: file_path with the name of the found file, shortened as `common_names` does."""
    photo: Path
    mask: Path | None
    depth: Path | None


def _camera(frame: TransformsFrame, photo: Size | None, log: ImportLog) -> Camera | None:
    """Return the COLMAP camera of a frame, given the size of its photograph; None where its keys hold mistakes."""
    top, own = frame.document.top, frame.written
    written = {**top, **own}
    numbers = {key: found for key in _NUMBERS if key in written and (found := number(written[key])) is not None}
    broken = [key for key in _NUMBERS if key in written and key not in numbers]
    places = dict.fromkeys(top.keys() - own.keys(), f"{frame.document.path.name}: top level")
    for key in broken:
        what = f"{key} {spelt(written[key])}: {why_no_number(written[key])}"
        log.mistake(places.get(key, frame.where), what, f"Write a number as {key}, or remove the key.")
    try:
        return None if broken else read_camera(numbers, written, photo, log)
    except SceneError as error:
        log.mistake(places.get(error.message.partition(" ")[0], frame.where), error.message, error.hint)
    return None


def read_camera(
    numbers: Mapping[str, float], written: Mapping[str, object], photo: Size | None, log: ImportLog
) -> Camera:
    """Return the COLMAP camera (id 0) of a frame's intrinsics, of the written size, else of the photograph's.

    Args:
        numbers: numbers of the lens that are written, by key.
        written: all keys of the frame and of the top of the file, with their values.
        photo: width and height of the photograph in pixels; None: the photograph cannot be read.
        log: record of the import, to which assumptions are added.

    Raises:
        SceneError: a key is missing or has an impossible value, keys contradict each other, or no COLMAP camera comes
            close to the lens. The message begins with the key.
    """
    size, model = _size(numbers, photo), written.get("camera_model")
    bend: Bend = "equidistant" if written.get("is_fisheye") is True else "frame"
    if model is not None:
        bend = bend_of("camera_model", str(model))
    elif bend == "frame":
        log.convert("camera_model is not written: a perspective lens with the written k and p was assumed (OPENCV)")
    if bend == "panorama":
        return panorama(size)
    measured = photo if min(size) <= 1 and photo else size
    fx, fy = _focal_lengths(numbers, written, measured, is_fisheye=bend == "equidistant")
    for key, how in _COMPUTED.items():
        if key not in numbers:
            log.convert(how)
    given = {key: value for key, value in numbers.items() if key[0] in "kp" and value}
    if given and "PINHOLE" in str(model).upper():
        raise SceneError(
            f"camera_model {model} has no distortion, but there are"
            f" {', '.join(f'{key} {value:g}' for key, value in given.items())}",
            "Write OPENCV as camera_model if the photographs are distorted; otherwise remove k and p.",
        )
    cx, cy = numbers.get("cx", measured[0] / 2), numbers.get("cy", measured[1] / 2)
    lens = Lens(fx, fy, cx, cy, bend="rational" if {"k5", "k6"} & given.keys() else bend, **given)
    refit = "Undistort the photographs first, or calibrate without k4."
    camera, fit = in_colmap(lens, size, f"k4 {lens.k4:g} of a radial polynomial", refit)
    if fit:
        log.convert(fit)
    return camera


def _size(numbers: Mapping[str, float], photo: Size | None) -> Size:
    """Return w and h as written, else the photograph's size."""
    if {"w", "h"} & numbers.keys():
        wide, high = whole_number(numbers.get("w")), whole_number(numbers.get("h"))
        if wide is None or high is None or min(wide, high) < 0:
            what = f"w {spelt(numbers.get('w'))}, h {spelt(numbers.get('h'))}: not the size of a photograph"
            raise SceneError(what, "Write w and h as width and height in pixels.")
        return wide, high
    if photo is None:
        raise SceneError(
            "w is not written, and the photograph cannot be read", "Copy the photograph again, or write w and h."
        )
    return photo


def _focal_lengths(
    numbers: Mapping[str, float], written: Mapping[str, object], size: Size, *, is_fisheye: bool
) -> tuple[float, float]:
    """Return focal lengths in pixels, computed from angles of view where none are written."""
    of_angle = {axis: _of_angle(numbers, axis, side) for axis, side in zip("xy", size, strict=True)}
    x = numbers.get("fl_x", None if is_fisheye else of_angle["x"])
    if x is None:
        remedy = "Write fl_x (and fl_y) in pixels" + ("." if is_fisheye else ", or camera_angle_x in radians.")
        other = next((key for key in OTHER_NAMES if written.get(key) is not None), "")
        what = f"{other} is written instead of fl_x" if other else "fl_x is missing"
        raise SceneError(what, OTHER_NAMES.get(other, remedy))
    for axis, angle in of_angle.items():
        focal = numbers.get(f"fl_{axis}")
        if focal and angle and not is_fisheye and abs(angle / focal - 1) > _CONTRARY:
            what = f"fl_{axis} {focal:g} contradicts camera_angle_{axis}, from which {angle:.6g} px would follow"
            raise SceneError(what, "Keep the key whose value is right, and remove the other.")
    y = next(value for value in (numbers.get("fl_y"), of_angle["y"], x) if value is not None)
    if min(x, y) <= 0:
        raise SceneError(f"fl_x {x:g}, fl_y {y:g}: a focal length must be above 0", "Write fl_x and fl_y in pixels.")
    return x, y


def _of_angle(numbers: Mapping[str, float], axis: str, side: int) -> float | None:
    """Return the focal length in pixels from camera_angle_x (radians), or from instant-ngp's x_fov (degrees)."""
    angle, degrees = numbers.get(f"camera_angle_{axis}"), numbers.get(f"{axis}_fov")
    if angle is None and degrees is None:
        return None
    angle = math.radians(degrees or 0.0) if angle is None else angle
    if not 0 < angle < math.pi:
        remedy = "Write the whole angle of view in radians, between 0 and pi."
        raise SceneError(f"camera_angle_{axis} {angle:g} is no angle of view", remedy)
    return side / 2 / math.tan(angle / 2)


def cloud_beside(
    document: TransformsFile, ids: Mapping[str, int | None], shots: Sequence[PosedPhoto], log: ImportLog
) -> tuple[PointCloud, tuple[PosedPhoto, ...]] | None:
    """Return the points of the COLMAP model beside a file, and the posed photographs with that model's keypoints.

    The model is the first in `BESIDE` with a file of points. The points are moved to the world of the poses. None if
    there is no model, or the model cannot be read, has no points or does not fit; in the latter cases `log` says why.

    Args:
        document: the file with frames.
        ids: id of the image in the COLMAP model (key colmap_im_id) by image name; None: the key is missing, or is no
            whole number.
        shots: posed photographs of the file; those that the model lacks stay as they are.
        log: record of the import, to which the model and its move are added.

    Raises:
        SceneError: the model's keypoints cannot be read.
    """
    folders = [document.path.parent / name for name in BESIDE]
    folder = next((one for one in folders for end in ("bin", "txt") if (one / f"points3D.{end}").is_file()), None)
    if folder is None:
        return None
    try:
        model = read_reconstruction(folder)
    except SceneError as error:
        log.leave_out(f"the COLMAP model beside {document.path.name} cannot be read: {error.message}")
        return None
    pairs = _pairs(shots, model.images, ids)
    moved = _same_world(pairs)
    name = folder.relative_to(document.path.parent)
    if moved is None or not len(model.points):
        why = (
            f"only {len(pairs)} of the model's photographs are imported"
            if len(pairs) < _LEAST_COMMON
            else f"the model's poses differ from those of {document.path.name}"
        )
        log.leave_out(f"the COLMAP model in {name}: {'the model has no points' if moved else why}")
        return None
    how = f", moved to the coordinates of the poses (scale {moved.scale:.6g})"
    log.convert(f"points and their tracks were taken from {name}{'' if moved is IDENTITY else how}")
    points = model.points
    cloud = PointCloud(moved.of_points(points.xyz), points.rgb, str(folder), points.ids)
    keypoints, found = read_points2d(model.folder), {}
    for shot, image in pairs:
        theirs, own, seen = model.cameras[image.camera_id], shot.camera, keypoints[image.id]
        xy = seen.xy * (own.width / theirs.width, own.height / theirs.height)  # pixels of the shot's own camera
        found[shot.name] = replace(shot, keypoints=replace(seen, xy=xy))
    return cloud, tuple(found.get(shot.name, shot) for shot in shots)


def _pairs(
    shots: Sequence[PosedPhoto], images: Sequence[Image], ids: Mapping[str, int | None]
) -> list[tuple[PosedPhoto, Image]]:
    """Return the photographs of the import with the images of the COLMAP model that show the same."""
    by_id: dict[int | None, Image] = {image.id: image for image in images}
    by_name = {image.name: image for image in images}
    bases = [PurePosixPath(image.name).name for image in images]
    by_base = {base: image for base, image in zip(bases, images, strict=True) if bases.count(base) == 1}
    pairs = []
    for shot in shots:
        own = by_id.get(ids.get(shot.name))
        image = by_name.get(shot.name) or by_base.get(PurePosixPath(shot.name).name) or own
        pairs += [(shot, image)] if image else []
    return pairs


def _same_world(pairs: Sequence[tuple[PosedPhoto, Image]]) -> Similarity | None:
    """Return the similarity from the model's world to that of the shots; None where their poses differ otherwise."""
    if len(pairs) < _LEAST_COMMON:
        return None
    turns = np.array([shot.rotation.T @ image.rotation() for shot, image in pairs])  # [n, 3, 3]
    left, _, right = np.linalg.svd(turns.sum(axis=0))
    rotation = left @ right
    if np.linalg.det(rotation) < 0 or np.abs(turns - rotation).max() > _ROTATIONS:
        return None
    here = np.array([shot.center for shot, _ in pairs])
    there = np.array([image.center() for _, image in pairs]) @ rotation.T
    spread, away = there - there.mean(axis=0), here - here.mean(axis=0)
    scale, size = float((spread * away).sum() / (spread**2).sum()), float(np.linalg.norm(away, axis=1).max())
    if not 0 < scale < math.inf or np.linalg.norm(scale * spread - away, axis=1).max() > _CENTERS * size:
        return None
    moved = Similarity(rotation, here.mean(axis=0) - scale * there.mean(axis=0), scale)
    is_same = np.abs(np.array(moved.matrix()) - np.eye(4)).max() < _SAME_WORLD * max(1.0, size)
    return IDENTITY if is_same else moved


def cloud_named(document: TransformsFile, shots: Sequence[PosedPhoto], log: ImportLog) -> PointCloud | None:
    """Return the points of the PLY file that ply_file_path names, in the world of the poses; None without the key.

    Like the poses, the points are moved to the coordinates before applied_transform. The points stay as they are if
    clearly more photographs have the unmoved points in view: some programs move the poses alone.

    Args:
        document: the file with frames.
        shots: posed photographs of the file.
        log: record of the import.

    Raises:
        SceneError: the PLY file is missing or cannot be read.
    """
    written = document.top.get("ply_file_path")
    if (path := _file_beside(document, "ply_file_path", written)) is None:
        return None
    cloud = read_cloud(path, log)
    moved = document.undone.of_points(cloud.xyz)
    # some programs do not move the points with the poses; the views show which holds
    was_moved = document.undone is not IDENTITY
    if was_moved and share_that_see(shots, moved) < _SHARE_LOST * share_that_see(shots, cloud.xyz):
        log.convert(
            f"{written}: the points fit the photographs without undoing applied_transform, and stay as they are"
        )
        moved = cloud.xyz
    log.convert(f"{plural(len(moved), 'point')} taken from {written}, without tracks")
    return replace(cloud, xyz=moved)


def _file_beside(document: TransformsFile, key: str, written: object) -> Path | None:
    """Return the file that a key names; None if it names none.

    Raises:
        SceneError: there is no such file.
    """
    if written is None:
        return None
    path = document.path.parent / _plain(written) if isinstance(written, str) and written else None
    if path is None or not path.is_file():
        otherwise = " Or name another file with --points." if key == "ply_file_path" else ""
        raise SceneError(f"{key} {spelt(written)}: no such file", f"Put the file there, or remove {key}.{otherwise}")
    return path


def find_documents(source: Path) -> list[Path]:
    """Return the JSON files of a file or folder: the file itself, transforms.json in the folder, or one for each split.

    Empty if there are none. Their content is not read.

    Raises:
        PermissionError: the folder may not be entered.
    """
    if source.is_file():
        return [source] if source.suffix.lower() == ".json" else []
    if (source / MAIN).is_file():
        return [source / MAIN]
    return [path for split in SPLITS if (path := source / f"transforms_{split}.json").is_file()]


def read_documents(paths: Iterable[Path], log: ImportLog) -> list[TransformsFile]:
    """Return the content of JSON files with frames, in their order.

    A file that cannot be read, is no JSON or has no frames is recorded in `log` as a mistake and left out.
    """
    found = []
    for path in paths:
        with log.noting(
            path.name, "Export or copy the file again; complete JSON ends with the bracket with which it began."
        ):
            top, split = _read(path), path.stem.removeprefix("transforms_")
            found.append(TransformsFile(path, split if split in SPLITS else "", top, _undone(path, top, log)))
    return found


def _undone(path: Path, top: Mapping[str, object], log: ImportLog) -> Similarity:
    """Return the similarity that undoes applied_transform and applied_scale of a file."""
    written = [key for key in _APPLIED if top.get(key) is not None]
    if written:
        log.convert(f"{' and '.join(written)} was undone: the model has the coordinates in which it was computed")
    applied, scale = IDENTITY, number(top.get("applied_scale", 1.0))
    if "applied_transform" in written:
        with log.noting(path.name, _APPLIED["applied_transform"]):
            applied = _similarity(top, "applied_transform")
    if not scale or scale < 0:
        what = f"applied_scale {spelt(top['applied_scale'])} is not a number above 0"
        log.mistake(path.name, what, _APPLIED["applied_scale"])
        return IDENTITY
    return Similarity(np.eye(3), np.zeros(3), scale).after(applied).inverse() if written else IDENTITY


def _similarity(written: Mapping[str, object], key: str) -> Similarity:
    """Return the matrix under a key.

    Raises:
        SceneError: it is no similarity; the message begins with the key.
    """
    try:
        return similarity_of(written[key])
    except SceneError as error:
        raise SceneError(f"{key}: {error.message}") from error


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a file with frames.

    Raises:
        SceneError: it is no JSON, or has no frames.
    """
    with opened(path, LARGEST_MIB) as (file, _):
        data = file.read()
    try:
        top = parse(data)
    except JSONDecodeError as error:
        raise SceneError(
            f"line {error.lineno}, column {error.colno}: {error.msg}; the file is no complete JSON"
        ) from error
    except ValueError as error:
        raise SceneError(f"the file is no JSON ({error})") from error
    if not isinstance(top, dict) or not isinstance(top.get("frames"), list):
        raise SceneError(
            "the key frames is missing, or is not a list" if isinstance(top, dict) else "the file holds no JSON object",
            "A transforms.json has frames: [{file_path, transform_matrix}, …].",
        )
    if not top["frames"]:
        raise SceneError("the list of frames is empty", "Export the file again with the photographs that have a pose.")
    return top


def _frames(documents: Iterable[TransformsFile], images: Path | None, log: ImportLog) -> list[TransformsFrame]:
    """Return the valid frames of files; mistakes in the others are noted."""
    found, folders = [], FolderListings()
    for document in documents:
        for index, keys in enumerate(document.top["frames"]):
            where = f"{document.path.name}: frames[{index}]"
            if not isinstance(keys, dict):
                log.mistake(where, f"{spelt(keys)} is no frame", "A frame has file_path and transform_matrix.")
            elif frame := _frame(document, keys, where, partial(_find, images=images, folders=folders), log):
                found.append(frame)
    if scaled := sum(abs(frame.pose.scale - 1) > 1e-3 for frame in found):
        log.convert(f"{scaled} of the poses contain a scale, which was removed from their rotations")
    written = {str(frame.written["file_path"]): frame.photo for frame in found}
    renamed = [one for one, photo in written.items() if _plain(one).rpartition("/")[2] not in (photo.name, photo.stem)]
    if renamed:
        log.convert(f"{plural(len(renamed), 'photograph')} found under another name: {some(renamed)}")
    return [replace(frame, name=name) for frame, name in zip(found, common_names(found), strict=True)]


def _frame(
    document: TransformsFile,
    written: Mapping[str, object],
    where: str,
    find: Callable[[str, TransformsFile], Path],
    log: ImportLog,
) -> TransformsFrame | None:
    path = written.get("file_path")
    if not isinstance(path, str) or not path.strip():
        log.mistake(
            where, f"file_path {spelt(path)} names no photograph", "Write the path of the photograph as file_path."
        )
        path = ""
    place = f'{where} "{path}"' if path else where
    pose, photo, mask, depth = None, None, None, None
    with log.noting(
        place, "A transform_matrix is a 4x4 matrix from camera to world: a rotation and a position, without mirroring."
    ):
        if written.get("transform_matrix") is None:
            what = "transform_matrix is missing: a photograph without a pose"
            if written.keys() & {"transform_matrix_start", "transform_matrix_end", "rolling_shutter"}:
                what = "the frame has poses at start and end of the exposure (rolling shutter), not a transform_matrix"
            remedy = "Export one pose for each photograph. Align photographs without a pose, or remove their frames."
            raise SceneError(what, remedy)
        pose = _similarity(written, "transform_matrix")
    with log.noting(place):
        photo = find(path, document) if path else None
    with log.noting(place):
        mask = _file_beside(document, "mask_path", written.get("mask_path"))
    with log.noting(place):
        depth = _file_beside(document, "depth_file_path", written.get("depth_file_path"))
    if pose is None or photo is None:
        return None
    name = str(PurePosixPath(_plain(path)).with_name(photo.name))
    return TransformsFrame(place, document, written, pose, name, photo, mask, depth)


def _find(path: str, document: TransformsFile, images: Path | None, folders: FolderListings) -> Path:
    """Return the photograph of a file_path, below the folder of --images or relative to its file.

    Raises:
        NoPhotograph: there is none.
        SceneError: it may be one of several.
    """
    plain = PurePosixPath(_plain(path))
    places = [(images, str(PurePosixPath(*plain.parts[index:]))) for index in range(len(plain.parts)) if images]
    for folder, name in (*places, (document.path.parent, str(plain))):
        if own := folders.find(folder, name):
            return folder / own
    raise NoPhotograph(path, similar=folders.similar(folder, name))


def _plain(written: str) -> str:
    """Return a path in the form of this system: no leading ./, no backslashes of Windows."""
    path = written if "/" in written else written.replace("\\", "/")
    return os.path.normpath(path)


def common_names(frames: Sequence[TransformsFrame]) -> list[str]:
    """Return the image names of frames in a model, in their order: file_path without an images/ that all share.

    Likewise image/, input/, rgb/, and those with an ending as images_4/. Other folders that all share stay. If a path
    is absolute or leads out of the file's folder, all become relative to the deepest folder that holds all photographs.
    """
    written = [frame.name for frame in frames]
    if any(path.startswith(("/", "..")) or path[1:2] == ":" for path in written):
        real = [str(frame.photo.absolute()) for frame in frames]
        top = os.path.commonpath([os.path.dirname(path) for path in real])  # noqa: PTH120 - of text
        return [os.path.relpath(path, top) for path in real]
    first = {path.partition("/")[0] if "/" in path else "" for path in written}
    shared = first.pop() if len(first) == 1 else ""
    if shared.partition("_")[0] in ("images", "image", "input", "rgb"):
        return [path.partition("/")[2] for path in written]
    return written


def read(paths: Sequence[Path], options: ImportOptions, log: ImportLog) -> SourceCapture:
    """Return the content of files with frames.

    Args:
        paths: a transforms.json, or the files of several splits.
        options: options of the import, with the folder of the photographs.
        log: record of the import; faulty files, frames and lenses are recorded as mistakes and left out.

    Raises:
        SceneError: no usable frame is left, or the keypoints of the COLMAP model beside the file cannot be read.
    """
    found = read_documents(paths, log)
    frames = _frames(found, options.images, log)
    shots = _shots(frames, log)
    for each in found:
        _tell_keys(each, log)
    if not shots:
        raise SceneError(
            "no frame has both a photograph and a pose", "Correct the mistakes of the frames that are listed."
        )
    posed = {frame.photo.absolute() for frame in frames}
    posed |= {extra.absolute() for frame in frames for extra in (frame.mask, frame.depth) if extra}
    below = (
        (folder, name) for folder in {frame.photo.parent for frame in frames} for name in photographs_below(folder)
    )
    log.leave_out_unused(sorted({name for folder, name in below if (folder / name).absolute() not in posed}))
    first = found[0]
    cloud = None
    ids = {frame.name: whole_number(frame.written.get("colmap_im_id")) for frame in frames}
    if beside := cloud_beside(first, ids, shots, log):
        cloud, shots = beside
    else:
        with log.noting(first.path.name):
            cloud = cloud_named(first, shots, log)
    is_moved = first.undone is not IDENTITY
    before = "the coordinates before applied_transform: those of the reconstruction"
    world = before if is_moved else "the coordinates of the file"
    reference = {"from_file_to_model": first.undone.matrix()} if is_moved else {}
    kind = "transforms.json" if first.path.name == MAIN else f"{first.path.name} and the files of the other splits"
    return SourceCapture(kind, shots, cloud, world, reference=reference, of_points=first.undone)


def _shots(frames: Sequence[TransformsFrame], log: ImportLog) -> tuple[PosedPhoto, ...]:
    sizes, splits, found = sizes_of([frame.photo for frame in frames]), _splits(frames, log), []
    for frame in frames:
        pose = frame.pose
        rotation, center = frame.document.undone.of_pose(OPENGL @ pose.rotation.T, pose.translation)
        if camera := _camera(frame, sizes.get(frame.photo), log):
            shot = PosedPhoto(frame.name, frame.photo, camera, rotation, center, frame.where, frame.mask, frame.depth)
            found.append(replace(shot, split=frame.document.split or splits.get(frame.photo, "")))
    tops = {id(frame.document.top): frame.document.top for frame in frames}
    for top in tops.values() if len(tops) == 1 else ():  # programs differ in which of the two they read
        own = (
            key
            for key in sorted(_OF_LENSES & top.keys())
            if any(one.written.get(key, top[key]) != top[key] for one in frames)
        )
        if keys := ", ".join(own):
            log.convert(f"{keys}: frames have values of their own; those at the top level are ignored")
    return tuple(found)


def _splits(frames: Sequence[TransformsFrame], log: ImportLog) -> dict[Path, str]:
    """Return the split of each photograph that train_filenames, val_filenames or test_filenames names."""
    found, known = {}, {str(frame.photo.resolve()): frame.photo for frame in frames}
    documents = {id(frame.document): frame.document for frame in frames}.values()
    lists = ((document.path, key, document.top.get(key)) for document in documents for key in _LISTS)
    for path, key, name in ((path, key, one) for path, key, names in lists if isinstance(names, list) for one in names):
        if photo := known.get(str((path.parent / str(name)).resolve())):
            found[photo] = key.partition("_")[0]
        else:
            what = f"{key}: {spelt(name)} is the photograph of no frame"
            log.mistake(path.name, what, "Name photographs as file_path of their frames does.")
    return found


def _tell_keys(document: TransformsFile, log: ImportLog) -> None:
    for key, why in _SAYS_NOTHING.items():
        if key in document.top:
            log.leave_out(f"{key}: {why}")
    unknown = sorted(document.top.keys() - _KNOWN)
    if unknown:
        log.leave_out(f"unknown keys of {document.path.name}: {some(unknown, 8)}")
    of_frames = Counter[str]()
    for frame in document.top["frames"]:
        of_frames.update(sorted(frame.keys() - (_OF_FRAMES | _OF_LENSES)) if isinstance(frame, dict) else ())
    if of_frames:
        told = [f"{key} ({count})" for key, count in of_frames.most_common()]
        log.leave_out(f"unknown keys of frames: {some(told, 8)}")
    ply = sorted(path.name for path in document.path.parent.glob("*.ply"))
    if ply and "ply_file_path" not in document.top:
        log.leave_out(f"{some(ply)} beside the file: not named by ply_file_path (--points FILE reads such points)")
