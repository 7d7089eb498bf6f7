"""Reads a COLMAP model that another program exported (RealityScan, ODM, OpenSfM, Metashape), for an import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.files import Record, read_json, read_tail
from splatbatch.scene.colmap import binary, text
from splatbatch.scene.colmap.files import ModelError
from splatbatch.scene.colmap.types import CAMERA_MODELS, NO_POINT3D, Camera, Image, Points, Points2D, misspelt
from splatbatch.scene.imports.capture import (
    ImportLog,
    ImportOptions,
    NoPhotograph,
    PointCloud,
    PosedPhoto,
    SourceCapture,
    some,
)
from splatbatch.scene.imports.lens import simplified
from splatbatch.scene.photos.folders import (
    FolderListings,
    find_photographs,
    photographs_below,
)
from splatbatch.text import plural

_REMEDY = "Export the model again, all of its files at once."
_EMPTY = Points2D(np.zeros((0, 2)), np.zeros(0, np.uint64))
_SAMPLE = 50  # names that a folder of photographs is recognised by


def suffix_of(folder: Path) -> str | None:
    """Return "bin" or "txt", the form in which a folder holds cameras and images of a COLMAP model.

    "bin" if both forms are there; None if neither is complete.

    Raises:
        PermissionError: the folder may not be entered.
    """
    for suffix in ("bin", "txt"):
        if all((folder / f"{part}.{suffix}").is_file() for part in ("cameras", "images")):
            return suffix
    return None


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
    """Return the points with their tracks; None where there are none."""
    if not path.exists() or not path.stat().st_size:
        log.convert(f"{path.name} is {'empty' if path.exists() else 'missing'}: the source has no points")
        return None
    points = (binary if path.suffix == ".bin" else text).read_points(path, tracks=True)
    if not len(points):
        log.convert(f"{path.name} holds no points")
        return None
    return points


def _check_ids(cameras: Sequence[Camera], images: Sequence[Image], log: ImportLog, suffix: str | None) -> None:
    known = {camera.id for camera in cameras}
    for part, given, ids in (("cameras", cameras, known), ("images", images, {image.id for image in images})):
        if len(ids) < len(given):
            log.mistake(f"{part}.{suffix}", f"{len(given)} {part} have only {len(ids)} different ids", _REMEDY)
    for image in images:
        if image.camera_id not in known:
            what = f"the image names camera {image.camera_id}, which cameras.{suffix} lacks"
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
        log.convert(f"{plural(len(points), 'point')} without tracks: which photographs show the points is unknown")
        return
    loose = 0
    for image, own in tracks.by_image().items():
        theirs = keypoints.get(image, _EMPTY).point3d_ids
        places = tracks.point2d_idxs[own].astype(np.int64)
        fits = places < len(theirs)
        fits[fits] = theirs[places[fits]] == ids[own][fits]
        loose += int((~fits).sum())
    if loose:
        log.convert(
            f"{loose:,} of {len(tracks.image_ids):,} entries of the tracks name a wrong keypoint: the tracks were made"
            f" again from the {seen:,} keypoints that name a point"
        )


def read(paths: Sequence[Path], options: ImportOptions, log: ImportLog) -> SourceCapture:
    """Return the content of an exported COLMAP model.

    Args:
        paths: the folder of the model, and nothing else.
        options: options of the import, with the folder of the photographs.
        log: record of the import; faulty cameras and images, and unreadable points, are recorded as mistakes and left
            out.

    Raises:
        SceneError: cameras or images cannot be read, or no usable image is left.
    """
    [folder] = paths
    suffix, points = suffix_of(folder), None
    every = (binary if suffix == "bin" else text).read_cameras(folder / f"cameras.{suffix}")
    images, keypoints = _images(folder / f"images.{suffix}", log)
    with log.noting(f"points3D.{suffix}"):
        points = _points(folder / f"points3D.{suffix}", log)
    _check_ids(every, images, log, suffix)
    _settle_tracks(keypoints, points, log)
    if not images:
        raise SceneError("the model has no images", "Export the model with its registered images.")
    cameras = {}
    for camera in every:
        with log.noting(
            f"camera {camera.id}", "Export the cameras again as one of COLMAP's models: PINHOLE, OPENCV, FULL_OPENCV, …"
        ):
            cameras[camera.id] = _sound(camera, log)
    names = [_plain(image.name) for image in images[:: len(images) // _SAMPLE or 1]]
    held = None if options.images else find_photographs(folder, names)
    place = options.images or (held.folder if held else folder / "images")
    shots = _shots(images, cameras, keypoints, place, log)
    if not shots:
        raise SceneError(
            f"none of the {len(images)} images of the model has a photograph",
            "Name the folder of the photographs: --images DIR.",
        )
    posed = {shot.name for shot in shots}
    log.leave_out_unused([name for name in photographs_below(place) if name not in posed])
    has_names = any((one.point3d_ids != np.uint64(NO_POINT3D)).any() for one in keypoints.values())
    cloud = _cloud(points, folder, log, has_names=has_names) if points is not None else None
    reference, crs = _georeference(folder, log)
    return SourceCapture("COLMAP export", shots, cloud, "the coordinates of the export", crs, reference)


def _sound(camera: Camera, log: ImportLog) -> Camera:
    """Return a camera as the simplest model of the same lens.

    Raises:
        SceneError: it is invalid.
    """
    if (model := CAMERA_MODELS.get(camera.model)) is None:
        remedy = f"Write {right} in cameras.txt." if (right := misspelt(camera.model)) else ""
        raise SceneError(f"unknown camera model {camera.model} (known: {', '.join(CAMERA_MODELS)})", remedy)
    if len(model.params) != len(camera.params):
        params = ", ".join(model.params)
        raise SceneError(
            f"the camera has {len(camera.params)} parameters, but {model.name} has {len(model.params)}: {params}"
        )
    if not np.isfinite(camera.params).all():
        raise SceneError("a parameter of the camera is not a finite number")
    plain = simplified(camera)
    if plain.model != camera.model:
        log.convert(f"cameras {camera.model} with last terms of 0 were written as {plain.model}, the same lens")
    return plain


def _plain(name: str) -> str:
    """Return an image name as a path below a folder: no backslashes, no drive, no leading slash."""
    path = name.replace("\\", "/")
    return path.rpartition("/")[2] if path.startswith("/") or path[1:3] == ":/" else path.removeprefix("./")


def _shots(
    images: Sequence[Image],
    cameras: Mapping[int, Camera],
    keypoints: Mapping[int, Points2D],
    folder: Path,
    log: ImportLog,
) -> tuple[PosedPhoto, ...]:
    folders, shots, renamed = FolderListings(), [], []
    for image in images:
        where, name = f'image {image.id} "{image.name}"', _plain(image.name)
        with log.noting(where):
            if not image.has_pose():
                raise SceneError("the pose is not finite, or its rotation is all zeros", "Register the image again.")
            if not (own := folders.find(folder, name)):
                raise NoPhotograph(image.name, folder, folders.similar(folder, name))
            renamed += [image.name] if image.name != own else []
            if camera := cameras.get(image.camera_id):
                seen = keypoints.get(image.id, _EMPTY)
                shot = PosedPhoto(own, folder / own, camera, image.rotation(), image.center(), where)
                shots.append(replace(shot, keypoints=seen if len(seen.xy) else None))
    if renamed:
        log.convert(f"{plural(len(renamed), 'photograph')} found under another name: {some(renamed)}")
    return tuple(shots)


def _cloud(points: Points, folder: Path, log: ImportLog, *, has_names: bool) -> PointCloud:
    """Return the finite points; `has_names` says whether keypoints name them."""
    finite = np.isfinite(points.xyz).all(axis=1)
    if not finite.all():
        log.leave_out(f"{plural(int((~finite).sum()), 'point')} without a finite position")
    ids = points.ids[finite] if has_names else None
    return PointCloud(points.xyz[finite], points.rgb[finite], str(folder), ids)


def _georeference(folder: Path, log: ImportLog) -> tuple[Record, str]:
    """Return the georeference that ODM and OpenSfM leave near the model, and its coordinate reference system."""
    found, crs = dict[str, object](), ""
    for top in (folder, *folder.resolve().parents[:3]):
        lla = read_json(top / "reference_lla.json") or read_json(top / "opensfm" / "reference_lla.json")
        if lla and "reference_lla" not in found:
            found["reference_lla"] = {key: lla.get(key) for key in ("latitude", "longitude", "altitude")}
            log.convert("reference_lla.json (OpenSfM: where on Earth the origin lies) is kept in import.json")
        coords = top / "odm_georeferencing" / "coords.txt"
        if coords.is_file() and "odm_coords" not in found:
            lines = read_tail(coords).splitlines()[:2]
            found["odm_coords"], crs = lines, lines[0].strip() if lines else ""
            log.convert("odm_georeferencing/coords.txt (zone and offset) is kept in import.json")
    return found, crs
