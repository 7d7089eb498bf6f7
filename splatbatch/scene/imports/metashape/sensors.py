"""Metashape's sensors: calibrations as COLMAP cameras, and where a slave of a rig sits on its master.

Formulas: Agisoft Metashape User Manual, appendix "Camera models". cx and cy are relative to the middle of the image, B1
is added to the focal length along x, and P1, P2 stand in the other order than OpenCV's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.imports.capture import Notes
from splatbatch.scene.imports.lens import Lens, camera_of, spell_misfit
from splatbatch.scene.imports.metashape.document import Document, numbers
from splatbatch.scene.imports.mistakes import Mistakes, spelt
from splatbatch.scene.imports.pose import NoPose, Similarity, similarity_of
from splatbatch.scene.photos.sizes import Size

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MOST_OFF_PX = 1.0
"""By how much a fitted lens may differ from the calibrated one."""
_BENDS = {"frame": "frame", "fisheye": "equidistant", "equidistant_fisheye": "equidistant",
          "equisolid_fisheye": "equisolid"}  # fmt: skip
_PANORAMAS = ("spherical", "equirectangular")
_TERMS = ("f", "fx", "fy", "cx", "cy", "b1", "b2", "skew", "k1", "k2", "k3", "k4", "p1", "p2", "p3", "p4")
_LONGEST_PX = 1 << 20
_AGAIN = "Optimise the cameras in Metashape and export them again, as Agisoft XML."


@dataclass(frozen=True, eq=False)
class Sensor:
    """A sensor of a chunk: its camera, and its place on the master of its rig."""

    label: str
    camera: Camera | None
    """None where it has no usable calibration: a mistake if one of its photographs has a pose."""
    trouble: str = ""
    on_master: Similarity | None = None
    """From the axes of this sensor to those of its master; None where it has none, or is its own master."""


def read_sensors(document: Document, chunk: Element, notes: Notes, mistakes: Mistakes) -> Mapping[str, Sensor]:
    """Return the sensors of a chunk by id."""
    found: dict[str, Sensor] = {}
    for element in chunk.findall("sensors/sensor"):
        name = f'sensor {element.get("id", "?")} "{element.get("label", "")}"'
        where = document.where(element, name)
        if (key := element.get("id")) is None or key in found:
            mistakes.add(where, "has no id, or that of another sensor", _AGAIN)
            continue
        camera, trouble = _camera(element, name, notes)
        found[key] = Sensor(name, camera, trouble, _on_master(element, where, mistakes))
    return found


def _camera(element: Element, name: str, notes: Notes) -> tuple[Camera | None, str]:
    """Return the COLMAP camera of a sensor, or why there is none."""
    calibrations = element.findall("calibration")
    adjusted = [one for one in calibrations if one.get("class") == "adjusted"]
    calibration = next(iter([*adjusted, *calibrations]), None)
    kind = (calibration.get("type") if calibration is not None else None) or element.get("type", "frame")
    size = _size(calibration) or _size(element)
    if size is None:
        return None, "its resolution is missing or no number of pixels"
    if kind in _PANORAMAS:
        return Camera(0, "EQUIRECTANGULAR", *size, (float(size[0]), float(size[1]))), ""
    if kind not in _BENDS:
        return None, f"its type {spelt(kind)} is no lens that COLMAP knows ({', '.join([*_BENDS, *_PANORAMAS])})"
    if calibration is None:
        return None, "it has no calibration"
    if not adjusted:
        notes.convert(f"{name}: its calibration was never adjusted; the initial one was taken")
    if (own := _size(element)) not in (None, size):
        return None, f"its resolution is {own}, that of its calibration {size}"
    terms, broken = _terms(calibration)
    if broken:
        return None, f"{', '.join(broken)} of its calibration is no number"
    return _fitted(terms, _BENDS[kind], size, name, notes)


def _fitted(terms: Mapping[str, float], bend: str, size: Size, name: str, notes: Notes) -> tuple[Camera | None, str]:
    lens = _lens(terms, bend, size)
    if lens is None:
        return None, "its calibration has no focal length f above 0"
    camera, off = camera_of(lens, size)
    extras = [f"{key.upper()} {terms[key]:.3g}" for key in ("b2", "skew", "k4", "p3", "p4") if terms[key]]
    extras += [f"type {bend}"] if bend == "equisolid" else []
    if off > MOST_OFF_PX:
        return None, f"{', '.join(extras)}: {spell_misfit(off)}"
    if off:
        notes.convert(f"{name}: {', '.join(extras)}: fitted as {camera.model}, {off:.2g} px off at most")
    notes.convert(f"{name}: {camera.model}, {size[0]}x{size[1]}")
    return camera, ""


def _lens(terms: Mapping[str, float], bend: str, size: Size) -> Lens | None:
    if terms["fx"]:  # PhotoScan before 1.2: both focal lengths, principal point from the corner, skew
        fx, fy, cx, cy, skew = terms["fx"], terms["fy"] or terms["fx"], terms["cx"], terms["cy"], terms["skew"]
    else:
        fx, fy, skew = terms["f"] + terms["b1"], terms["f"], terms["b2"]
        cx, cy = size[0] / 2 + terms["cx"], size[1] / 2 + terms["cy"]
    if not (fx > 0 and fy > 0):
        return None
    radial = (terms["k1"], terms["k2"], terms["k3"], terms["k4"])
    # P1 belongs to x: OpenCV calls that p2
    return Lens(fx, fy, cx, cy, radial, (terms["p2"], terms["p1"]), (terms["p3"], terms["p4"]), skew, bend)  # type: ignore[arg-type]


def _terms(calibration: Element) -> tuple[dict[str, float], list[str]]:
    """Return the terms of a calibration, those that are not written 0, and the keys of those that are no numbers."""
    terms, broken = dict.fromkeys(_TERMS, 0.0), []
    for key in _TERMS:
        element = calibration.find(key)
        if element is not None:
            values = numbers(element, 1)
            terms[key] = float(values[0]) if values is not None else 0.0
            broken += [] if values is not None else [key]
    return terms, broken


def _size(element: Element | None) -> Size | None:
    resolution = element.find("resolution") if element is not None else None
    if resolution is None:
        return None
    wide, high = (_side(resolution.get(key, "")) for key in ("width", "height"))
    return (wide, high) if wide and high else None


def _side(text: str) -> int | None:
    """Return a number of pixels; None where a text is none."""
    try:
        side = float(text)
    except ValueError:
        return None
    return int(side) if 0 < side < _LONGEST_PX and side == int(side) else None


def _on_master(element: Element, where: str, mistakes: Mistakes) -> Similarity | None:
    """Return the place of a slave on its master: rotation, and location in units of the chunk."""
    if element.get("master_id") in (None, element.get("id")):
        return None
    turn, place = element.find("rotation"), element.find("location")
    place = place if place is not None else element.find("translation")
    if turn is None:
        return None
    rotation = numbers(turn, 9)
    location = numbers(place, 3) if place is not None else np.zeros(3)
    if rotation is None or location is None:
        mistakes.add(where, "rotation or location on its master are not 9 and 3 numbers", _AGAIN)
        return None
    try:
        found = similarity_of(np.column_stack([rotation.reshape(3, 3), location]))
    except NoPose as error:
        mistakes.add(where, f"rotation on its master {error}", _AGAIN)
        return None
    return Similarity(found.rotation, found.translation, 1.0)
