"""Reads a transforms.json, or the split files of a Blender scene, as a capture; all mistakes are noted.

Points are those of a COLMAP model beside it, with its tracks, else of the PLY file that it names. A frame's own keys
describe its lens, else those at the top. Focal lengths are in pixels, else computed from the angle of view.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from json import JSONDecodeError
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.fields import number, whole_number
from splatbatch.json_text import parse
from splatbatch.scene.colmap.files import opened
from splatbatch.scene.colmap.reconstruction import Reconstruction, read_points2d, read_reconstruction
from splatbatch.scene.colmap.types import Camera, Floats, Image
from splatbatch.scene.imports.agreement import share_that_see
from splatbatch.scene.imports.capture import (
    OPENGL,
    ImportLog,
    ImportOptions,
    NoPose,
    PointCloud,
    PosedPhoto,
    SourceCapture,
    as_matrix,
    similarity_of,
    some,
    spelt,
    why_no_number,
)
from splatbatch.scene.imports.lens import Lens, camera_of, spell_misfit
from splatbatch.scene.imports.ply import read_cloud
from splatbatch.scene.photos.folders import PHOTOGRAPHS, FolderListings, photographs_below
from splatbatch.scene.photos.headers import Size, sizes_of
from splatbatch.scene.similarity import IDENTITY, Similarity
from splatbatch.text import plural

DISTORTION = ("k1", "k2", "k3", "k4", "k5", "k6", "p1", "p2")
OF_LENS = frozenset({
    "fl_x", "fl_y", "cx", "cy", "w", "h", "camera_angle_x", "camera_angle_y", "x_fov", "y_fov", "camera_model",
    "is_fisheye", *DISTORTION,
})  # fmt: skip
_MATRIX = "Write fl_x, fl_y, cx and cy in its place: rows 1 and 2 are fl_x 0 cx and 0 fl_y cy."
OTHER_NAMES = {
    "fx": "Rename fx and fy: nerfstudio and instant-ngp call them fl_x and fl_y.",
    "focal_length": "Write it as fl_x and fl_y, in pixels.",
    "focal": "Write it as fl_x and fl_y, in pixels.",
    **dict.fromkeys(("K", "intrinsics", "intrinsic_matrix", "camera_intrinsics", "intrinsic", "cam_K"), _MATRIX),
}
"""Keys with which other programs write intrinsics, with the remedy for each."""
MOST_OFF_PX = 1.0
"""Largest difference in pixels between a fitted lens and the written one."""
_PERSPECTIVE = frozenset({
    "SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "FULL_OPENCV", "PERSPECTIVE",
})  # fmt: skip
_PINHOLES = frozenset({"SIMPLE_PINHOLE", "PINHOLE"})
_FISHEYES = frozenset({"OPENCV_FISHEYE", "FISHEYE", "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE"})
_EQUIRECTANGULAR = "EQUIRECTANGULAR"
_NO_COLMAP = "COLMAP has no such camera: undistort the images to one of its models first."
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
_MIB = 1 << 20
_REMEDY = "Write the file again, or take a whole copy; JSON ends with the bracket it began with."
KEYS = OF_LENS | {
    "file_path", "transform_matrix", "mask_path", "depth_file_path", "colmap_im_id", "sharpness", "rotation",
}  # fmt: skip
"""Keys of a frame that are read, or are known to be irrelevant to the model."""
_ROLLING = ("transform_matrix_start", "transform_matrix_end", "rolling_shutter")
_LISTS = tuple(f"{split}_filenames" for split in SPLITS)
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
"""Known keys at the top that are ignored, with the reason."""


class Intrinsics:
    """Intrinsics of one frame: its own keys, else those at the top. Mistakes go to the log."""

    def __init__(self, frame: Mapping[str, Any], top: Mapping[str, Any], where: str, log: ImportLog) -> None:
        self._frame, self._top, self._where, self.log = frame, top, where, log
        self.is_sound = True

    def get(self, key: str) -> Any:
        """Return the value of a key in the frame, else at the top; None if it is in neither."""
        return self._frame[key] if key in self._frame else self._top.get(key)

    def number(self, key: str) -> float | None:
        """Return the number under a key; None if it is missing. A value that is no number is noted as a mistake."""
        if key not in self._frame and key not in self._top:
            return None
        if (value := number(self.get(key))) is None:
            self.fault(f"{key} {spelt(self.get(key))} {why_no_number(self.get(key))}", f"Correct {key}.")
        return value

    def fault(self, what: str, remedy: str) -> None:
        """Note a mistake about this lens; a mistake in keys at the top is noted once."""
        self.is_sound = False
        key = what.split(" ", 1)[0]
        self.log.mistake(self._where if key in self._frame or key not in self._top else "at the top", what, remedy)

    def size(self, photo: Size | None) -> Size | None:
        """Return w and h as written, else the photograph's size; None, with a mistake, if they are no sizes."""
        wide, high = (whole_number(self.number(key)) for key in ("w", "h"))
        if wide is None and high is None:
            return photo
        if wide is None or high is None or min(wide, high) < 0:
            self.fault(f"w {spelt(self.get('w'))}, h {spelt(self.get('h'))}", "Write width and height in pixels.")
            return None
        return wide, high


def read_camera(keys: Intrinsics, photo: Size | None) -> Camera | None:
    """Return the COLMAP camera of a frame, given the size of its photograph; None where its keys hold mistakes."""
    size = keys.size(photo)
    model = _model(keys)
    if size is None or model is None:
        return None
    if model == _EQUIRECTANGULAR:
        return Camera(0, model, *size, (float(size[0]), float(size[1])))
    measured = photo if min(size) <= 1 and photo else size
    focal = _focal_lengths(keys, measured, is_fisheye=model in _FISHEYES)
    center = [keys.number(name) for name in ("cx", "cy")]
    if focal is None or not keys.is_sound:
        return None
    if None in center:
        keys.log.convert("cx, cy are not written: the principal point is the middle of the image")
    cx, cy = (side / 2 if value is None else value for value, side in zip(center, measured, strict=True))
    return _camera(keys, model, Lens(*focal, cx, cy), size)


def _model(keys: Intrinsics) -> str | None:
    written = keys.get("camera_model")
    if written is None:
        if keys.get("is_fisheye") is True:
            return "OPENCV_FISHEYE"
        keys.log.convert("camera_model is not written: a perspective lens with the k and p that are (OPENCV)")
        return "OPENCV"
    name = str(written).upper()
    known = _PERSPECTIVE | _FISHEYES | {_EQUIRECTANGULAR}
    if name not in known:
        keys.fault(f"camera_model {spelt(written)} is not known ({', '.join(sorted(known))})", _NO_COLMAP)
        return None
    return name


def _focal_lengths(keys: Intrinsics, size: Size, *, is_fisheye: bool) -> tuple[float, float] | None:
    """Return focal lengths in pixels, computed from angles of view where none are written; None with mistakes."""
    fl_x, fl_y = keys.number("fl_x"), keys.number("fl_y")
    of_angle = [_of_angle(keys, axis, side) for axis, side in zip("xy", size, strict=True)]
    if not keys.is_sound:
        return None
    if fl_x is None and (is_fisheye or of_angle[0] is None):
        other = next((key for key in OTHER_NAMES if keys.get(key) is not None), "")
        remedy = "Write fl_x (and fl_y) in pixels" + ("." if is_fisheye else ", or camera_angle_x in radians.")
        keys.fault(
            f"{other} stands for fl_x, which is missing" if other else "fl_x is missing", OTHER_NAMES.get(other, remedy)
        )
        return None
    for written, angle, axis in zip((fl_x, fl_y), of_angle, "xy", strict=True):
        if written and angle and not is_fisheye and abs(angle / written - 1) > _CONTRARY:
            what = f"fl_{axis} {written:g} contradicts camera_angle_{axis}, which means {angle:.6g} at {max(size)} px"
            keys.fault(what, "Write the one that is right, and remove the other.")
    x = fl_x if fl_x is not None else of_angle[0]
    y = next((value for value in (fl_y, of_angle[1], x) if value is not None), None)
    if x is None or y is None:  # no angle of view that is written is one
        keys.fault("fl_x is missing, and camera_angle_x is no angle of view", "Write fl_x and fl_y in pixels.")
        return None
    if min(x, y) <= 0:
        keys.fault(f"fl_x {x:g}, fl_y {y:g}: a focal length is above 0", "Write fl_x and fl_y in pixels.")
        return None
    if fl_x is None:
        keys.log.convert("focal lengths are computed from camera_angle_x (and camera_angle_y where it is written)")
    return x, y


def _of_angle(keys: Intrinsics, axis: str, side: int) -> float | None:
    """Return the focal length in pixels from camera_angle_x (radians), or from instant-ngp's x_fov (degrees)."""
    angle = keys.number(f"camera_angle_{axis}")
    degrees = keys.number(f"{axis}_fov") if angle is None else None
    angle = math.radians(degrees) if degrees is not None else angle
    if angle is None:
        return None
    if not 0 < angle < math.pi:
        remedy = "Write the whole angle of view in radians, between 0 and pi."
        keys.fault(f"camera_angle_{axis} {angle:g} is no angle of view", remedy)
        return None
    return side / 2 / math.tan(angle / 2)


def _camera(keys: Intrinsics, model: str, pinhole: Lens, size: Size) -> Camera | None:
    terms = {name: keys.number(name) or 0.0 for name in DISTORTION}
    given = [name for name in DISTORTION if terms[name]]
    if not keys.is_sound:
        return None
    if model in _PINHOLES and given:
        what = f"camera_model {model}, but {', '.join(f'{name} {terms[name]:g}' for name in given)}"
        keys.fault(what, "Write OPENCV where the photographs are distorted; remove k and p where they are not.")
        return None
    rational = [terms[name] for name in ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")]
    if (model == "FULL_OPENCV" and any(rational[4:])) or terms["k5"] or terms["k6"]:
        return Camera(0, "FULL_OPENCV", *size, (pinhole.fx, pinhole.fy, pinhole.cx, pinhole.cy, *rational))
    radial, tangential = (terms["k1"], terms["k2"], terms["k3"], terms["k4"]), (terms["p1"], terms["p2"])
    lens = replace(pinhole, k=radial, p=tangential, bend="equidistant" if model in _FISHEYES else "frame")
    camera, off = camera_of(lens, size)
    if off > MOST_OFF_PX:
        what = f"k4 {terms['k4']:g} of a radial polynomial: {spell_misfit(off)}"
        keys.fault(what, "Undistort the images first, or calibrate without k4.")
        return None
    if off:
        keys.log.convert(f"k4 of a radial polynomial: fitted as {camera.model}, {off:.2g} px off at most")
    return camera


SharedPhotograph = tuple[PosedPhoto, Image]
"""A photograph of the import, with the image of the COLMAP model that shows the same photograph."""


def cloud_beside(
    document: TransformsFile, ids: Mapping[str, int], shots: Sequence[PosedPhoto], log: ImportLog
) -> tuple[PointCloud, tuple[PosedPhoto, ...]] | None:
    """Return the points of the COLMAP model beside a file, and the shots with its keypoints; None where none fits.

    Args:
        document: the transforms.json.
        ids: colmap_im_id by name of the shot, where it is written.
        shots: the shots of the file.
        log: receives which model was used, and how its world was moved to this one.
    """
    folders = [document.folder / name for name in BESIDE]
    folder = next((one for one in folders for end in ("bin", "txt") if (one / f"points3D.{end}").is_file()), None)
    if folder is None:
        return None
    try:
        model = read_reconstruction(folder)
    except SceneError as error:
        log.leave_out(f"the COLMAP model beside it cannot be read: {error.message}")
        return None
    pairs = _pairs(shots, model.images, ids)
    moved = _same_world(pairs)
    name = folder.relative_to(document.folder)
    if moved is None or not len(model.points):
        why = f"{len(pairs)} of its photographs are the same" if len(pairs) < _LEAST_COMMON else "its poses are others"
        log.leave_out(f"the COLMAP model in {name}: {'it has no points' if moved else why}")
        return None
    how = f", brought into this world by what the poses of both say (scale {moved.scale:.6g})"
    log.convert(f"points with their tracks are those of {name}{'' if moved is IDENTITY else how}")
    points = model.points
    cloud = PointCloud(moved.of_points(points.xyz), points.rgb, str(folder), points.ids)
    return cloud, _with_keypoints(shots, pairs, model)


def _pairs(shots: Sequence[PosedPhoto], images: Sequence[Image], ids: Mapping[str, int]) -> list[SharedPhotograph]:
    by_id, by_name = {image.id: image for image in images}, {image.name: image for image in images}
    bases = [PurePosixPath(image.name).name for image in images]
    by_base = {base: image for base, image in zip(bases, images, strict=True) if bases.count(base) == 1}
    pairs = []
    for shot in shots:
        own = by_id.get(ids.get(shot.name, -1))
        image = by_name.get(shot.name) or by_base.get(PurePosixPath(shot.name).name) or own
        pairs += [(shot, image)] if image else []
    return pairs


def _same_world(pairs: Sequence[SharedPhotograph]) -> Similarity | None:
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


def _with_keypoints(
    shots: Sequence[PosedPhoto], pairs: Sequence[SharedPhotograph], model: Reconstruction
) -> tuple[PosedPhoto, ...]:
    """Return the shots with the model's keypoints, in pixels of their own cameras."""
    keypoints = read_points2d(model.folder)
    found = {}
    for shot, image in pairs:
        theirs, own, seen = model.cameras[image.camera_id], shot.camera, keypoints[image.id]
        ratio = (own.width / theirs.width, own.height / theirs.height)
        found[shot.name] = replace(shot, keypoints=replace(seen, xy=seen.xy * ratio))
    return tuple(found.get(shot.name, shot) for shot in shots)


def cloud_named(
    document: TransformsFile,
    undone: Similarity,
    shots: Sequence[PosedPhoto],
    log: ImportLog,
) -> PointCloud | None:
    """Return the points of ply_file_path in the world of the shots; None where none is named or it cannot be read.

    `undone` leads from the world of the file to that of the shots. Points that programs left unmoved are kept so.
    """
    written = document.top.get("ply_file_path")
    if written is None:
        return None
    path = document.folder / written if isinstance(written, str) and written else None
    if path is None or not path.is_file():
        what = f"ply_file_path {spelt(written)}: no such file"
        log.mistake(document.path.name, what, "Put it there, name another with --points, or remove the key.")
        return None
    try:
        cloud = read_cloud(path, log)
    except SceneError as error:
        log.mistake(document.path.name, error.message, error.hint)
        return None
    moved = undone.of_points(cloud.xyz)
    # some programs do not move the points with the poses; the views show which holds
    if undone is not IDENTITY and share_that_see(shots, moved) < _SHARE_LOST * share_that_see(shots, cloud.xyz):
        log.convert(f"{written}: its points lie where the photographs look without applied_transform undone: kept so")
        moved = cloud.xyz
    log.convert(f"{plural(len(moved), 'point')} of {written}; they have no tracks")
    return replace(cloud, xyz=moved)


@dataclass(frozen=True)
class TransformsFile:
    """A JSON file with frames that was read: a transforms.json, or the file of one split."""

    path: Path
    split: str
    """Split in its file name: train, val or test; empty if it has none."""
    top: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        """Folder that its paths are relative to."""
        return self.path.parent


def find_documents(source: Path) -> list[Path]:
    """Return the JSON files of a source: itself, transforms.json in it, or one per split; empty if there are none."""
    if source.is_file():
        return [source] if source.suffix.lower() == ".json" else []
    if (source / MAIN).is_file():
        return [source / MAIN]
    return [path for split in SPLITS if (path := source / f"transforms_{split}.json").is_file()]


def read_documents(paths: list[Path], log: ImportLog) -> list[TransformsFile]:
    """Return the files with their frames; a file that is no JSON or has no frames is noted as a mistake."""
    found = []
    for path in paths:
        try:
            top = _read(path)
        except SceneError as error:
            log.mistake(path.name, error.message, error.hint or _REMEDY)
            continue
        if not isinstance(top, dict) or not isinstance(top.get("frames"), list):
            what = "frames is missing, or no list" if isinstance(top, dict) else "holds no object at its top"
            log.mistake(path.name, what, "A transforms.json has frames: [{file_path, transform_matrix}, …].")
        elif not top["frames"]:
            log.mistake(path.name, "frames is empty", "Export it again with the photographs that have a pose.")
        else:
            split = path.stem.removeprefix("transforms_")
            found.append(TransformsFile(path, split if split in SPLITS else "", top))
    return found


def _read(path: Path) -> Any:
    with opened(path) as (file, size):
        if size > LARGEST_MIB * _MIB:
            raise SceneError(f"{size // _MIB} MiB, more than the {LARGEST_MIB} MiB that are read", _REMEDY)
        data = file.read()
    try:
        return parse(data)
    except JSONDecodeError as error:
        raise SceneError(f"line {error.lineno}, column {error.colno}: {error.msg}: no whole JSON", _REMEDY) from error
    except ValueError as error:
        raise SceneError(f"no JSON text ({error})", _REMEDY) from error


@dataclass(frozen=True, eq=False)
class TransformsFrame:
    """A frame with a photograph and a valid pose; its lens is not read yet."""

    where: str
    document: TransformsFile
    keys: Mapping[str, Any]
    written: str
    """Its file_path, without a leading ./ and with the suffix of the file."""
    photo: Path
    rotation: Floats  # [3, 3], from the world of the file to the camera
    center: Floats  # [3]
    mask: Path | None
    depth: Path | None


class FrameReader:
    """Reads the frames of all files of a source. A missing photograph is a mistake, unless missing ones are skipped."""

    def __init__(self, images: Path | None, log: ImportLog, *, skips_missing: bool) -> None:
        self._images, self._log, self._skips = images, log, skips_missing
        self._folders, self._scaled = FolderListings(), 0
        self.missing: list[str] = []

    def read(self, document: TransformsFile) -> list[TransformsFrame]:
        """Return the valid frames of a file; mistakes in the others are noted."""
        found = []
        for index, keys in enumerate(document.top["frames"]):
            where = f"{document.path.name}: frames[{index}]"
            if not isinstance(keys, dict):
                self._log.mistake(where, f"{spelt(keys)} is no frame", "A frame has file_path and transform_matrix.")
            elif frame := self._frame(document, keys, where):
                found.append(frame)
        if self._scaled:
            self._log.convert(f"{self._scaled} of the poses carry a scale: it was taken out of their rotations")
        return found

    def _frame(self, document: TransformsFile, keys: Mapping[str, Any], where: str) -> TransformsFrame | None:
        written = keys.get("file_path")
        if not isinstance(written, str) or not written.strip():
            self._log.mistake(where, f"file_path {spelt(written)}", "Name the photograph in file_path.")
            return None
        place = f'{where} "{written}"'
        pose = self._pose(keys, place)
        photo = self._photo(document, written, place)
        extras = [self._beside(document, keys, key, place) for key in ("mask_path", "depth_file_path")]
        if pose is None or photo is None:
            return None
        name = _plain(written)
        name = name if PurePosixPath(name).suffix == photo.suffix else f"{name}{photo.suffix}"
        return TransformsFrame(place, document, keys, name, photo, OPENGL @ pose.rotation.T, pose.translation, *extras)

    def _pose(self, keys: Mapping[str, Any], place: str) -> Similarity | None:
        if any(key in keys for key in _ROLLING) and "transform_matrix" not in keys:
            what = "has a pose at the start and one at the end (rolling shutter), and no transform_matrix"
            self._log.mistake(place, what, "Export one pose for each photograph.")
            return None
        if "transform_matrix" not in keys:
            remedy = "Remove frames without a pose, or register them."
            self._log.mistake(place, "transform_matrix is missing: a photograph without a pose", remedy)
            return None
        try:
            pose = similarity_of(as_matrix(keys["transform_matrix"]))
        except NoPose as error:
            remedy = "A transform_matrix is a 4x4 matrix from camera to world: a rotation and a place, no mirror."
            self._log.mistake(place, f"transform_matrix {error}", remedy)
            return None
        self._scaled += abs(pose.scale - 1) > 1e-3
        return pose

    def _photo(self, document: TransformsFile, written: str, place: str) -> Path | None:
        candidates = self._candidates(document, _plain(written))
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            several = ", ".join(sorted(path.name for path in candidates))
            self._log.mistake(place, f"may be {several}", "Write file_path with the suffix of the right file.")
        elif self._skips:
            self.missing.append(written)
        else:
            path = document.folder / _plain(written)
            names = sorted(self._folders.names(str(path.parent)) or ())
            similar = next((name for name in names if PurePosixPath(name).stem == path.stem), "")
            what = f"no such photograph{f'; there is {similar}' if similar else ''}"
            remedy = (
                "Put the photographs where file_path says, name their folder with --images, or leave such poses out "
                "with --skip-missing."
            )
            self._log.mistake(place, what, remedy)
        return None

    def _candidates(self, document: TransformsFile, written: str) -> list[Path]:
        """Return the files that a file_path may mean: at that path, or below the folder of --images."""
        roots = [document.folder / written]
        if self._images:
            parts = PurePosixPath(written).parts
            roots = [self._images.joinpath(*parts[index:]) for index in range(len(parts))] + roots
        for path in roots:
            if found := self._as_file(path):
                return found
        return []

    def _as_file(self, path: Path) -> list[Path]:
        """Return the file itself, else the photographs of this name with a suffix."""
        names = self._folders.names(str(path.parent)) or frozenset()
        if path.name in names and path.is_file():
            return [path]
        known = [name for name in names if PurePosixPath(name).stem == path.name]
        return [path.with_name(name) for name in known if PurePosixPath(name).suffix.lower() in PHOTOGRAPHS]

    def _beside(self, document: TransformsFile, keys: Mapping[str, Any], key: str, place: str) -> Path | None:
        written = keys.get(key)
        if written is None:
            return None
        path = document.folder / _plain(written) if isinstance(written, str) else None
        if path is not None and path.is_file():
            return path
        self._log.mistake(place, f"{key} {spelt(written)}: no such file", f"Put it there, or remove {key}.")
        return None


def _plain(written: str) -> str:
    """Return a path in the form of this system: no leading ./, no backslashes of Windows."""
    path = written if "/" in written else written.replace("\\", "/")
    return os.path.normpath(path)


def common_names(frames: Sequence[TransformsFrame]) -> list[str]:
    """Return the names of photographs below one folder: file_path without an images/ that all share.

    Absolute paths, and paths out of the file's folder, are shortened by their common folder.
    """
    written = [frame.written for frame in frames]
    if any(path.startswith(("/", "..")) or path[1:2] == ":" for path in written):
        real = [str(frame.photo.absolute()) for frame in frames]
        top = os.path.commonpath([os.path.dirname(path) for path in real])  # noqa: PTH120 - of text
        return [os.path.relpath(path, top) for path in real]
    first = {path.partition("/")[0] if "/" in path else "" for path in written}
    shared = first.pop() if len(first) == 1 else ""
    if shared.partition("_")[0] in ("images", "image", "input", "rgb"):
        return [path.partition("/")[2] for path in written]
    return written


def read(paths: list[Path], options: ImportOptions, log: ImportLog) -> SourceCapture | None:
    """Return the capture in the files; None where mistakes leave no usable frame."""
    found = read_documents(paths, log)
    reader = FrameReader(options.images, log, skips_missing=options.skips_missing)
    undone = [_undone(each, log) for each in found]
    frames = [frame for each in found for frame in reader.read(each)]
    log.leave_out_unused(reader.missing, ())
    shots = _shots(frames, dict(zip(map(id, found), undone, strict=True)), log)
    for each in found:
        _tell_keys(each, log)
    if not shots:
        log.mistake(paths[0].name, "no frame is left with a photograph and a pose", "See the mistakes of its frames.")
        return None
    _tell_unposed(found, frames, log)
    first, away = found[0], undone[0]
    ids = {shot.name: number(frame.keys.get("colmap_im_id")) for shot, frame in zip(shots, frames, strict=False)}
    known = {name: int(value) for name, value in ids.items() if value is not None}
    cloud, shots = cloud_beside(first, known, shots, log) or (cloud_named(first, away, shots, log), shots)
    is_moved = away is not IDENTITY
    world = "the world before applied_transform: that of the reconstruction" if is_moved else "the world of the file"
    reference = {"from_file_to_model": away.matrix()} if is_moved else {}
    kind = "transforms.json" if first.path.name == MAIN else f"{first.path.name} and its like"
    return SourceCapture(kind, shots, cloud, world, reference=reference, of_points=away)


def _undone(document: TransformsFile, log: ImportLog) -> Similarity:
    """Return the similarity that undoes applied_transform and applied_scale of a file."""
    where, given = document.path.name, document.top.get("applied_transform")
    scale = number(document.top.get("applied_scale"))
    if "applied_scale" in document.top and not (scale and scale > 0):
        what = f"applied_scale {spelt(document.top['applied_scale'])} is no number above 0"
        log.mistake(where, what, "Write the scale that the poses were multiplied by, or remove the key.")
        scale = None
    try:
        applied = IDENTITY if given is None else similarity_of(as_matrix(given))
    except NoPose as error:
        remedy = "It is 3 rows of 4 numbers: the rotation and shift that were applied to the world."
        log.mistake(where, f"applied_transform {error}", remedy)
        return IDENTITY
    if given is None and scale is None:
        return IDENTITY
    which = " and ".join(key for key in ("applied_transform", "applied_scale") if key in document.top)
    log.convert(f"{which} was undone: the model lies in the world that it was computed in")
    return Similarity(np.eye(3), np.zeros(3), scale or 1.0).after(applied).inverse()


def _shots(frames: Sequence[TransformsFrame], undone: dict[int, Similarity], log: ImportLog) -> tuple[PosedPhoto, ...]:
    if not frames:
        return ()
    sizes, names = sizes_of([frame.photo for frame in frames]), common_names(frames)
    splits, found = _splits(frames, log), []
    for frame, name in zip(frames, names, strict=True):
        keys = Intrinsics(frame.keys, frame.document.top, frame.where, log)
        camera = read_camera(keys, sizes.get(frame.photo))
        rotation, center = undone[id(frame.document)].of_pose(frame.rotation, frame.center)
        if camera is not None:
            shot = PosedPhoto(name, frame.photo, camera, rotation, center, frame.where, frame.mask, frame.depth)
            found.append(replace(shot, split=frame.document.split or splits.get(frame.photo, "")))
    if len({id(frame.document.top) for frame in frames}) == 1:
        _tell_own_lenses(frames, log)
    return tuple(found)


def _tell_own_lenses(frames: Sequence[TransformsFrame], log: ImportLog) -> None:
    """Note the keys for which frames contradict the top; programs differ in which of the two they read."""
    top = frames[0].document.top
    keys = [
        key
        for key in sorted(OF_LENS & top.keys())
        if any(frame.keys.get(key, top[key]) != top[key] for frame in frames)
    ]
    if keys:
        log.convert(f"{', '.join(keys)}: frames have values of their own; those at the top are ignored")


def _splits(frames: Sequence[TransformsFrame], log: ImportLog) -> dict[Path, str]:
    """Return the split of each photograph that train_filenames, val_filenames or test_filenames names."""
    found = {}
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
                    log.mistake(document.path.name, f"{key}: {spelt(name)} is the photograph of no frame", remedy)
    return found


def _tell_keys(document: TransformsFile, log: ImportLog) -> None:
    for key, why in _SAYS_NOTHING.items():
        if key in document.top:
            log.leave_out(f"{key}: {why}")
    unknown = sorted(document.top.keys() - _KNOWN - _SAYS_NOTHING.keys())
    if unknown:
        log.leave_out(f"keys of {document.path.name} that are not known: {some(unknown, 8)}")
    of_frames = Counter[str]()
    for frame in document.top["frames"]:
        of_frames.update(sorted(frame.keys() - KEYS) if isinstance(frame, dict) else ())
    if of_frames:
        told = [f"{key} ({count})" for key, count in of_frames.most_common()]
        log.leave_out(f"keys of frames that are not known: {some(told, 8)}")
    ply = sorted(path.name for path in document.folder.glob("*.ply"))
    if ply and "ply_file_path" not in document.top:
        log.leave_out(f"{some(ply)} beside it: no ply_file_path names it (--points FILE takes it)")


def _tell_unposed(found: Sequence[TransformsFile], frames: Sequence[TransformsFrame], log: ImportLog) -> None:
    """Note how many photographs beside those with a pose have none."""
    folders = {frame.photo.parent for frame in frames}
    posed = {frame.photo.absolute() for frame in frames}
    posed |= {extra.absolute() for frame in frames for extra in (frame.mask, frame.depth) if extra}
    others = []
    for folder in sorted(folders):
        others += [name for name in photographs_below(folder) if (folder / name).absolute() not in posed]
    log.leave_out_unused((), sorted(set(others)))
