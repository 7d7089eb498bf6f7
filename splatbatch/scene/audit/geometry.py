"""Checks of a model's geometry for the audit: whether poses, K (the camera matrix), points and keypoints agree.

A model without tracks is checked otherwise: points must lie in view of the cameras. With `verify-dims --deep`, pairs of
photographs are also matched and compared with the poses.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from splatbatch.scene.audit.findings import FIX, OF_GEOMETRY, AuditFinding, FindingWriter
from splatbatch.scene.audit.photographs import CameraRow
from splatbatch.scene.colmap.files import shown
from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.colmap.types import Camera, Floats, finite, rotations_of
from splatbatch.scene.geometry import hypotheses, limits
from splatbatch.scene.geometry.causes import Cause, find_causes
from splatbatch.scene.geometry.survey import Misfit, TrackObservations, find_misfit, survey
from splatbatch.scene.imports.agreement import MatchingSkipped, judge_few
from splatbatch.scene.imports.capture import PosedPhoto
from splatbatch.scene.reprojection import in_picture
from splatbatch.text import list_some, percent, plural

_NAMED = 3  # images named in a finding
_PROJECTIONS, _LEAST_POINTS = 4_000_000, 200  # in all; points sampled at least
_WRONG, _SUSPECT = 0.7, 0.95
"""Limits of the share of points that two images have in view.

Below the first, poses or K are wrong. Below the second they are wrong if poses read in another way have the points in
view; otherwise that is a warning. Triangulated points: 1.00; inverted poses: 0.07 to 0.91.
"""
_SAME_DEPTH = (0.9, 1.11)  # of points over what photographs show there; intact 1.000, K 1.3 times too large 0.86
_ABOUT = 0.02  # of two ways to read poses the plainer is taken


def measure(model: Reconstruction, most_images: int | None, alike: Mapping[int, int]) -> TrackObservations | None:
    """Return the survey of a model: sampled observations, on which the other checks work.

    None if the model has no images or points, or an image has an invalid camera. Also None if a sampled pose or any
    point is not finite, or beyond 1e12 units of the model.

    Args:
        model: the model, read from its folder.
        most_images: largest number of images that are sampled, evenly spaced; None: all.
        alike: ids of cameras that are judged as if they were another, with that other's id; empty: each by itself.

    Raises:
        ModelError: the keypoints cannot be read.
    """
    cameras = (model.cameras[number] for number in {image.camera_id for image in model.images})
    if not (model.images and len(model.points) and all(map(_is_sound, cameras))):
        return None
    found = survey(model, alike, most_images)
    values = (found.rotations, found.translations, found.points)
    return found if all((np.abs(one) < limits.GARBAGE).all() for one in values) else None  # NaN is not below


def check_geometry(found: TrackObservations, writer: FindingWriter) -> Iterator[AuditFinding]:
    """Yield findings about poses, K, lenses and points, one per cause found; none for an intact model.

    Small systematic faults are warnings. Points far off (`stray_points`) and depths that are a guess (`flat_angles`)
    are reported only where no cause was found.

    Raises:
        ZeroDivisionError: a focal length, width or height is 0, which `measure` does not let pass.
    """
    causes = find_causes(found)
    for cause in causes:
        best = cause.best
        before = f"{best.before_px:.4g} px" if np.isfinite(best.before_px) else "all points behind the camera"
        behind = f" and {percent(cause.behind)} of the points behind the camera" if cause.behind > 0.01 else ""
        after = f", {best.after_px:.2g} px after repair" if np.isfinite(best.after_px) else ""
        message = f"{best.what} (median reprojection error {before}{after}{behind})"
        finding = writer.note(best.kind, _subject(cause, found, writer), message, best.remedy)
        yield finding if cause.is_grave else replace(finding, severity="warning")
    num, total = len(found.obs()), len(found.images)
    if len(found.rows) and num < limits.HALF * total:
        yield writer.note("few_points", "points3D", f"only {num} of {plural(total, 'image')} see 8 points or more")
    alarms = np.array([limits.alarm_px(found.cameras[image.camera_id]) for image in found.images])
    stray = float(np.mean(found.errors > alarms[found.rows])) if len(found.rows) else 0.0
    if not causes and stray > limits.STRAY:
        message = f"{percent(stray)} of the observations miss keypoints by far, though poses and cameras fit the others"
        yield writer.note("stray_points", "points3D", message)
    degrees = hypotheses.widest_angle_degrees(found)
    if not causes and degrees is not None and degrees < limits.FLAT_DEGREES:
        message = f"rays to half of the points meet at less than {degrees:.2g} degrees: the depth is a guess"
        yield writer.note("flat_angles", "points3D", message)


def is_contradicted(findings: Iterable[AuditFinding]) -> bool:
    """Return whether one of the findings is an error of geometry, a name that stands twice, or of points far away.

    The audit then does not compare photographs, which cannot match their points.
    """
    return any(
        finding.severity == "error" and finding.kind in (*OF_GEOMETRY, "duplicate_name", "far_points")
        for finding in findings
    )


def find_misfits(
    found: TrackObservations, rows: Iterable[CameraRow], cameras: Mapping[int, Camera], blamed: Iterable[AuditFinding]
) -> dict[int, Misfit]:
    """Return the cameras whose K does not belong to their width and height, by id, each with the reason.

    Empty if a finding blames K or the keypoints of a whole camera already, as `wrong_k` or `turned`. Cameras are
    skipped if their parameters are invalid, or if their photographs have no size on disk, or several.

    Args:
        found: survey of the model.
        rows: a row per camera, with the sizes of its photographs on disk.
        cameras: cameras of the model, by id.
        blamed: findings about the model so far.
    """
    faults = {finding.kind for finding in blamed}
    if faults & {"k_rescaled", "keypoints_left", "wrong_k", "principal_point_off", "focal_off", "turned", "mirrored"}:
        return {}
    misfits = {}
    for row in rows:
        camera = cameras[row.camera_id]
        if len(row.sizes) == 1 and _is_sound(camera):
            its = np.flatnonzero(found.camera_ids == camera.id)
            if misfit := find_misfit(camera, row.sizes[0][0], found.reach_of(camera, its.tolist())):
                misfits[camera.id] = misfit
    return misfits


def note_misfit(number: int, misfit: Misfit, writer: FindingWriter) -> AuditFinding:
    """Return the finding about a camera whose K belongs to another size, with the remedy for that kind of misfit.

    Args:
        number: id of the camera.
        misfit: what `find_misfits` found about the camera.
        writer: makes the finding.
    """
    if misfit.kind == "size_alone":
        remedy = f"Correct width and height of the camera alone: {FIX.format('scale')} does it."
    elif misfit.meant:
        remedy = f"If the photographs were resized: {FIX.format('scale')}; if cropped: {FIX.format('crop')}."
    else:
        remedy = "Use the photographs that the model was made from, or make a model from these."
    return writer.note(misfit.kind, writer.camera(number), misfit.what, remedy)


def _is_sound(camera: Camera) -> bool:
    is_whole = camera.is_known and np.isfinite(camera.params).all()
    values = camera.pinhole if camera.has_center else (1.0,)
    is_sane = min(values[:2]) > 0 and max(map(abs, values)) < limits.LONGEST_PX
    return bool(is_whole and is_sane and 0 < min(camera.size) <= limits.LONGEST_PX)


def _subject(cause: Cause, found: TrackObservations, writer: FindingWriter) -> str:
    if cause.camera_id is None:
        return "all images" if cause.best.kind in {"inverted_poses", "flipped_axes", "quaternion_order"} else "points3D"
    total = sum(image.camera_id == cause.camera_id for image in found.images)
    if len(cause.images) >= limits.MOST * total and total > 1:
        return writer.camera(cause.camera_id)
    return list_some(map(shown, cause.images), _NAMED)


def check_in_view(model: Reconstruction, writer: FindingWriter) -> Iterator[AuditFinding]:
    """Yield one finding if fewer than 95 % of the points lie in view of two images; for models without tracks.

    Of many points, some are sampled evenly. Poses or K then do not belong to the points. The finding is an error below
    70 %, or if poses read in another convention have the points in view; else a warning. No finding for fewer than two
    images or without finite points.
    """
    images, points = model.images, finite(model.points.xyz)
    if len(images) < 2 or not len(points):
        return
    points = points[:: len(points) // max(_LEAST_POINTS, _PROJECTIONS // len(images)) or 1]
    cameras = [model.cameras[image.camera_id] for image in images]
    poses = rotations_of(images), np.array([image.translation for image in images], np.float64)
    share, behind = _in_view(points, cameras, poses)
    if share >= _SUSPECT:
        return
    others = [
        (_in_view(points, cameras, changed)[0], what, remedy)
        for _, what, remedy, changed in hypotheses.other_poses_of(images, poses[1])
    ]
    best = max(share for share, _, _ in others)
    message = f"{100 * (1 - share):.0f} % of the points are not in view of any two images"
    message += f", and {100 * behind:.0f} % lie behind a camera on average" if behind > share / 2 else ""
    remedy = ""
    if best >= _SUSPECT:
        _, what, remedy = next(other for other in others if other[0] >= best - _ABOUT)
        message = f"{message}; {100 * best:.0f} % would be in view of two if {what}"
    finding = writer.note("out_of_view", "points3D", message, remedy)
    yield finding if best >= _SUSPECT or share < _WRONG else replace(finding, severity="warning")


def _in_view(points: Floats, cameras: Sequence[Camera], poses: hypotheses.Poses) -> tuple[float, float]:
    """Return the share of points that two cameras have in view, and the mean share that lies behind a camera."""
    counts, behind = np.zeros(len(points), np.int64), []
    for camera, turn, move in zip(cameras, *poses, strict=True):
        with np.errstate(all="ignore"):
            local = points @ turn.T + move
        inside, _ = in_picture(camera, local)
        counts += inside
        behind.append(float((local[:, 2] <= 0).mean()))
    return float((counts > 1).mean()), float(np.mean(behind))


def check_pairs(model: Reconstruction, paths: Mapping[int, str], writer: FindingWriter) -> Iterator[AuditFinding]:
    """Match pairs of photographs, and yield findings if they contradict the poses, or the depth of the points.

    A few pairs are matched. No finding for fewer than two photographs, or if no pair has enough matches. Neither if
    pycolmap fails while it matches, or takes more than 300 s. Nothing is left on disk.

    Args:
        model: a model without tracks.
        paths: path of each photograph, by index in `model.images`; images that are not in it are left out.
        writer: makes the findings.

    Raises:
        OSError: the temporary folder cannot be written.
        ValueError, RuntimeError: pycolmap does not accept a camera or pose, or cannot use its database.
    """
    shots = tuple(
        PosedPhoto(
            image.name, Path(paths[row]), model.cameras[image.camera_id], image.rotation(), image.center(), image.name
        )
        for row, image in enumerate(model.images)
        if row in paths
    )
    if len(shots) < 2:
        return
    try:
        with tempfile.TemporaryDirectory(prefix="splatbatch-pairs-") as folder:
            verdict = judge_few(shots, Path(folder), model.points.xyz)
    except MatchingSkipped:
        return
    if verdict and verdict.is_contradicted:
        share = f"{100 * verdict.agreement:.0f} % of what {verdict.num_pairs} pairs of photographs show fits the poses"
        yield writer.note("pairs_disagree", "poses", share + (f"; more if {verdict.cause}" if verdict.cause else ""))
    ratio = verdict.depth_ratio if verdict else None
    if ratio is not None and not _SAME_DEPTH[0] <= ratio <= _SAME_DEPTH[1]:
        message = f"points lie {ratio:.3g} times as far away as pairs of photographs show: wrong focal length or scale"
        yield writer.note("pairs_disagree", "points3D", message)
