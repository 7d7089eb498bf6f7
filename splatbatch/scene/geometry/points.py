"""Points against poses: the similarity between them where one was moved alone, and the angles that give them depth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.geometry import limits
from splatbatch.scene.geometry.views import Candidate, Views
from splatbatch.scene.reprojection import in_pycolmap

_REMEDY = "Apply the same transformation to points and poses: pycolmap's Reconstruction.transform moves both."
_ROUNDS = 4
_LEAST_POINTS = 30
_PLAIN = 0.02  # relative difference below which a scale is 1; radians for an angle


@dataclass(frozen=True, eq=False)
class _Similarity:
    scale: float
    turn: Floats  # [3, 3], its determinant is -1 for a mirrored one
    move: Floats  # [3]

    def of(self, xyz: Floats) -> Floats:
        return self.scale * xyz @ self.turn.T + self.move


def moved_points(views: Views) -> Iterator[Candidate]:
    """Yield the similarity, mirrored or not, that brings the points onto the rays of their keypoints."""
    rays = _rays(views)
    usable = np.flatnonzero(np.isfinite(rays).all(axis=1) & np.isfinite(views.xyz).all(axis=1))
    if len(usable) < 24:
        return
    part = views.observed(usable)
    target = _affine(part, rays[usable])
    if target is None:
        return
    for is_mirrored in (False, True):
        similarity = _umeyama(part.xyz, target, is_mirrored=is_mirrored)
        what = _spell(similarity, views)
        errors = replace(views, xyz=similarity.of(views.xyz)).errors
        yield Candidate("points_moved", what, _REMEDY, errors)


def _rays(views: Views) -> Floats:
    """Return where keypoints lie on the plane z = 1 of their camera, [O, 2]."""
    rays = np.full((len(views.rows), 2), np.nan)
    of_camera = views.camera_ids[views.rows]
    for number in np.unique(of_camera):
        camera, chosen = in_pycolmap(views.cameras[int(number)]), of_camera == number
        if camera is not None:
            rays[chosen] = camera.cam_from_img(np.ascontiguousarray(views.xy[chosen]))
    return rays


def _affine(views: Views, rays: Floats) -> Floats | None:
    """Return the points [O, 3] after the affine map that brings them nearest to their rays.

    Each observation says x = u z and y = v z of its point in camera coordinates, linear in the twelve numbers of the
    map; divided by the depth of the round before, the misfit is one in the image.
    """
    centre, spread = views.xyz.mean(axis=0), max(float(views.xyz.std()), 1e-12)
    local = np.concatenate([(views.xyz - centre) / spread, np.ones((len(rays), 1))], axis=1)  # [O, 4]
    turn, move = views.rotations[views.rows], views.translations[views.rows]
    rows = turn[:, :2] - rays[:, :, None] * turn[:, 2:]  # [O, 2, 3]
    wanted = rays * move[:, 2:] - move[:, :2]  # [O, 2]
    system = np.einsum("oka,ob->okab", rows, local).reshape(-1, 2, 12)
    weights, moved = np.ones(len(rays)), None
    for _ in range(_ROUNDS):
        left, right = (system * weights[:, None, None]).reshape(-1, 12), (wanted * weights[:, None]).ravel()
        solution = np.linalg.lstsq(left, right, rcond=1e-9)[0]
        moved = local @ solution.reshape(3, 4).T
        depth = np.einsum("oa,oa->o", turn[:, 2], moved) + move[:, 2]
        missed = np.linalg.norm(system @ solution - wanted, axis=1) / np.maximum(np.abs(depth), 1e-12)
        if not np.isfinite(missed).all():
            return None
        weights = (missed <= 4 * np.median(missed) + 1e-12) / np.maximum(np.abs(depth), 1e-3 * np.median(np.abs(depth)))
    return moved


def _umeyama(source: Floats, target: Floats, *, is_mirrored: bool) -> _Similarity:
    """Return the similarity from one set of points to another by least squares (Umeyama 1991)."""
    a, b = source - source.mean(axis=0), target - target.mean(axis=0)
    u, spread, vt = np.linalg.svd(b.T @ a)
    sign = np.sign(np.linalg.det(u @ vt)) * (-1.0 if is_mirrored else 1.0)
    keep = np.array([1.0, 1.0, sign])
    turn = (u * keep) @ vt
    scale = float((spread * keep).sum() / max((a**2).sum(), 1e-300))
    return _Similarity(scale, turn, target.mean(axis=0) - scale * turn @ source.mean(axis=0))


def _spell(similarity: _Similarity, views: Views) -> str:
    """Say what has to be done to the points."""
    parts, turn = [], similarity.turn
    angle = np.degrees(np.arccos(np.clip((np.trace(turn) - 1) / 2, -1, 1)))
    if abs(similarity.scale - 1) > _PLAIN:
        parts.append(f"scaled by {similarity.scale:.3g}")
    if np.abs(np.abs(turn).max(axis=1) - 1).max() < _PLAIN / 2 and angle > 1:
        parts.append(f"with their axes exchanged to ({', '.join(_axis(row) for row in turn)})")
    elif angle > np.degrees(_PLAIN):
        parts.append(f"turned by {angle:.3g} degrees")
    shift = float(np.linalg.norm(similarity.of(np.zeros((1, 3)))[0]))
    if shift > _PLAIN * max(float(views.xyz.std()), 1e-12):
        x, y, z = similarity.move
        parts.append(f"shifted by ({x:.6g}, {y:.6g}, {z:.6g})")
    done = " and ".join(parts) or "moved a little"
    return f"the points fit the poses when they are {done}: one of the two was moved alone"


def _axis(row: Floats) -> str:
    index = int(np.argmax(np.abs(row)))
    return ("-" if row[index] < 0 else "") + "xyz"[index]


def stray_share(views: Views) -> float:
    """Return the share of observations that are off by what no intact image shows."""
    alarms = np.array([limits.alarm_px(views.cameras[image.camera_id]) for image in views.images])
    return float((views.errors > alarms[views.rows]).mean()) if len(views.rows) else 0.0


def widest_angle_degrees(views: Views) -> float | None:
    """Return the median over sampled points of the widest angle to their first ray; None where too few are sampled.

    The widest angle from one ray is at least half of the widest between any two, which is enough to tell 0.1 from 3.
    """
    with np.errstate(all="ignore"):
        centres = -np.einsum("iba,ib->ia", views.rotations, views.translations)
        rays = views.xyz - centres[views.rows]
        rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    order = np.argsort(views.places, kind="stable")
    places, rays = views.places[order], rays[order]
    _, starts, sizes = np.unique(places, return_index=True, return_counts=True)
    first = np.repeat(starts, sizes)
    chords = np.linalg.norm(rays - rays[first], axis=1)
    widest = np.maximum.reduceat(chords, starts) if len(starts) else np.zeros(0)
    widest = widest[(sizes > 1) & np.isfinite(widest)]
    if len(widest) < _LEAST_POINTS:
        return None
    return float(np.degrees(2 * np.arcsin(np.clip(np.median(widest) / 2, 0, 1))))
