"""Checks of an import before anything is written: sizes of photographs and cameras, names, positions, and points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from splatbatch.errors import SceneError
from splatbatch.files import fault_of_name
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.imports.agreement import share_that_see
from splatbatch.scene.imports.capture import ImportLog, PointCloud, PosedPhoto
from splatbatch.scene.imports.lens import resized
from splatbatch.scene.photos.headers import (
    ImageHeader,
    NearSize,
    SameSize,
    ScaledSize,
    Size,
    TransposedSize,
    headers_of,
    relate,
    size_text,
    spell_factor,
)
from splatbatch.text import plural, spell_place

_NONE = 1
"""Sides up to this length mean that the size was not written; exports with 0x0 and 1x1 exist."""
_CENTRAL = (0.25, 0.75)
"""Range of the principal point, as a share of the side, in which K is taken to be in pixels of the photograph."""
_FAR = 200
"""A camera farther from the middle than this multiple of the median distance is in another unit."""
_NOWHERE = 1e15
"""Coordinates beyond this are invalid: float64 has no fractions left there."""
_LEAST_SEEING = 0.25
"""Share of photographs with points in view below which points and poses are of different worlds."""


def without_repeats(shots: Sequence[PosedPhoto], log: ImportLog) -> tuple[PosedPhoto, ...]:
    """Return posed photographs without repeats, in their order; of equal ones the first.

    Equal are name, camera and pose. Files of several splits may list a photograph twice.

    Args:
        shots: posed photographs of all files of a source.
        log: record of the import, to which the number of repeats is added.
    """
    found: dict[tuple[object, ...], PosedPhoto] = {}
    for one in shots:
        found.setdefault((one.name, one.camera, one.rotation.tobytes(), one.center.tobytes()), one)
    if len(found) < len(shots):
        log.convert(f"{plural(len(shots) - len(found), 'photograph')} listed again with the same pose, and taken once")
    return tuple(found.values())


def fit_to_photographs(shots: Sequence[PosedPhoto], log: ImportLog) -> tuple[PosedPhoto, ...]:
    """Return posed photographs with cameras of the photographs' sizes, in their order.

    K (focal lengths and principal point) and keypoints are scaled where photographs were resized as a whole. They stay
    where the size was 1 or 2 pixels off, or was not written and K is in pixels of the photograph. Photographs that
    cannot be read, or whose camera fits in neither way, are recorded as mistakes and left out. So are panoramas that
    are not twice as wide as high.

    Args:
        shots: posed photographs; the headers of their files are read.
        log: record of the import, to which changes and mistakes are added.
    """
    headers = headers_of([shot.photo for shot in shots])
    fitted, told = [], dict[str, set[Camera]]()
    for shot in shots:
        header = headers[shot.photo]
        with log.noting(shot.where):
            if not isinstance(header, ImageHeader):
                remedy = "Copy the photograph again; a backup may hold an intact file."
                raise SceneError(f"{shot.photo}: cannot be read: {header.what}", remedy)
            if shot.camera.model == "EQUIRECTANGULAR" and shot.camera.width != 2 * shot.camera.height:
                what = f"the panorama has {size_text(shot.camera.size)} pixels, and is not twice as wide as high"
                raise SceneError(what, "Export whole panoramas, or the camera model that the photographs have.")
            one, change = _fitted(shot, header.size)
            fitted.append(one)
            told.setdefault(change, set()).add(replace(shot.camera, id=0))
    for what, cameras in told.items():
        if what:
            log.convert(f"{plural(len(cameras), 'camera')}: {what}")
    return tuple(fitted)


def _fitted(shot: PosedPhoto, size: Size) -> tuple[PosedPhoto, str]:
    """Return the shot with a camera of the photograph's size, and the change in words; empty if there is none.

    Raises:
        SceneError: the camera is of another photograph.
    """
    camera, own = shot.camera, shot.camera.size
    if min(own) <= _NONE:
        center = (camera.cx, camera.cy) if camera.has_center else (0.0, 0.0)
        shares = [value / side for value, side in zip(center, size, strict=True)]
        named = f"camera size {size_text(own)}"
        if all(_CENTRAL[0] < share < _CENTRAL[1] for share in shares):
            what = f"{named} is no size: the photograph's was taken, since focal length and principal point fit it"
            return replace(shot, camera=replace(camera, width=size[0], height=size[1])), what
        where = f"({', '.join(f'{value:g}' for value in center)})"
        raise SceneError(
            f"{named} is no size, and the principal point {where} is not in pixels of the photograph"
            f" {shot.photo.name} ({size_text(size)})",
            "Export focal length and principal point in pixels, with the size of the images.",
        )
    match relate(own, size):
        case SameSize():
            return shot, ""
        case NearSize(1, off) if max(map(abs, off)) <= 2:
            # rounding: K stays as it is, so that the middle of the photograph stays where it was
            what = (
                "the size was 1 or 2 pixels off and is set to the photograph's; focal length and principal point stay"
            )
            return replace(shot, camera=replace(camera, width=size[0], height=size[1])), what
        case ScaledSize(factor):
            keypoints = shot.keypoints and replace(shot.keypoints, xy=shot.keypoints.xy * (np.array(size) / own))
            what = f"the photographs were resized ({spell_factor(factor)}): focal length and principal point follow"
            return replace(shot, camera=resized(camera, size), keypoints=keypoints), what
        case TransposedSize():
            why = "width and height are exchanged"
            remedy = (
                "Turn the photographs as their EXIF orientation says, "
                "or write width and height as the pixels are stored."
            )
        case _:
            why = "the photograph was cropped or padded, or is another one"
            remedy = "Use the photographs that the source was made with, or correct their size in the source."
    raise SceneError(
        f"the camera has {size_text(own)} pixels, its photograph {shot.photo.name} has {size_text(size)}: {why}", remedy
    )


def check_world(shots: Sequence[PosedPhoto], cloud: PointCloud | None, log: ImportLog) -> None:
    """Record mistakes in names, in camera positions, and in points that too few photographs have in view.

    Args:
        shots: posed photographs; may be empty.
        cloud: points in the same world; None: there are none to check. They are not checked if there are mistakes.
        log: record of the import, to which mistakes are added.
    """
    counts = Counter(shot.name for shot in shots)
    for shot in shots:
        if counts[shot.name] > 1:
            what = f"the photograph {shot.name} has {counts[shot.name]} poses"
            log.mistake(shot.where, what, "Keep one pose for each photograph.")
        if why := fault_of_name(shot.name):
            log.mistake(shot.where, why, "Rename the photograph, on the disk and in the source.")
    _check_places(shots, log)
    if log.num_mistakes or cloud is None or not shots or not len(cloud.xyz):
        return
    share = share_that_see(shots, cloud.xyz)
    if share < _LEAST_SEEING:
        remedy = (
            "Points and poses differ in unit, axes or coordinate system, or the camera axes are wrong. "
            "Export both together, in the same coordinates."
        )
        log.mistake(cloud.origin, f"only {100 * share:.0f} % of the photographs have any of the points in view", remedy)


@np.errstate(all="ignore")  # what overflows is no place
def _check_places(shots: Sequence[PosedPhoto], log: ImportLog) -> None:
    """Note cameras at invalid positions, all at one position, or so far out that their unit must differ."""
    centers = np.array([shot.center for shot in shots]).reshape(-1, 3)
    sound = (np.abs(centers) < _NOWHERE).all(axis=1)
    for index in map(int, np.flatnonzero(~sound)):
        log.mistake(
            shots[index].where,
            f"the camera's position {spell_place(centers[index])} is not finite or too large",
            "Export the pose again; numbers of this size come from a broken transform.",
        )
    shots, centers = [shot for shot, is_sound in zip(shots, sound, strict=True) if is_sound], centers[sound]
    if len(centers) < 4:
        return
    apart = np.linalg.norm(centers - np.median(centers, axis=0), axis=1)
    typical = float(np.median(apart))
    if not apart.max() > 0:
        log.mistake(
            "all poses",
            "all cameras stand at the same place",
            "Export the poses with their translations (camera positions).",
        )
        return
    for index in map(int, np.flatnonzero(apart > _FAR * typical)) if typical > 0 else ():
        what = f"the camera is {apart[index] / typical:,.0f} times as far from the middle as the others typically are"
        log.mistake(shots[index].where, what, "Export all poses in one unit, or remove the cameras that are far away.")
