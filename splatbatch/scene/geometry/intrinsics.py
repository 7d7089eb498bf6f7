"""K and lenses against the keypoints: fitted anew by a robust line, and named by their change.

Whatever the lens, COLMAP's models end in x = fx u + cx, y = fy v + cy, so that K follows from a line for each axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from splatbatch.scene.colmap.types import CAMERA_MODELS, PINHOLE_MODELS, Camera, Floats
from splatbatch.scene.geometry import limits
from splatbatch.scene.geometry.survey import Reach
from splatbatch.scene.geometry.views import Candidate, Views
from splatbatch.scene.reprojection import project

_ROUNDS = 4


def unit(camera: Camera) -> Camera:
    """Return the camera with focal length 1 and principal point 0: what is left is its lens."""
    one = {"f": 1.0, "fx": 1.0, "fy": 1.0, "cx": 0.0, "cy": 0.0}
    names = CAMERA_MODELS[camera.model].params
    return replace(camera, params=tuple(one.get(name, value) for name, value in zip(names, camera.params, strict=True)))


def axes(rays: Floats) -> list[list[Floats]]:
    """Return u for the x axis and v for the y axis."""
    return [[rays[:, :1]], [rays[:, 1:]]]


def polynomial(rays: Floats) -> list[list[Floats]]:
    """Return u, u r^2, u r^4 for each axis, and what decentring adds."""
    square = (rays**2).sum(axis=1, keepdims=True)
    cross = 2 * rays[:, :1] * rays[:, 1:]
    return [[ray, ray * square, ray * square**2, cross, square + 2 * ray**2] for ray in (rays[:, :1], rays[:, 1:])]


def fit(terms: list[list[Floats]], xy: Floats) -> tuple[Floats, Floats, Floats] | None:
    """Return the coefficients for x and y (the constant last) and the errors [O]; None where nothing can be fitted.

    Least squares, in rounds that leave out what misses by more than three medians.
    """
    columns = [np.concatenate([*parts, np.ones((len(xy), 1))], axis=1) for parts in terms]
    usable = np.isfinite(columns[0]).all(axis=1) & np.isfinite(columns[1]).all(axis=1) & np.isfinite(xy).all(axis=1)
    kept, errors = usable.copy(), np.full(len(xy), np.inf)
    solution = (np.zeros(0), np.zeros(0))
    for _ in range(_ROUNDS):
        if kept.sum() < 4 * columns[0].shape[1]:
            return None
        solution = (_solve(columns[0][kept], xy[kept, 0]), _solve(columns[1][kept], xy[kept, 1]))
        missed = [columns[axis][usable] @ solution[axis] - xy[usable, axis] for axis in (0, 1)]
        errors[usable] = np.hypot(*missed)
        kept = usable & (errors <= 3 * np.median(errors[kept]) + 1e-9)
    return solution[0], solution[1], errors


def _solve(columns: Floats, wanted: Floats) -> Floats:
    """Return the least squares solution by the normal equations: ten times as fast as lstsq, and exact enough."""
    scale = np.linalg.norm(columns, axis=0) + 1e-300
    columns = columns / scale
    square = columns.T @ columns + 1e-14 * np.eye(columns.shape[1])
    return np.linalg.solve(square, columns.T @ wanted) / scale


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


_BEND = frozenset(
    {"k", "k0", "k1", "k2", "k3", "k4", "k5", "k6", "p0", "p1", "p2", "omega", "sx1", "sy1", "s0", "s1", "s2", "s3"}
)
_LEAST_LENS = 1e-4  # a coefficient below it bends nothing


def other_lenses(group: Group) -> Iterator[Candidate]:
    """Yield lenses: none, the opposite one, one that was dropped, a fisheye's."""
    camera, views = group.camera, group.views
    if "cx" not in CAMERA_MODELS[camera.model].params:
        return
    pinhole = replace(camera, model="PINHOLE", params=(camera.fx, camera.fy, camera.cx, camera.cy))
    if camera.model not in PINHOLE_MODELS:
        straight = views.errors_with({**views.cameras, camera.id: pinhole})
        what = "the keypoints fit without the distortion: they are undistorted already"
        remedy = "Use the PINHOLE cameras that came with the undistorted photographs."
        yield Candidate("distortion_kept", what, remedy, straight)
        opposite = replace(camera, params=_opposite(camera))
        what = "the keypoints fit with the opposite distortion: its coefficients have the wrong sign"
        errors = views.errors_with({**views.cameras, camera.id: opposite})
        yield Candidate("wrong_lens", what, "Negate them; another program's model inverts COLMAP's.", errors)
        fitted = fit(axes(project(unit(pinhole), views.in_camera)), views.xy)
        if fitted is not None:
            yield Candidate("distortion_kept", _without(fitted), remedy, fitted[2])
    yield from _bent(group, pinhole)


def _bent(group: Group, pinhole: Camera) -> Iterator[Candidate]:
    """Yield a radial lens, then a fisheye, where the model has another lens or none."""
    camera, views = group.camera, group.views
    flat = project(unit(pinhole), views.in_camera)
    had = "no distortion" if camera.model in PINHOLE_MODELS or not _is_bent(camera) else "another distortion"
    kind = "distortion_dropped" if had == "no distortion" else "wrong_lens"
    remedy = "Take model and parameters of the camera that the keypoints came with, or use undistorted photographs."
    radial = fit(polynomial(flat), views.xy)
    if radial is not None:
        k1 = radial[0][1] / (radial[0][0] or 1.0)
        what = f"the keypoints fit a lens with k1 = {k1:.3g}, the camera has {had}"
        yield Candidate(kind, what, remedy, radial[2])
    angles = project(unit(replace(pinhole, model="FISHEYE")), views.in_camera)
    fisheye = fit(polynomial(angles), views.xy)
    if fisheye is not None and "FISHEYE" not in camera.model:
        yield Candidate(
            "wrong_lens", f"the keypoints fit a fisheye lens, the camera is {camera.model}", remedy, fisheye[2]
        )


def _without(fitted: tuple[Floats, Floats, Floats]) -> str:
    return f"the keypoints fit a pinhole (fx {fitted[0][0]:.6g}, fy {fitted[1][0]:.6g}): they are undistorted already"


def _is_bent(camera: Camera) -> bool:
    named = zip(CAMERA_MODELS[camera.model].params, camera.params, strict=True)
    return any(name in _BEND and abs(value) > _LEAST_LENS for name, value in named)


def _opposite(camera: Camera) -> tuple[float, ...]:
    named = zip(CAMERA_MODELS[camera.model].params, camera.params, strict=True)
    return tuple(-value if name in _BEND else value for name, value in named)
