"""What a camera becomes when its photographs have another size: exact, or refused with the reason. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera
from splatbatch.scene.photos.sizes import Equal, FewPixels, Relation, Scaled, Size, Transposed, Unlike, relate, spell

How = Literal["scale", "crop"]

# Models with one focal length, and the model that says the same with two: distortion acts on normalised
# coordinates (colmap/src/colmap/sensor/models.h), so the coefficients carry over and zeros fill the rest.
_TWO_FOCALS = {
    "SIMPLE_PINHOLE": "PINHOLE",
    "SIMPLE_RADIAL": "OPENCV",
    "RADIAL": "OPENCV",
    "SIMPLE_RADIAL_FISHEYE": "OPENCV_FISHEYE",
    "RADIAL_FISHEYE": "OPENCV_FISHEYE",
    "SIMPLE_DIVISION": "DIVISION",
    "SIMPLE_FISHEYE": "FISHEYE",
}
_ALONG_X, _ALONG_Y = frozenset({"fx", "cx", "w"}), frozenset({"fy", "cy", "h"})


@dataclass(frozen=True)
class Change:
    """The new camera, and where a pixel of the old one comes to lie: xy * scale + shift."""

    before: Camera
    after: Camera
    scale: tuple[float, float] = (1.0, 1.0)
    shift: tuple[float, float] = (0.0, 0.0)
    has_keypoints: bool = True
    """Whether the keypoints follow; they do not where they fit the photographs already."""

    @property
    def moves_pixels(self) -> bool:
        """Whether anything changes at all."""
        return self.before != self.after

    def in_words(self) -> str:
        """Return one line with the cameras before and after, and what was done."""
        old, new = (f"{each.model} {each.width}x{each.height}" for each in (self.before, self.after))
        parts = []
        if self.before.params == self.after.params:
            parts.append("width and height alone: K and keypoints fit the photographs already")
        if self.scale != (1.0, 1.0):
            parts.append("scaled by {:.6g} in x, {:.6g} in y".format(*self.scale))
        if self.shift != (0.0, 0.0):
            shift = "principal point shifted by {:+.6g} px in x, {:+.6g} px in y".format(*self.shift)
            parts.append(f"{shift} for a crop about the centre")
        if not self.has_keypoints and self.before.params != self.after.params:
            parts.append("the keypoints left as they are")
        own = "" if self.after.id == self.before.id else f" (now camera {self.after.id})"
        return f"camera {self.before.id}{own}: {old} → {new}, {' and '.join(parts)}"


@dataclass(frozen=True)
class Refusal:
    """Why no change of K would be honest, and what to do instead."""

    what: str
    remedy: str


def change_camera(camera: Camera, photo: Size, how: How) -> Change | Refusal:
    """Return the change that makes `camera` fit photographs of size `photo`.

    `scale` multiplies each axis by its own ratio; `crop` takes the photograph for the centre of the calibrated image
    (after the uniform resize that is seen, where a few pixels are off at another resolution).
    """
    size = (camera.width, camera.height)
    relation = relate(size, photo)
    if isinstance(relation, Equal):
        return Change(camera, camera)
    if refusal := _refuse(relation, f"camera {camera.id}: {spell(size)}, photographs {spell(photo)}", how):
        return refusal
    if how == "scale":
        return _apply(camera, photo, (photo[0] / size[0], photo[1] / size[1]), (0.0, 0.0))
    if "cx" not in CAMERA_MODELS[camera.model].params:
        return Refusal(f"camera {camera.id}: {camera.model} has no principal point to shift", "Use --fix scale.")
    factor = relation.factor if isinstance(relation, FewPixels) else 1.0
    shift = ((photo[0] - size[0] * factor) / 2, (photo[1] - size[1] * factor) / 2)
    return _apply(camera, photo, (factor, factor), shift)


def rescaled(camera: Camera, size: Size, scale: tuple[float, float]) -> Camera:
    """Return the camera of photographs of `size` whose axes were scaled by `scale`; distortion carries over."""
    return camera if size == (camera.width, camera.height) else _apply(camera, size, scale, (0.0, 0.0)).after


def _refuse(relation: Relation, where: str, how: How) -> Refusal | None:
    match relation:
        case Transposed():
            return Refusal(f"{where}: width and height are exchanged", "Turn the photographs back as COLMAP saw them.")
        case Unlike() if how == "scale":
            remedy = "Use --fix crop if they were cropped about the centre; else find the photographs COLMAP used."
            return Refusal(f"{where}: another shape, no resize gives it", remedy)
        case Scaled(factor) if how == "crop":
            is_whole = (1 / factor).is_integer()
            exactly = f"exactly 1/{1 / factor:.0f}" if is_whole else f"both sides times {factor:.4g}"
            remedy = "Use --fix scale; if they were cropped alike on all sides, cut K where the model is made."
            return Refusal(f"{where}: {exactly}, resized and not cropped", "Use --fix scale." if is_whole else remedy)
    return None


def _apply(camera: Camera, photo: Size, scale: tuple[float, float], shift: tuple[float, float]) -> Change:
    model = camera if scale[0] == scale[1] else _with_two_focals(camera)
    params = []
    for name, value in zip(CAMERA_MODELS[model.model].params, model.params, strict=True):
        axis = 0 if name in _ALONG_X or name == "f" else 1
        moved = value * scale[axis] if name in _ALONG_X | _ALONG_Y | {"f"} else value
        params.append(moved + shift[axis] if name in {"cx", "cy"} else moved)
    after = replace(model, width=photo[0], height=photo[1], params=tuple(params))
    return Change(camera, after, scale, shift)


def _with_two_focals(camera: Camera) -> Camera:
    if camera.model not in _TWO_FOCALS:
        return camera
    twin = CAMERA_MODELS[_TWO_FOCALS[camera.model]]
    focal, cx, cy, *distortion = camera.params
    params = (focal, focal, cx, cy, *distortion)
    return replace(camera, model=twin.name, params=params + (0.0,) * (len(twin.params) - len(params)))
