"""Lenses against the keypoints: none, the opposite one, one that was dropped, a fisheye's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from splatbatch.scene.colmap.types import CAMERA_MODELS, PINHOLE_MODELS, Camera, Floats
from splatbatch.scene.geometry.candidates import Candidate
from splatbatch.scene.geometry.fitting import axes, fit, polynomial, unit
from splatbatch.scene.geometry.intrinsics import Group
from splatbatch.scene.reprojection import project

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
