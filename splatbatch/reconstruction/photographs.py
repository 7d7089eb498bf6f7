"""Reads the headers of a folder's photographs and plans their reconstruction: usable files, cameras, positions."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import cos, hypot, isfinite, radians
from pathlib import Path
from typing import Any

import numpy as np

from splatbatch.config import near, no_such
from splatbatch.errors import ConfigError, SceneError
from splatbatch.hashing import FileFacts
from splatbatch.reconstruction.facts import COPIES, OURS, ReconstructionRecord
from splatbatch.reconstruction.georeference import neighbouring
from splatbatch.reconstruction.plan import FEW, CameraGroup, Photograph, ReconstructionOptions, ReconstructionPlan
from splatbatch.scene.colmap.files import shown
from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.patches import natural_key
from splatbatch.scene.photos.folders import PHOTOGRAPHS
from splatbatch.scene.photos.headers import EXIF_TAGS, THREADS, opened_photograph
from splatbatch.text import list_some, plural

RAW = frozenset({".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2", ".pef", ".srw"})
HEIF = frozenset({".heic", ".heif", ".avif"})
FULL_FRAME_MM = hypot(36.0, 24.0)
UNKNOWN_FOCAL = 1.2
"""Focal length that is assumed if EXIF gives none, as a multiple of the longer side: COLMAP's default."""
FOCAL_RANGE = (0.2, 8.0)
"""Least and largest plausible focal length, as multiples of the longer side; other values of EXIF are ignored."""
METERS_PER_DEGREE = 111_319.49
FAR_M = 5_000.0
"""Distance from the median position, in metres, beyond which a GPS position counts as wrong, or of another place."""
ALIKE_M = 0.5
"""Distance from the median position, in metres, within which all GPS positions count as the same."""
_GPS, _FOCAL_MM = 0x8825, 37386
_UNIT_MM = {2: 25.4, 3: 10.0, 4: 1.0, 5: 0.001}


def survey(images: Path, wanted: ReconstructionOptions) -> ReconstructionPlan:
    """Return the plan of a reconstruction from the photographs in a folder and its subfolders.

    The photographs are in natural order (IMG_2 before IMG_10). Every usable photograph is read completely for its hash,
    unless the user's cache has the hash. Hidden files and copies of photographs by an earlier reconstruction are left
    out.

    Args:
        images: folder of the photographs.
        wanted: options of the reconstruction.

    Raises:
        SceneError: the folder does not exist or has fewer than three usable photographs; the message says why.
        ConfigError: a folder of the rig has no usable photographs, or the rig's folders have no name in common; or
            pairs by GPS are asked for, and fewer than three photographs have a position.
        LaterFormatError: a later version of splatbatch wrote a reconstruction.json below the folder.
    """
    if not images.is_dir():
        raise SceneError(
            f"{images}: {no_such(images, 'folder')}", f"{near(images)} Name the folder of the photographs."
        )
    names, left_out, said = _listed(images)
    with ThreadPoolExecutor(THREADS) as pool:
        facts = FileFacts()
        found = list(pool.map(lambda name: _read(images, name, facts, wanted), names))
    usable = [one for one in found if not isinstance(one, str)]
    left_out |= {name: one for name, one in zip(names, found, strict=True) if isinstance(one, str)}
    if len(usable) < 3:
        why = list_some([*(f"{name}: {one}" for name, one in sorted(left_out.items())), *said], 2, "; ")
        few = f"{images}: only {plural(len(usable), 'photograph')} can be used"
        raise SceneError(f"{few}; {why}" if why else few, "Add photographs: at least three that overlap are needed.")
    _check_rig(wanted.rig, [one.name for one, _, _ in usable])
    places, notes = checked_places([one.place for one, _, _ in usable], [one.name for one, _, _ in usable])
    notes += [note for _, _, note in usable if note][:3]
    counts = Counter(camera.what for _, camera, _ in usable)  # in the order in which they come first
    if len(counts) > 1:
        spelled = list_some((f"{what} ({number})" for what, number in counts.items()), 6)
        notes.append(f"{len(counts)} cameras: {spelled}")
    first: dict[str, str] = {}
    copies = [one.name for one, _, _ in usable if first.setdefault(one.sha256, one.name) != one.name]
    if copies:
        notes.append(f"{plural(len(copies), 'photograph')} with the same content as another ({list_some(copies)})")
    notes += said
    numbers = {what: number for number, what in enumerate(counts, start=1)}
    cameras = {camera.what: camera for _, camera, _ in reversed(usable)}  # each as its first photograph says
    photographs = tuple(
        replace(one, camera=numbers[camera.what], place=place)
        for (one, camera, _), place in zip(usable, places, strict=True)
    )
    pairing, why = _pairing(photographs, wanted)
    mapper, why_mapper = wanted.mapper, "as --mapper says"
    if mapper == "auto":
        mapper, why_mapper = "incremental", "incremental, which can be resumed and takes as long as global"
    return ReconstructionPlan(
        str(images.resolve()),
        photographs,
        tuple(cameras[what] for what in counts),
        wanted,
        pairing,
        why,
        mapper,
        why_mapper,
        tuple(notes),
        left_out,
    )


def _listed(images: Path) -> tuple[list[str], dict[str, str], list[str]]:
    """Return the photographs below a folder in natural order, unusable files with a remedy for each, and notes.

    Undistorted copies that an earlier reconstruction wrote, and hidden files and folders, are left out.
    """
    names, left_out, hidden, notes = [], {}, [], []
    for folder, below, files in os.walk(images):
        record = ReconstructionRecord.read(Path(folder) / OURS) if OURS in files and COPIES in below else None
        if record and record.key:
            below.remove(COPIES)
            notes.append(
                f"{Path(folder) / COPIES}: left out: copies of photographs that an earlier reconstruction wrote"
            )
        below[:] = sorted(one for one in below if not one.startswith("."))
        for file in files:
            name = (Path(folder) / file).relative_to(images).as_posix()
            if file.startswith("."):
                hidden += [name] if Path(file).suffix.lower() in PHOTOGRAPHS else []
            elif why := _why_not(name):
                left_out[shown(name)] = why
            elif Path(file).suffix.lower() in PHOTOGRAPHS:
                names.append(name)
    if hidden:
        notes.append(f"{plural(len(hidden), 'hidden file')} left out ({list_some(sorted(hidden))})")
    return sorted(names, key=natural_key), left_out, notes


def _why_not(name: str) -> str:
    """Return why a photograph cannot be used by its name, and the remedy; empty if it can, or is no photograph."""
    suffix = Path(name).suffix.lower()
    if suffix in RAW:
        return "RAW: develop it to JPEG first, as with `darktable-cli` or `dcraw -c`"
    if suffix in HEIF:
        return "HEIC: convert it to JPEG first, as with `heif-convert` or `magick mogrify -format jpg`"
    if suffix not in PHOTOGRAPHS and Path(name.rstrip(" .")).suffix.lower() in PHOTOGRAPHS:
        return "the file name ends in a blank or a dot: rename the file"
    if suffix in PHOTOGRAPHS and name.encode(errors="ignore").decode() != name:
        return "the file name is no UTF-8: rename the file"
    return ""


def _read(
    images: Path, name: str, facts: FileFacts, wanted: ReconstructionOptions
) -> tuple[Photograph, CameraGroup, str] | str:
    """Return a photograph by its header, its camera, and a note on unusual values; or why it cannot be used."""
    path = images / name
    try:
        with opened_photograph(path) as image:
            width, height = image.size
            exif = image.getexif()
            detail, gps = dict(exif.get_ifd(EXIF_TAGS)), dict(exif.get_ifd(_GPS))
            device = " ".join(dict.fromkeys(f"{exif.get(271, '')} {exif.get(272, '')} {detail.get(42036, '')}".split()))
    except Exception as error:  # noqa: BLE001 - Pillow may raise any error on damaged files
        return f"cannot be read ({type(error).__name__}: {error})".replace(str(path), name)
    focal_px, note = _focal_px(detail, width, height)
    place, odd = _place(gps)
    note = "; ".join(f"{name}: {one}" for one in (note, odd) if one)
    device, focal_mm = device.strip("\0 "), _number(detail.get(_FOCAL_MM))
    folder = next((folder for folder in wanted.rig if name.startswith(f"{folder}/")), "")
    folder = folder or ("" if device else name.rpartition("/")[0])  # EXIF names no camera
    named = f"{folder + ': ' if folder else ''}{device or 'a camera without a name'}"
    what = f"{named}{f', {focal_mm:g} mm' if focal_mm else ''}, {width}x{height}"
    model = "OPENCV_FISHEYE" if "fisheye" in device.lower() else "OPENCV"
    camera = CameraGroup(
        model if wanted.camera == "auto" else wanted.camera,
        width,
        height,
        focal_px or UNKNOWN_FOCAL * max(width, height),
        is_known=focal_px is not None,
        what=what,
    )
    return Photograph(name, 0, facts.sha256(str(path)), place), camera, note


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return number if isfinite(number) and number > 0 else None


def _focal_px(detail: dict[int, Any], width: int, height: int) -> tuple[float | None, str]:
    """Return the focal length in pixels of a file of this size, also if it was scaled; and a note if it is implausible.

    From the 35 mm equivalent focal length (EXIF 2.32: same diagonal), otherwise from the sensor's pixels per unit.
    """
    focal_mm, on_film = _number(detail.get(_FOCAL_MM)), _number(detail.get(41989))
    taken_px = max(_number(detail.get(40962)) or 0, _number(detail.get(40963)) or 0)
    per_unit, unit = _number(detail.get(41486)), _UNIT_MM.get(detail.get(41488, 2))
    found = None
    if on_film:
        found = on_film / FULL_FRAME_MM * hypot(width, height)
    elif focal_mm and per_unit and unit and taken_px:
        found = focal_mm / unit * per_unit * max(width, height) / taken_px
    if found is None:
        return None, ""
    if not FOCAL_RANGE[0] <= found / max(width, height) <= FOCAL_RANGE[1]:
        return None, f"focal length of EXIF not used: {found:.0f} px for {max(width, height)} px is implausible"
    return found, ""


def _place(gps: dict[int, Any]) -> tuple[tuple[float, float, float] | None, str]:
    """Return latitude, longitude and altitude from EXIF, None if unusable; and a note if the values are implausible."""
    try:
        latitude = sum(float(one) / 60**power for power, one in enumerate(gps[2])) * (-1 if gps.get(1) == "S" else 1)
        longitude = sum(float(one) / 60**power for power, one in enumerate(gps[4])) * (-1 if gps.get(3) == "W" else 1)
        below = gps.get(5, b"\0") in (b"\1", 1)
        altitude = float(gps.get(6, 0.0)) * (-1 if below else 1)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None, ""
    if not all(map(isfinite, (latitude, longitude, altitude))) or latitude == longitude == 0:
        return None, ""
    if abs(latitude) > 90 or abs(longitude) > 180:
        swapped = ", but they look swapped" if abs(longitude) <= 90 and abs(latitude) <= 180 else ""
        return None, f"GPS of EXIF not used: {latitude:.4f}, {longitude:.4f} is no latitude and longitude{swapped}"
    return (latitude, longitude, altitude), ""


GpsPosition = tuple[float, float, float]
"""Latitude and longitude in degrees (WGS 84), and altitude in metres."""


def in_meters(places: Sequence[GpsPosition]) -> Floats:
    """Return positions in metres east, north and up of their median, [n, 3]; accurate over some tens of kilometres.

    Args:
        places: latitude, longitude (degrees, WGS 84) and altitude (metres) of each position; at least one.
    """
    array = neighbouring(np.array(places, np.float64).reshape(-1, 3))
    middle = np.median(array, axis=0)
    scale = np.array([METERS_PER_DEGREE, METERS_PER_DEGREE * cos(radians(float(middle[0])))])
    north_east = (array[:, :2] - middle[:2]) * scale
    return np.column_stack([north_east[:, 1], north_east[:, 0], array[:, 2] - middle[2]])


def checked_places(
    places: Sequence[GpsPosition | None], names: Sequence[str]
) -> tuple[list[GpsPosition | None], list[str]]:
    """Return the GPS positions with implausible ones replaced by None, and notes for people on what was found.

    All positions are dropped if fewer than three exist or all are within ALIKE_M. Positions farther than FAR_M from the
    median are dropped if they are at most a tenth; otherwise all are kept, with a note. Notes are empty if all
    is well, or if there are no positions.

    Args:
        places: latitude, longitude (degrees) and altitude (metres) of each photograph; None: it has no position.
        names: names of the photographs, for the notes.
    """
    known = [place for place in places if place is not None]
    if len(known) < 3:
        return [None] * len(places), [
            "only one or two photographs have a GPS position: GPS is not used"
        ] if known else []
    away = np.hypot(*in_meters(known)[:, :2].T)
    if away.max() < ALIKE_M:
        return [None] * len(places), ["all GPS positions are the same: they are not used"]
    distance = iter(away)
    far = [place is not None and next(distance) > FAR_M for place in places]
    if not any(far):
        return list(places), []
    named = list_some(name for name, one in zip(names, far, strict=True) if one)
    if sum(far) <= 0.1 * len(known):
        kept = [None if one else place for place, one in zip(places, far, strict=True)]
        return kept, [f"{plural(sum(far), 'GPS position')} more than 5 km from the others: not used ({named})"]
    return list(places), [
        f"{sum(far)} photographs were taken more than 5 km from the others ({named}): do they show another place?"
    ]


def _check_rig(rig: Sequence[str], names: Sequence[str]) -> None:
    """Check that each folder of a rig holds photographs, and that at least one name is in two of the folders.

    Raises:
        ConfigError: one of these does not hold.
    """
    held = [{name.removeprefix(f"{folder}/") for name in names if name.startswith(f"{folder}/")} for folder in rig]
    for folder, inside in zip(rig, held, strict=True):
        if not inside:
            raise ConfigError(
                f"--rig: {folder}: no photographs below a folder of this name",
                "Name subfolders of the folder of photographs.",
            )
    if len(rig) > 1 and max(Counter(name for inside in held for name in inside).values()) < 2:
        message = f"--rig {','.join(rig)}: no file name is in two of the folders"
        raise ConfigError(message, "Give photographs that were taken at once the same name in each folder.")


def _pairing(photographs: Sequence[Photograph], wanted: ReconstructionOptions) -> tuple[str, str]:
    n, placed = len(photographs), sum(one.place is not None for one in photographs)
    if wanted.pairs == "gps" and placed < 3:
        raise ConfigError("--pairs gps: fewer than three photographs have a GPS position", "Leave --pairs out.")
    if wanted.pairs != "auto":
        return wanted.pairs, "as --pairs says"
    if n <= FEW:
        return "all", f"each with each, since {n} photographs are few"
    if placed >= 0.8 * n:
        return "gps", f"each with the nearest by GPS, since {placed} of {n} photographs have a position"
    return "sequence", f"each with the next and similar photographs, since only {placed} of {n} have a GPS position"
