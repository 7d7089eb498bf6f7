"""A COLMAP export (RealityScan, ODM, OpenSfM, Metashape) as a capture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from splatbatch.files import Record, read_json, read_tail
from splatbatch.plain_text import counted
from splatbatch.scene.colmap.types import CAMERA_MODELS, NO_POINT3D, Camera, Image, Points2D
from splatbatch.scene.imports.capture import Capture, Cloud, Notes, Shot, Wish
from splatbatch.scene.imports.exports.model import Export, read_export
from splatbatch.scene.imports.lens import simplified
from splatbatch.scene.imports.mistakes import Mistakes, some
from splatbatch.scene.photos.folders import Absent, Folders, Found, Misspelt, Place, photographs_below

_SAMPLE = 50  # names that a folder of photographs is recognised by
_CAMERA_REMEDY = "Export the cameras again as one of COLMAP's models: PINHOLE, OPENCV, FULL_OPENCV, …"


def read(folder: Path, wish: Wish, notes: Notes, mistakes: Mistakes) -> Capture | None:
    """Return what the model says; None where mistakes leave nothing to go on with."""
    export = read_export(folder, notes, mistakes)
    if export is None:
        return None
    if not export.images:
        mistakes.add("images", "the model has no images", "Export it with its registered images.")
        return None
    cameras = {key: _sound(camera, notes, mistakes) for key, camera in export.cameras.items()}
    place = wish.images or _photographs(folder, export.images)
    shots = _shots(export, cameras, place, (wish, notes, mistakes))
    if not shots:
        mistakes.add("images", f"none of {len(export.images)} images has a photograph", "Name their folder: --images.")
        return None
    _tell_unposed(place, shots, notes)
    reference, crs = _georeference(folder, notes)
    world = "the world of the export"
    return Capture("COLMAP export", shots, _cloud(export, folder, notes), world, crs, reference)


def _sound(camera: Camera, notes: Notes, mistakes: Mistakes) -> Camera | None:
    """Return a camera as the simplest model that is the same lens; None where it is none."""
    model, where = CAMERA_MODELS.get(camera.model), f"camera {camera.id}"
    if model is None:
        known = ", ".join(CAMERA_MODELS)
        mistakes.add(where, f"unknown camera model {camera.model} (known: {known})", _CAMERA_REMEDY)
        return None
    if len(model.params) != len(camera.params):
        what = f"{len(camera.params)} parameters, but {model.name} has {len(model.params)}: {', '.join(model.params)}"
        mistakes.add(where, what, _CAMERA_REMEDY)
        return None
    if not np.isfinite(camera.params).all():
        mistakes.add(where, "parameters that are no finite numbers", _CAMERA_REMEDY)
        return None
    plain = simplified(camera)
    if plain.model != camera.model:
        notes.convert(f"{camera.model} whose last terms are 0 is {plain.model}: the same lens")
    return plain


def _photographs(folder: Path, images: Sequence[Image]) -> Path:
    """Return the folder that holds most of the photographs: beside the model, or up to three folders above."""
    some_images = images[:: len(images) // _SAMPLE or 1]
    tops = [folder, *folder.resolve().parents[:3]]
    candidates = [
        path for top in tops for path in (top / "images", top / "undistorted" / "images", top) if path.is_dir()
    ]
    folders = Folders()

    def held(path: Path) -> int:
        return sum(not isinstance(folders.locate(path, _plain(image.name)), Absent) for image in some_images)

    return max(candidates, key=held, default=folder / "images")


def _plain(name: str) -> str:
    """Return an image name as a path below a folder: no backslashes, no drive, no leading slash."""
    path = name.replace("\\", "/")
    return path.rpartition("/")[2] if path.startswith("/") or path[1:3] == ":/" else path.removeprefix("./")


def _shots(
    export: Export, cameras: dict[int, Camera | None], folder: Path, told: tuple[Wish, Notes, Mistakes]
) -> tuple[Shot, ...]:
    wish, notes, mistakes = told
    folders, found, missing = Folders(), [], []
    alike = Counter(image.name for image in export.images)
    for image in export.images:
        where, name = f'image {image.id} "{image.name}"', _plain(image.name)
        if alike[image.name] > 1:
            mistakes.add(where, f"{alike[image.name]} images have this name", "Remove all but one of them.")
        if not _has_pose(image):
            mistakes.add(where, "its pose is none: not finite, or a quaternion of zeros", "Register it again.")
            continue
        place = folders.locate(folder, name)
        if own := _own_name(place, name):
            found.append((image, own))
        elif wish.skips_missing:
            missing.append(image.name)
        else:
            mistakes.add(where, _lack(place, folder), _MISSING)
    renamed = [image.name for image, own in found if image.name != own]
    if renamed:
        notes.convert(f"{counted(len(renamed), 'photograph')} found under another name: {some(renamed)}")
    if missing:
        notes.leave_out(f"{counted(len(missing), 'pose')} without photograph: {some(missing)}")
    shots = (_shot(image, folder / own, own, cameras.get(image.camera_id), export) for image, own in found)
    return tuple(shot for shot in shots if shot)


def _shot(image: Image, photo: Path, name: str, camera: Camera | None, export: Export) -> Shot | None:
    if camera is None:
        return None
    keypoints, where = export.keypoints.get(image.id), f'image {image.id} "{image.name}"'
    known = keypoints if keypoints is not None and len(keypoints.xy) else None
    return Shot(name, photo, camera, image.rotation(), image.center(), where, keypoints=known)


_MISSING = "Name the folder of the photographs with --images DIR, or leave such images out: --skip-missing."


def _own_name(place: Place, name: str) -> str:
    """Return the name below the folder that a photograph was found under; empty if it was not."""
    match place:
        case Found():
            return name
        case Misspelt():
            return place.actual
        case Absent():  # a name without suffix is what it begins with
            return place.elsewhere or (place.similar if not PurePosixPath(name).suffix else "")


def _lack(place: Place, folder: Path) -> str:
    similar = f"; there is {place.similar}" if isinstance(place, Absent) and place.similar else ""
    return f"no such photograph below {folder}{similar}"


def _has_pose(image: Image) -> bool:
    return bool(np.isfinite((*image.quat, *image.translation)).all() and any(image.quat))


def _cloud(export: Export, folder: Path, notes: Notes) -> Cloud | None:
    points = export.points
    if points is None:
        return None
    finite = np.isfinite(points.xyz).all(axis=1)
    if not finite.all():
        notes.leave_out(f"{counted(int((~finite).sum()), 'point')} without a finite place")
    has_names = any(_names_points(one) for one in export.keypoints.values())
    ids = points.ids[finite] if has_names else None
    return Cloud(points.xyz[finite], points.rgb[finite], str(folder), ids)


def _names_points(keypoints: Points2D) -> bool:
    return bool((keypoints.point3d_ids != np.uint64(NO_POINT3D)).any())


def _tell_unposed(folder: Path, shots: Sequence[Shot], notes: Notes) -> None:
    posed = {shot.name for shot in shots}
    others = [name for name in photographs_below(folder) if name not in posed] if folder.is_dir() else []
    if others:
        notes.leave_out(f"{counted(len(others), 'photograph')} without a pose: {some(others)}")


def _georeference(folder: Path, notes: Notes) -> tuple[Record, str]:
    """Return what ODM and OpenSfM leave beside of where on Earth the model lies."""
    found: Record = {}
    crs = ""
    for top in (folder, *folder.resolve().parents[:3]):
        lla = read_json(top / "reference_lla.json") or read_json(top / "opensfm" / "reference_lla.json")
        if lla and "reference_lla" not in found:
            found["reference_lla"] = {key: lla.get(key) for key in ("latitude", "longitude", "altitude")}
            notes.convert("reference_lla.json (OpenSfM: where the origin lies) is kept in import.json")
        coords = top / "odm_georeferencing" / "coords.txt"
        if coords.is_file() and "odm_coords" not in found:
            lines = read_tail(coords).splitlines()[:2]
            found["odm_coords"], crs = lines, lines[0].strip() if lines else ""
            notes.convert("odm_georeferencing/coords.txt (zone and offset) is kept in import.json")
    return found, crs
