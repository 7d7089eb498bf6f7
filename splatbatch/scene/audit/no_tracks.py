"""Checks of a model without tracks: points in front of the cameras and in view, and with --deep, matched pairs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from splatbatch.scene.audit.findings import AuditFinding, FindingWriter
from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.colmap.types import Camera, Floats, finite, rotations_of
from splatbatch.scene.geometry import hypotheses
from splatbatch.scene.imports.agreement import MatchingSkipped, judge_few
from splatbatch.scene.imports.capture import PosedPhoto
from splatbatch.scene.reprojection import in_picture

_PROJECTIONS, _LEAST_POINTS = 4_000_000, 200  # in all; points sampled at least
_WRONG, _SUSPECT = 0.7, 0.95
"""Limits of the share of points that two images have in view.

Below the first, poses or K are wrong. Below the second they are wrong if poses read in another way have the points in
view; otherwise that is a warning. Triangulated points: 1.00; inverted poses: 0.07 to 0.91.
"""
_SAME_DEPTH = (0.9, 1.11)  # of points over what photographs show there; intact 1.000, K 1.3 times too large 0.86
_ABOUT = 0.02  # of two ways to read poses the plainer is taken


def has_tracks(model: Reconstruction) -> bool:
    """Return whether any point names an image that sees it."""
    return bool(model.points.track_lengths.any())


def check_in_view(model: Reconstruction, scribe: FindingWriter) -> Iterator[AuditFinding]:
    """Yield a finding if too few points lie in view of two cameras: poses or K do not belong to the points."""
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
    message = f"{100 * (1 - share):.0f} % of the points are in view of no two images"
    message += f", and {100 * behind:.0f} % lie behind a camera on average" if behind > share / 2 else ""
    remedy = ""
    if best >= _SUSPECT:
        _, what, remedy = next(other for other in others if other[0] >= best - _ABOUT)
        message = f"{message}; {100 * best:.0f} % would be if {what}"
    finding = scribe.note("out_of_view", "points3D", message, remedy)
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


def check_pairs(model: Reconstruction, paths: Mapping[int, str], scribe: FindingWriter) -> Iterator[AuditFinding]:
    """Match pairs of photographs and yield a finding if they contradict the poses, or the depth of the points.

    Args:
        model: a model without tracks.
        paths: path of each photograph, by row of the model's images.
        scribe: makes the finding.
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
        share = f"{100 * verdict.agreement:.0f} % of what {verdict.num_pairs} pairs of photographs both show fits them"
        yield scribe.note("pairs_disagree", "poses", share + (f"; more if {verdict.cause}" if verdict.cause else ""))
    ratio = verdict.depth_ratio if verdict else None
    if ratio is not None and not _SAME_DEPTH[0] <= ratio <= _SAME_DEPTH[1]:
        message = f"points lie {ratio:.3g} times as far away as pairs of photographs show: K, or a scale, is wrong"
        yield scribe.note("pairs_disagree", "points3D", message)
