"""K against the keypoints: fitted anew by a robust line through projected and observed pixels, and named by its change.

Whatever the lens, COLMAP's models end in x = fx u + cx, y = fy v + cy, so that K follows from a line for each axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera
from splatbatch.scene.geometry import limits
from splatbatch.scene.geometry.candidates import Candidate
from splatbatch.scene.geometry.fitting import axes, fit, unit
from splatbatch.scene.geometry.survey import Reach
from splatbatch.scene.geometry.views import Views
from splatbatch.scene.reprojection import project

_RECOVER = (
    "Take K from the reconstruction that these keypoints and points came from, or refine it (colmap bundle_adjuster)."
)


@dataclass(frozen=True, eq=False)
class Group:
    """The views of one camera, or of some of its images, and how far their keypoints reach."""

    views: Views
    camera: Camera
    reach: Reach
    share: float
    """Of the camera's images: 1 for all."""


def refitted(group: Group) -> Iterator[Candidate]:
    """Yield the K that fits the keypoints with the camera's own lens; then one that also turns or mirrors."""
    camera, views = group.camera, group.views
    if "cx" not in CAMERA_MODELS[camera.model].params:
        return
    rays = project(unit(camera), views.in_camera)
    fitted = fit(axes(rays), views.xy)
    if fitted is not None:
        (fx, cx), (fy, cy), errors = fitted
        kind, what, remedy = name_change(group, (float(fx), float(fy), float(cx), float(cy)))
        yield Candidate(kind, what, remedy, errors)
    turned = fit([[rays[:, 1:]], [rays[:, :1]]], views.xy)
    if turned is not None:
        what = "the keypoints fit when x and y are exchanged: photographs or keypoints were turned by 90 degrees"
        remedy = "Use photographs and keypoints as COLMAP saw them, upright or not."
        yield Candidate("turned", what, remedy, turned[2])


def name_change(group: Group, fitted: tuple[float, float, float, float]) -> tuple[str, str, str]:
    """Return kind, words and remedy of a K that is `fitted` and not what the camera says."""
    camera = group.camera
    fx, fy, cx, cy = fitted
    side = limits.side_px(camera)
    scale = (fx / camera.fx, fy / camera.fy)
    moved = (cx - camera.cx, cy - camera.cy)
    has_scale = any(abs(each - 1) > limits.SAME for each in scale)
    stays = max(map(abs, moved)) <= _slack(scale) * side
    follows = max(abs(cx - scale[0] * camera.cx), abs(cy - scale[1] * camera.cy)) <= _slack(scale) * side
    values = f"fx {fx:.6g}, fy {fy:.6g}, cx {cx:.6g}, cy {cy:.6g}"
    if min(map(abs, scale)) < 1e-6:
        return "wrong_k", f"K is wrong: the keypoints say {values}; the camera {_spell_k(camera)}", _RECOVER
    if min(scale) < 0:
        return "mirrored", f"the keypoints are mirrored against K ({values})", "Use the photographs unmirrored."
    if not has_scale:
        return _name_shift(group, moved, (cx, cy))
    if (
        max(abs(fx / camera.fy - 1), abs(fy / camera.fx - 1)) < limits.SAME
        and abs(camera.fx / camera.fy - 1) > limits.SAME
    ):
        return "wrong_k", f"fx and fy are exchanged: the keypoints say {values}", "Exchange them in the camera."
    if follows and not (stays and abs(camera.cx) < 0.1 * side):
        return _name_rescale(group, scale)
    if stays:
        return _name_focal(camera, scale, (fx, fy))
    return "wrong_k", f"K is wrong: the keypoints say {values}; the camera {_spell_k(camera)}", _RECOVER


def _name_focal(camera: Camera, scale: tuple[float, float], focal: tuple[float, float]) -> tuple[str, str, str]:
    off = [1 / each for each in scale]
    if abs(scale[0] - scale[1]) <= 2 * limits.SAME * max(scale):
        what = f"the focal length is {np.mean(off):.3g} times what the keypoints say ({focal[0]:.6g} px)"
    else:
        worse = int(abs(scale[1] - 1) > abs(scale[0] - 1))
        what = f"f{'xy'[worse]} is {off[worse]:.3g} times what the keypoints say ({focal[worse]:.6g} px)"
    return "focal_off", f"{what}; the principal point fits", _RECOVER


def _name_shift(group: Group, moved: tuple[float, float], fitted: tuple[float, float]) -> tuple[str, str, str]:
    camera, reach = group.camera, group.reach
    size = (camera.width, camera.height)
    values = f"({fitted[0]:.6g}, {fitted[1]:.6g})"
    off = f"({-moved[0]:+.4g}, {-moved[1]:+.4g}) px"
    exchanged = max(abs(fitted[0] - camera.cy), abs(fitted[1] - camera.cx)) < limits.SAME * limits.side_px(camera)
    if exchanged:
        return "principal_point_off", f"cx and cy are exchanged: the keypoints say {values}", "Exchange them."
    if group.share < 1:
        what = f"the keypoints of {_part(group)} lie {off} off where K puts their points"
        return "half_applied", what, "Apply the crop to all images of the camera, or give these a camera of their own."
    centred = max(abs(camera.cx / size[0] - 0.5), abs(camera.cy / size[1] - 0.5)) < limits.CENTRED
    is_beyond = max(reach.high[axis] / size[axis] for axis in (0, 1)) > 1 + limits.SAME or min(reach.low) < -limits.SAME
    if centred and is_beyond:
        what = (
            f"the keypoints lie {off} off where K puts their points, and beyond the photograph: a crop left them behind"
        )
        return "keypoints_left", what, "Shift the keypoints as the principal point was shifted; K fits the photographs."
    percent = max(abs(moved[axis]) / size[axis] for axis in (0, 1))
    what = f"the principal point is {off} ({100 * percent:.2g} % of the side) off: the keypoints say {values}"
    return "principal_point_off", what, _RECOVER


def _name_rescale(group: Group, scale: tuple[float, float]) -> tuple[str, str, str]:
    camera, factor = group.camera, f"{scale[0]:.4g}"
    if abs(scale[0] - scale[1]) > 2 * limits.SAME * max(scale):
        factor = f"{scale[0]:.4g} in x and {scale[1]:.4g} in y"
    if group.share < 1:
        what = f"the keypoints of {_part(group)} are {factor} times as large as K has them: a rescale was half-applied"
        return "half_applied", what, "Rescale all images of the camera alike, or give these a camera of their own."
    if _off_centre(camera, scale) < _off_centre(camera, (1.0, 1.0)):  # K belongs to its size only once it is mended
        what = f"K is {1 / scale[0]:.4g} times what the keypoints and the camera's size say: K alone was rescaled"
        return "k_rescaled", what, f"Multiply fx, cx (and fy, cy) by {factor}, or take K from the source."
    what = f"the keypoints are {factor} times as large as K and the camera's size say: a rescale left them behind"
    return "keypoints_left", what, f"Divide the keypoints in images.bin by {factor}; K fits the photographs."


def _off_centre(camera: Camera, scale: Sequence[float]) -> float:
    """Return how far from the middle a principal point times `scale` lies, as a share of the side."""
    shares = (scale[0] * camera.cx / camera.width, scale[1] * camera.cy / camera.height)
    return max(abs(share - 0.5) for share in shares)


def _slack(scale: tuple[float, float]) -> float:
    """Return how exactly a principal point is known: a focal length that is far too long makes it vague."""
    return limits.SAME * max(1.0, *(abs(each) for each in scale)) + 0.02 * min(1.0, abs(abs(scale[0]) - 1))


def _part(group: Group) -> str:
    return f"{len(np.unique(group.views.rows))} of its images"


def _spell_k(camera: Camera) -> str:
    return f"fx {camera.fx:.6g}, fy {camera.fy:.6g}, cx {camera.cx:.6g}, cy {camera.cy:.6g}"
