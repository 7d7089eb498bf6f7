"""The lens of a frame: its own keys, else those at the top; focal lengths in pixels, else from the angle of view."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from splatbatch.fields import number, whole
from splatbatch.scene.colmap.types import Camera
from splatbatch.scene.imports.capture import Mistakes, Notes, spelt, why_no_number
from splatbatch.scene.imports.lens import Lens, camera_of, spell_misfit
from splatbatch.scene.photos.sizes import Size

DISTORTION = ("k1", "k2", "k3", "k4", "k5", "k6", "p1", "p2")
KEYS = frozenset({
    "fl_x", "fl_y", "cx", "cy", "w", "h", "camera_angle_x", "camera_angle_y", "x_fov", "y_fov", "camera_model",
    "is_fisheye", *DISTORTION,
})  # fmt: skip
MOST_OFF_PX = 1.0
"""By how much a fitted lens may differ from the one that was written."""
_PERSPECTIVE = frozenset({
    "SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "FULL_OPENCV", "PERSPECTIVE",
})  # fmt: skip
_PINHOLES = frozenset({"SIMPLE_PINHOLE", "PINHOLE"})
_FISHEYES = frozenset({"OPENCV_FISHEYE", "FISHEYE", "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE"})
_EQUIRECTANGULAR = "EQUIRECTANGULAR"
_NO_COLMAP = "COLMAP has no such camera: undistort the images to one of its models first."
_CONTRARY = 0.01
"""Relative difference between a focal length and an angle of view from which on they contradict each other."""


class Intrinsics:
    """The keys of one frame over those at the top."""

    def __init__(self, frame: Mapping[str, Any], top: Mapping[str, Any], where: str, mistakes: Mistakes) -> None:
        self._frame, self._top, self._where, self._mistakes = frame, top, where, mistakes
        self.is_sound = True

    def get(self, key: str) -> Any:
        """Return what is written under a key: in the frame, else at the top."""
        return self._frame[key] if key in self._frame else self._top.get(key)

    def number(self, *keys: str) -> float | None:
        """Return the number under the first key that is written; None where none is; no number is a mistake."""
        for key in keys:
            if key in self._frame or key in self._top:
                value = number(self.get(key))
                if value is None:
                    self.fault(f"{key} {spelt(self.get(key))} {why_no_number(self.get(key))}", f"Mend {key}.")
                return value
        return None

    def fault(self, what: str, remedy: str) -> None:
        """Note a mistake about this lens; those of keys at the top are noted once."""
        self.is_sound = False
        key = what.split(" ", 1)[0]
        self._mistakes.add(self._where if key in self._frame or key not in self._top else "at the top", what, remedy)

    def size(self, photo: Size | None) -> Size | None:
        """Return w and h as written, else the photograph's."""
        wide, high = (whole(self.number(key)) for key in ("w", "h"))
        if wide is None and high is None:
            return photo
        if wide is None or high is None or min(wide, high) < 0:
            self.fault(f"w {spelt(self.get('w'))}, h {spelt(self.get('h'))}", "Write width and height in pixels.")
            return None
        return wide, high


def read_camera(keys: Intrinsics, photo: Size | None, notes: Notes) -> Camera | None:
    """Return the COLMAP camera of a frame, given the size of its photograph; None where its keys are mistaken."""
    size = keys.size(photo)
    model = _model(keys, notes)
    if size is None or model is None:
        return None
    if model == _EQUIRECTANGULAR:
        return Camera(0, model, *size, (float(size[0]), float(size[1])))
    measured = photo if min(size) <= 1 and photo else size
    focal = _focal_lengths(keys, measured, is_fisheye=model in _FISHEYES, notes=notes)
    center = [keys.number(name) for name in ("cx", "cy")]
    if focal is None or not keys.is_sound:
        return None
    if None in center:
        notes.convert("cx, cy are not written: the principal point is the middle of the image")
    cx, cy = (side / 2 if value is None else value for value, side in zip(center, measured, strict=True))
    return _camera(keys, model, Lens(*focal, cx, cy), size, notes)


def _model(keys: Intrinsics, notes: Notes) -> str | None:
    written = keys.get("camera_model")
    if written is None:
        if keys.get("is_fisheye") is True:
            return "OPENCV_FISHEYE"
        notes.convert("camera_model is not written: a perspective lens with the k and p that are (OPENCV)")
        return "OPENCV"
    name = str(written).upper()
    known = _PERSPECTIVE | _FISHEYES | {_EQUIRECTANGULAR}
    if name not in known:
        keys.fault(f"camera_model {spelt(written)} is not known ({', '.join(sorted(known))})", _NO_COLMAP)
        return None
    return name


def _focal_lengths(keys: Intrinsics, size: Size, *, is_fisheye: bool, notes: Notes) -> tuple[float, float] | None:
    """Return focal lengths in pixels; those of the angle of view where none are written."""
    fl_x, fl_y = keys.number("fl_x"), keys.number("fl_y")
    of_angle = [_of_angle(keys, axis, side) for axis, side in zip("xy", size, strict=True)]
    if not keys.is_sound:
        return None
    if fl_x is None and (is_fisheye or of_angle[0] is None):
        remedy = "Write fl_x (and fl_y) in pixels" + ("." if is_fisheye else ", or camera_angle_x in radians.")
        keys.fault("fl_x is missing", remedy)
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
        notes.convert("focal lengths are computed from camera_angle_x (and camera_angle_y where it is written)")
    return x, y


def _of_angle(keys: Intrinsics, axis: str, side: int) -> float | None:
    """Return the focal length of camera_angle_x (radians, instant-ngp: or x_fov in degrees)."""
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


def _camera(keys: Intrinsics, model: str, pinhole: Lens, size: Size, notes: Notes) -> Camera | None:
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
        notes.convert(f"k4 of a radial polynomial: fitted as {camera.model}, {off:.2g} px off at most")
    return camera
