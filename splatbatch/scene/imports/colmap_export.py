"""Reads a COLMAP export (RealityScan, ODM, OpenSfM, Metashape) as a capture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.files import Record, read_json, read_tail
from splatbatch.scene.colmap import binary, text
from splatbatch.scene.colmap.files import ModelError
from splatbatch.scene.colmap.types import CAMERA_MODELS, NO_POINT3D, Camera, Image, Points, Points2D, misspelt
from splatbatch.scene.imports.capture import (
    ImportLog,
    ImportOptions,
    PointCloud,
    PosedPhoto,
    SourceCapture,
    some,
)
from splatbatch.scene.imports.lens import simplified
from splatbatch.scene.photos.folders import (
    FolderListings,
    FoundPhotograph,
    Location,
    MissingPhotograph,
    MisspeltName,
    find_photographs,
    photographs_below,
)
from splatbatch.text import plural

_REMEDY = "Export the model again, all of its files at once."
_EMPTY = Points2D(np.zeros((0, 2)), np.zeros(0, np.uint64))
_SAMPLE = 50  # names that a folder of photographs is recognised by
_CAMERA_REMEDY = "Export the cameras again as one of COLMAP's models: PINHOLE, OPENCV, FULL_OPENCV, …"
_MISSING = "Name the folder of the photographs with --images DIR, or leave such images out: --skip-missing."


@dataclass(frozen=True, eq=False)
class Export:
    """Content of an export: cameras by id, images, keypoints by image id, and points; None: it has no points."""

    cameras: Mapping[int, Camera]
    images: Sequence[Image]
    keypoints: Mapping[int, Points2D]
    points: Points | None


def suffix_of(folder: Path) -> str | None:
    """Return "bin" or "txt" if a folder has cameras and images in that form; None if it has neither."""
    for suffix in ("bin", "txt"):
        if all((folder / f"{part}.{suffix}").is_file() for part in ("cameras", "images")):
            return suffix
    return None


def read_export(folder: Path, log: ImportLog) -> Export | None:
    """Return the export in a folder; None, with mistakes, where its files cannot be read."""
    suffix = suffix_of(folder)
    if suffix is None:
        log.mistake(str(folder), "no cameras and images, both .bin or both .txt", _REMEDY)
        return None
    files = binary if suffix == "bin" else text
    try:
        cameras = files.read_cameras(folder / f"cameras.{suffix}")
        images, keypoints = _images(folder / f"images.{suffix}", log)
    except SceneError as error:
        log.mistake(folder.name, error.message, error.hint)
        return None
    points = _points(folder / f"points3D.{suffix}", log)
    _check_ids(cameras, images, log, suffix)
    known = {camera.id: camera for camera in cameras}
    _settle_tracks(keypoints, points, log)
    return Export(known, images, keypoints, points)


def _images(path: Path, log: ImportLog) -> tuple[list[Image], dict[int, Points2D]]:
    """Return images and keypoints; text without keypoint lines is read with one line per image."""
    if path.suffix == ".bin":
        return binary.read_images(path), {image.id: seen for image, seen in binary.walk_points2d(path)}
    try:
        images, keypoints = text.read_images(path), {image.id: seen for image, seen in text.walk_points2d(path)}
        # if every line is an image, every other image was read as a line of keypoints
        are_images = [_is_image(line) for _, line in text.entries(path)]
        if len(are_images) <= len(images) or not all(are_images):
            return images, keypoints
    except ModelError as error:
        try:
            images = [text.read_image(path, number, line) for number, line in text.entries(path)]
        except ModelError:
            raise error from None
    else:
        images = [text.read_image(path, number, line) for number, line in text.entries(path)]
    log.convert(f"{path.name} has one line for each image instead of two: there are no keypoints")
    return images, {}


def _is_image(line: bytes) -> bool:
    fields = line.split(maxsplit=9)
    try:
        quat = [float(field) for field in fields[1:5]]
        int(fields[0]), int(fields[8]), float(fields[9])
    except IndexError:
        return False
    except ValueError:  # a name is no number
        return len(fields) == 10 and abs(sum(value * value for value in quat) - 1) < 0.01
    return False


def _points(path: Path, log: ImportLog) -> Points | None:
    """Return the points with their tracks; None where there are none, or they cannot be read."""
    if not path.exists() or not path.stat().st_size:
        log.convert(f"{path.name} is {'empty' if path.exists() else 'missing'}: the source has no points")
        return None
    try:
        read = binary.read_points if path.suffix == ".bin" else text.read_points
        points = read(path, tracks=True)
    except SceneError as error:
        log.mistake(path.name, error.message, error.hint)
        return None
    if not len(points):
        log.convert(f"{path.name} holds no points")
        return None
    return points


def _check_ids(cameras: Sequence[Camera], images: Sequence[Image], log: ImportLog, suffix: str) -> None:
    known = {camera.id for camera in cameras}
    if len(known) < len(cameras):
        log.mistake(f"cameras.{suffix}", f"{len(cameras)} cameras share {len(known)} ids", _REMEDY)
    ids = [image.id for image in images]
    if len(set(ids)) < len(ids):
        log.mistake(f"images.{suffix}", f"{len(ids)} images share {len(set(ids))} ids", _REMEDY)
    for image in images:
        if image.camera_id not in known:
            what = f"is of camera {image.camera_id}, which cameras.{suffix} lacks"
            log.mistake(f'images.{suffix}: image {image.id} "{image.name}"', what, _REMEDY)


def _settle_tracks(keypoints: Mapping[int, Points2D], points: Points | None, log: ImportLog) -> None:
    """Note whether tracks exist, and whether they contradict the keypoints, whose references are used.

    OpenSfM writes only the keypoints that have a point, but numbers them in the tracks as if all were written.
    """
    if points is None or points.tracks is None:
        return
    tracks, ids = points.tracks, points.ids[points.tracks.points]
    seen = sum(int((one.point3d_ids != np.uint64(NO_POINT3D)).sum()) for one in keypoints.values())
    if not len(tracks.image_ids) and not seen:
        log.convert(f"{plural(len(points), 'point')} without tracks")
        return
    loose = 0
    for image, own in tracks.by_image().items():
        theirs = keypoints.get(image, _EMPTY).point3d_ids
        places = tracks.point2d_idxs[own].astype(np.int64)
        fits = places < len(theirs)
        fits[fits] = theirs[places[fits]] == ids[own][fits]
        loose += int((~fits).sum())
    if loose:
        share = f"{loose:,} of {len(tracks.image_ids):,} entries of the tracks name no keypoint of their point"
        log.convert(f"{share}: tracks were made anew from the {seen:,} keypoints that name a point")


def read(folder: Path, options: ImportOptions, log: ImportLog) -> SourceCapture | None:
    """Return the capture in a folder; None where mistakes leave no usable image."""
    export = read_export(folder, log)
    if export is None:
        return None
    if not export.images:
        log.mistake("images", "the model has no images", "Export it with its registered images.")
        return None
    cameras = {key: _sound(camera, log) for key, camera in export.cameras.items()}
    place = options.images or _photographs(folder, export.images)
    shots = _shots(export, cameras, place, options, log)
    if not shots:
        log.mistake("images", f"none of {len(export.images)} images has a photograph", "Name their folder: --images.")
        return None
    posed = {shot.name for shot in shots}
    others = [name for name in photographs_below(place) if name not in posed] if place.is_dir() else []
    log.leave_out_unused((), others)
    reference, crs = _georeference(folder, log)
    world = "the world of the export"
    return SourceCapture("COLMAP export", shots, _cloud(export, folder, log), world, crs, reference)


def _sound(camera: Camera, log: ImportLog) -> Camera | None:
    """Return a camera as the simplest model of the same lens; None, with a mistake, where it is invalid."""
    model, where = CAMERA_MODELS.get(camera.model), f"camera {camera.id}"
    if model is None:
        known = ", ".join(CAMERA_MODELS)
        remedy = f"Write {right} in cameras.txt." if (right := misspelt(camera.model)) else _CAMERA_REMEDY
        log.mistake(where, f"unknown camera model {camera.model} (known: {known})", remedy)
        return None
    if len(model.params) != len(camera.params):
        what = f"{len(camera.params)} parameters, but {model.name} has {len(model.params)}: {', '.join(model.params)}"
        log.mistake(where, what, _CAMERA_REMEDY)
        return None
    if not np.isfinite(camera.params).all():
        log.mistake(where, "parameters that are no finite numbers", _CAMERA_REMEDY)
        return None
    plain = simplified(camera)
    if plain.model != camera.model:
        log.convert(f"{camera.model} whose last terms are 0 is {plain.model}: the same lens")
    return plain


def _photographs(folder: Path, images: Sequence[Image]) -> Path:
    """Return the folder near the model that holds most of the photographs; images/ beside it if none does."""
    held = find_photographs(folder, [_plain(image.name) for image in images[:: len(images) // _SAMPLE or 1]])
    return held.folder if held else folder / "images"


def _plain(name: str) -> str:
    """Return an image name as a path below a folder: no backslashes, no drive, no leading slash."""
    path = name.replace("\\", "/")
    return path.rpartition("/")[2] if path.startswith("/") or path[1:3] == ":/" else path.removeprefix("./")


def _shots(
    export: Export,
    cameras: dict[int, Camera | None],
    folder: Path,
    options: ImportOptions,
    log: ImportLog,
) -> tuple[PosedPhoto, ...]:
    folders, found, missing = FolderListings(), [], []
    alike = Counter(image.name for image in export.images)
    for image in export.images:
        where, name = f'image {image.id} "{image.name}"', _plain(image.name)
        if alike[image.name] > 1:
            log.mistake(where, f"{alike[image.name]} images have this name", "Remove all but one of them.")
        if not (np.isfinite((*image.quat, *image.translation)).all() and any(image.quat)):
            log.mistake(where, "its pose is none: not finite, or a quaternion of zeros", "Register it again.")
            continue
        place = folders.locate(folder, name)
        if own := _own_name(place, name):
            found.append((image, own))
        elif options.skips_missing:
            missing.append(image.name)
        else:
            similar = f"; there is {place.similar}" if isinstance(place, MissingPhotograph) and place.similar else ""
            log.mistake(where, f"no such photograph below {folder}{similar}", _MISSING)
    renamed = [image.name for image, own in found if image.name != own]
    if renamed:
        log.convert(f"{plural(len(renamed), 'photograph')} found under another name: {some(renamed)}")
    log.leave_out_unused(missing, ())
    shots = (_shot(image, folder / own, own, cameras.get(image.camera_id), export) for image, own in found)
    return tuple(shot for shot in shots if shot)


def _shot(image: Image, photo: Path, name: str, camera: Camera | None, export: Export) -> PosedPhoto | None:
    if camera is None:
        return None
    keypoints, where = export.keypoints.get(image.id), f'image {image.id} "{image.name}"'
    known = keypoints if keypoints is not None and len(keypoints.xy) else None
    return PosedPhoto(name, photo, camera, image.rotation(), image.center(), where, keypoints=known)


def _own_name(place: Location, name: str) -> str:
    """Return the name under which a photograph was found below the folder; empty if it was not."""
    match place:
        case FoundPhotograph():
            return name
        case MisspeltName():
            return place.actual
        case MissingPhotograph():  # a name without suffix is what it begins with
            return place.elsewhere or (place.similar if not PurePosixPath(name).suffix else "")


def _cloud(export: Export, folder: Path, log: ImportLog) -> PointCloud | None:
    points = export.points
    if points is None:
        return None
    finite = np.isfinite(points.xyz).all(axis=1)
    if not finite.all():
        log.leave_out(f"{plural(int((~finite).sum()), 'point')} without a finite place")
    has_names = any((one.point3d_ids != np.uint64(NO_POINT3D)).any() for one in export.keypoints.values())
    ids = points.ids[finite] if has_names else None
    return PointCloud(points.xyz[finite], points.rgb[finite], str(folder), ids)


def _georeference(folder: Path, log: ImportLog) -> tuple[Record, str]:
    """Return the georeference that ODM and OpenSfM leave near the model, and its coordinate reference system."""
    found: Record = {}
    crs = ""
    for top in (folder, *folder.resolve().parents[:3]):
        lla = read_json(top / "reference_lla.json") or read_json(top / "opensfm" / "reference_lla.json")
        if lla and "reference_lla" not in found:
            found["reference_lla"] = {key: lla.get(key) for key in ("latitude", "longitude", "altitude")}
            log.convert("reference_lla.json (OpenSfM: where the origin lies) is kept in import.json")
        coords = top / "odm_georeferencing" / "coords.txt"
        if coords.is_file() and "odm_coords" not in found:
            lines = read_tail(coords).splitlines()[:2]
            found["odm_coords"], crs = lines, lines[0].strip() if lines else ""
            log.convert("odm_georeferencing/coords.txt (zone and offset) is kept in import.json")
    return found, crs
