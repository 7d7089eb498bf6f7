"""A camera by itself: are its parameters numbers, and can a lens have them at this image size?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from splatbatch.errors import SceneError
from splatbatch.scene.audit.findings import Finding, Sink
from splatbatch.scene.colmap.files import shown
from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera
from splatbatch.scene.photos.sizes import spell
from splatbatch.scene.photos.undistort import UNDISTORT, is_distorted, straighten

_REPAIR = "Repair the intrinsics in the source reconstruction and cut the patch again."
_MAX_SIDE = 1 << 20  # px; beyond that a size is garbage
# Focal length over the longer side of the image. COLMAP itself drops cameras outside 0.1 … 10 (mapper options
# min_focal_length_ratio, max_focal_length_ratio); 0.05 is 169 degrees of view, which no pinhole image has.
_POSSIBLE, _USUAL = (0.05, 100.0), (0.1, 10.0)
_MAX_STRETCH = 1.2  # fx / fy; square pixels have 1
_CENTRAL = (0.2, 0.8)  # share of the side where principal points lie, even those of crops mostly


def check_camera(camera: Camera, scribe: Sink) -> Iterator[Finding]:
    """Yield what is wrong with a camera; the graver faults hide the lesser ones that follow from them."""
    subject = f"camera {camera.id}"
    model = CAMERA_MODELS.get(camera.model)
    if camera.model not in scribe.rules.camera_models | scribe.rules.undistorts:
        yield _unsupported(camera, scribe)
    if not (0 < camera.width <= _MAX_SIDE and 0 < camera.height <= _MAX_SIDE):
        yield scribe.note("bad_camera_size", subject, f"its size is {camera.width}x{camera.height} px", _REPAIR)
    elif model is not None and len(model.params) != len(camera.params):
        message = (
            f"{len(camera.params)} parameters, but {model.name} has {len(model.params)}: {', '.join(model.params)}"
        )
        yield scribe.note("params_count", subject, message, _REPAIR)
    elif not all(map(math.isfinite, camera.params)):
        values = ", ".join(f"{value:g}" for value in camera.params)
        yield scribe.note("bad_params", subject, f"its parameters are not all finite: {values}", _REPAIR)
    elif model is not None and "cx" in model.params:
        yield from _check_focal(camera, scribe)
        yield from _check_principal_point(camera, scribe)
        if camera.model in scribe.rules.undistorts and is_distorted(camera):
            yield _check_distortion(camera, scribe)


def _unsupported(camera: Camera, scribe: Sink) -> Finding:
    takes = ", ".join(sorted(scribe.rules.camera_models))
    message = f"camera model {shown(camera.model)}; {scribe.rules.name} takes {takes}"
    remedy = f"Undistort photographs and model together: {UNDISTORT}"
    return scribe.note("unsupported_model", f"camera {camera.id}", message, remedy)


def _check_distortion(camera: Camera, scribe: Sink) -> Finding:
    subject, remedy = f"camera {camera.id}", f"Undistort photographs and model together: {UNDISTORT}"
    try:
        straight = straighten(camera)
    except SceneError as error:
        return scribe.note("unsupported_model", subject, error.message.removeprefix(f"{subject}: "), remedy)
    message = (
        f"{camera.model}, {spell((camera.width, camera.height))} px become {spell((straight.width, straight.height))}"
    )
    return scribe.note("distorted", subject, message, f"None is needed; for COLMAP's own resampling: {UNDISTORT}")


def _check_focal(camera: Camera, scribe: Sink) -> Iterator[Finding]:
    subject, side = f"camera {camera.id}", max(camera.width, camera.height)
    ratios = (camera.fx / side, camera.fy / side)
    value = f"fx {camera.fx:.6g}, fy {camera.fy:.6g} px at {camera.width}x{camera.height}"
    if not all(_POSSIBLE[0] <= ratio <= _POSSIBLE[1] for ratio in ratios):
        yield scribe.note("impossible_focal", subject, f"focal length is impossible: {value}", _REPAIR)
    elif not all(_USUAL[0] <= ratio <= _USUAL[1] for ratio in ratios):
        message = f"focal length is {min(ratios):.3g} times the longer side: {value}"
        yield scribe.note("unusual_focal", subject, message, f"Look at the lens. If it is wrong: {_REPAIR}")
    elif not 1 / _MAX_STRETCH <= camera.fx / camera.fy <= _MAX_STRETCH:
        message = f"pixels are not square: {value}"
        yield scribe.note("unusual_focal", subject, message, f"Unless the image was stretched: {_REPAIR}")


def _check_principal_point(camera: Camera, scribe: Sink) -> Iterator[Finding]:
    subject = f"camera {camera.id}"
    shares = (camera.cx / camera.width, camera.cy / camera.height)
    where = f"principal point ({camera.cx:.6g}, {camera.cy:.6g}) in an image of {camera.width}x{camera.height} px"
    if not all(0 < share < 1 for share in shares):
        yield scribe.note("principal_point_outside", subject, f"{where} lies outside", _REPAIR)
    elif not all(_CENTRAL[0] <= share <= _CENTRAL[1] for share in shares):
        yield scribe.note(
            "principal_point_far", subject, f"{where} is far from the centre", f"Unless cropped: {_REPAIR}"
        )
