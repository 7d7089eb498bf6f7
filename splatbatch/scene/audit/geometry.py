"""Checks of a model's geometry: whether poses, K, points and keypoints agree, as findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from splatbatch.scene.audit.findings import FIX, OF_GEOMETRY, AuditFinding, FindingWriter
from splatbatch.scene.audit.photographs import CameraRow
from splatbatch.scene.colmap.files import shown
from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera
from splatbatch.scene.geometry import limits
from splatbatch.scene.geometry.causes import Cause, find_causes
from splatbatch.scene.geometry.hypotheses import stray_share, widest_angle_degrees
from splatbatch.scene.geometry.survey import GeometrySurvey, Misfit, find_misfit, survey
from splatbatch.text import list_some

_NAMED = 3  # images named in a finding


def measure(model: Reconstruction, most_images: int | None) -> GeometrySurvey | None:
    """Return the survey of a model; None if it has no images or points, or a pose or camera is invalid.

    Raises:
        ModelError: the keypoints cannot be read.
    """
    used = {image.camera_id for image in model.images}
    is_sound = all(_is_sound(model.cameras[number]) for number in used)
    if not (model.images and len(model.points) and is_sound):
        return None
    found = survey(model, most_images)
    views = found.views
    with np.errstate(all="ignore"):
        is_sane = all(
            (np.abs(values) < limits.GARBAGE).all() for values in (views.rotations, views.translations, views.points)
        )
    return found if is_sane else None


def check_geometry(found: GeometrySurvey, scribe: FindingWriter) -> Iterator[AuditFinding]:
    """Yield findings about poses, K, lenses and points, each with the cause that explains most of the error."""
    causes = find_causes(found)
    for cause in causes:
        finding = scribe.note(cause.best.kind, _subject(cause, found), _message(cause), cause.best.remedy)
        yield finding if cause.is_grave else replace(finding, severity="warning")
    stray = stray_share(found.views)
    if not causes and stray > limits.STRAY:
        message = (
            f"{100 * stray:.2g} % of the observations miss their keypoints by far, though poses and K fit the others"
        )
        yield scribe.note("stray_points", "points3D", message)
    degrees = widest_angle_degrees(found.views)
    if not causes and degrees is not None and degrees < limits.FLAT_DEGREES:
        message = f"half of the points are seen under less than {degrees:.2g} degrees: their depth is a guess"
        yield scribe.note("flat_angles", "points3D", message)


def is_contradicted(findings: Iterable[AuditFinding]) -> bool:
    """Return whether a geometry error was found. Photographs then cannot match their points, and are not compared."""
    return any(finding.severity == "error" and finding.kind in OF_GEOMETRY for finding in findings)


def find_misfits(
    found: GeometrySurvey, rows: Iterable[CameraRow], cameras: Mapping[int, Camera], blamed: Iterable[AuditFinding]
) -> dict[int, Misfit]:
    """Return the cameras whose K does not belong to their size, by id. Empty if a finding blames K itself."""
    faults = {finding.kind for finding in blamed}
    if faults & {"k_rescaled", "keypoints_left", "wrong_k", "principal_point_off", "focal_off", "turned", "mirrored"}:
        return {}
    misfits = {}
    for row in rows:
        camera = cameras[row.camera_id]
        if len(row.sizes) == 1 and _is_sound(camera):
            its = np.flatnonzero(found.views.camera_ids == camera.id)
            if misfit := find_misfit(camera, row.sizes[0][0], found.reach_of(camera, its.tolist())):
                misfits[camera.id] = misfit
    return misfits


def note_misfit(number: int, misfit: Misfit, scribe: FindingWriter) -> AuditFinding:
    """Return the finding about a camera whose K belongs to another size."""
    if misfit.kind == "size_alone":
        remedy = f"Set width and height alone: {FIX.format('scale')} does."
    elif misfit.meant:
        remedy = f"If they were resized: {FIX.format('scale')}; if cropped: {FIX.format('crop')}."
    else:
        remedy = "Use the photographs that the model was made from, or bring K to these where the model is made."
    return scribe.note(misfit.kind, f"camera {number}", misfit.what, remedy)


def _is_sound(camera: Camera) -> bool:
    model = CAMERA_MODELS.get(camera.model)
    is_whole = model is not None and len(model.params) == len(camera.params) and np.isfinite(camera.params).all()
    if not (is_whole and 0 < min(camera.width, camera.height) <= limits.LONGEST_PX):
        return False
    values = camera.pinhole if camera.has_center else (1.0,)
    return min(values[:2]) > 0 and max(map(abs, values)) < limits.LONGEST_PX


def _subject(cause: Cause, found: GeometrySurvey) -> str:
    if cause.camera_id is None:
        return "all images" if cause.best.kind in {"inverted_poses", "flipped_axes", "quaternion_order"} else "points3D"
    total = sum(image.camera_id == cause.camera_id for image in found.views.images)
    if len(cause.images) >= limits.MOST * total and total > 1:
        return f"camera {cause.camera_id}"
    return list_some(map(shown, cause.images), _NAMED)


def _message(cause: Cause) -> str:
    best = cause.best
    before = f"{best.before_px:.4g} px" if np.isfinite(best.before_px) else "all points behind the camera"
    behind = f" and {100 * cause.behind:.2g} % of the points behind the camera" if cause.behind > 0.01 else ""
    after = f", {best.after_px:.2g} px without it" if np.isfinite(best.after_px) else ""
    return f"{best.what} (median reprojection error {before}{after}{behind})"
