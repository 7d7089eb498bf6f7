"""Candidates for what is wrong with a model: another K or lens, points that were moved alone, or wrong poses.

K (the camera matrix) and lenses are fitted anew by robust least squares, and named by their change. Whatever the lens,
COLMAP's models end in x = fx u + cx, y = fy v + cy, so that K follows from a line for each axis. Points are compared
with the poses by the similarity (scale, rotation, shift) between them. Poses are tried inverted, with the axes of
OpenGL, with quaternions in another order, exchanged among images, or computed anew from keypoints and points
(resected).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from splatbatch.scene.colmap.files import load_pycolmap, shown
from splatbatch.scene.colmap.types import PINHOLE_MODELS, Camera, Floats, Image
from splatbatch.scene.geometry import limits
from splatbatch.scene.geometry.survey import CauseCandidate, KeypointReach, TrackObservations
from splatbatch.scene.reprojection import in_pycolmap, project, unproject
from splatbatch.scene.rotations import angle, from_quats
from splatbatch.scene.similarity import Similarity, fitted_similarity
from splatbatch.text import percent

_ROUNDS = 4
_RECOVER = (
    "Take the camera from the reconstruction that the keypoints came from, or refine it by colmap bundle_adjuster."
)
_USE_ITS_LENS = "Use the camera model and parameters that the keypoints came with, or undistorted photographs."
_BEND = frozenset(
    {"k", "k0", "k1", "k2", "k3", "k4", "k5", "k6", "p0", "p1", "p2", "omega", "sx1", "sy1", "s0", "s1", "s2", "s3"}
)
_LEAST_LENS = 1e-4  # a coefficient below it bends nothing
_LEAST_POINTS = 30
_PLAIN = 0.02  # relative difference below which a scale is 1; radians for an angle
_ORDERS = {"": (0, 1, 2, 3), "quaternions are x, y, z, w": (3, 0, 1, 2), "quaternions are z, w, x, y": (1, 2, 3, 0)}
_AXES = {
    "": (1.0, 1.0, 1.0),
    "the camera's y and z axes are OpenGL's (up, backward) and not COLMAP's (down, forward)": (1.0, -1.0, -1.0),
    "the camera's x and y axes are turned by 180 degrees": (-1.0, -1.0, 1.0),
    "the camera looks backward (x and z axes flipped)": (-1.0, 1.0, -1.0),
}
_REMEDY = {
    "inverted_poses": "Correct every pose in the program that makes the model ({}).",
    "flipped_axes": "Turn the axes in the program that makes the model: COLMAP's cameras look along +z with y down.",
    "quaternion_order": "Write quaternions as w, x, y, z (scipy and pycolmap's .quat have w last).",
}
_SEARCHED_IMAGES = 24


def unit(camera: Camera) -> Camera:
    """Return the camera with focal length 1 and principal point 0, so that only its distortion is left.

    Raises:
        KeyError: the camera model is unknown.
        ValueError: the camera has another number of parameters than its model.
    """
    one = {"f": 1.0, "fx": 1.0, "fy": 1.0, "cx": 0.0, "cy": 0.0}
    return replace(camera, params=tuple(one.get(name, value) for name, value in camera.named_params()))


def axes(rays: Floats) -> list[list[Floats]]:
    """Return the columns of a pinhole fit (`fit`) for the x and the y axis: u, and v, of rays (u, v) [O, 2]."""
    return [[rays[:, :1]], [rays[:, 1:]]]


def polynomial(rays: Floats) -> list[list[Floats]]:
    """Return the columns of a lens fit (`fit`) for the x and the y axis, from rays (u, v) [O, 2].

    For x they are u, u r^2, u r^4, and two terms of decentring distortion; for y the same with v.
    """
    square = (rays**2).sum(axis=1, keepdims=True)
    cross = 2 * rays[:, :1] * rays[:, 1:]
    return [[ray, ray * square, ray * square**2, cross, square + 2 * ray**2] for ray in (rays[:, :1], rays[:, 1:])]


def fit(terms: list[list[Floats]], xy: Floats) -> tuple[Floats, Floats, Floats] | None:
    """Return the coefficients for x, those for y, and the errors [O] in pixels, of a robust least squares fit.

    Observations that miss by more than three times the median error are left out of the next round. The error is
    infinite where a ray or keypoint is not finite. None: in a round, fewer than four observations per coefficient of an
    axis are left.

    Args:
        terms: columns for the x and the y axis, [O, 1] each; a constant is added as the last.
        xy: keypoints, [O, 2] in pixels.
    """
    columns = [np.concatenate([*parts, np.ones((len(xy), 1))], axis=1) for parts in terms]
    usable = np.isfinite(np.concatenate([*columns, xy], axis=1)).all(axis=1)
    kept, errors, found = usable, np.full(len(xy), np.inf), list[Floats]()
    for _ in range(_ROUNDS):
        if kept.sum() < 4 * columns[0].shape[1]:
            return None
        found = [_solve(each[kept], xy[kept, axis]) for axis, each in enumerate(columns)]
        errors[usable] = np.hypot(*(columns[axis][usable] @ found[axis] - xy[usable, axis] for axis in (0, 1)))
        kept = usable & (errors <= 3 * np.median(errors[kept]) + 1e-9)
    return found[0], found[1], errors


def _solve(columns: Floats, wanted: Floats) -> Floats:
    """Return the least squares solution by the normal equations: ten times as fast as lstsq, and exact enough."""
    scale = np.linalg.norm(columns, axis=0) + 1e-300
    columns = columns / scale
    square = columns.T @ columns + 1e-14 * np.eye(columns.shape[1])
    return np.linalg.solve(square, columns.T @ wanted) / scale


def of_camera(views: TrackObservations, camera: Camera, reach: KeypointReach, share: float) -> Iterator[CauseCandidate]:
    """Yield what may be wrong with a camera: its K first, then its lens; nothing for a panorama or an invalid model.

    Between these, keypoints turned by 90 degrees are tried. Tried for the lens: distortion of the wrong sign, keypoints
    without distortion, other distortion, and a fisheye.

    Args:
        views: observations of the camera's images, or of some of them.
        camera: the camera.
        reach: how far the keypoints of these images reach over the photograph.
        share: share of the camera's images that are in `views`; 1 for all.

    Raises:
        ZeroDivisionError: a focal length, width or height of the camera is 0.
    """
    if not camera.has_center:
        return
    rays = project(unit(camera), views.in_camera)
    if fitted := fit(axes(rays), views.xy):
        (fx, cx), (fy, cy), errors = fitted
        part = f"the keypoints of {len(np.unique(views.rows))} of the camera's images" if share < 1 else ""
        yield CauseCandidate(*name_change(camera, (float(fx), float(fy), float(cx), float(cy)), reach, part), errors)
    if turned := fit(axes(rays[:, ::-1]), views.xy):
        what = "the keypoints fit when x and y are exchanged: photographs or keypoints were turned by 90 degrees"
        remedy = "Use photographs and keypoints as COLMAP saw them, both turned alike."
        yield CauseCandidate("turned", what, remedy, turned[2])
    pinhole = replace(camera, model="PINHOLE", params=camera.pinhole)
    flat = project(unit(pinhole), views.in_camera)
    if camera.model not in PINHOLE_MODELS:
        negated = tuple(-value if name in _BEND else value for name, value in camera.named_params())
        bent = views.with_camera(replace(camera, params=negated))
        what = "the keypoints fit with the opposite distortion: its coefficients have the wrong sign"
        yield CauseCandidate("wrong_lens", what, "Negate the coefficients; another program inverts them.", bent.errors)
        if fitted := fit(axes(flat), views.xy):
            (fx, _), (fy, _), errors = fitted
            what = f"the keypoints fit a pinhole (fx {fx:.6g}, fy {fy:.6g}): they are undistorted already"
            yield CauseCandidate(
                "distortion_kept", what, "Use the PINHOLE cameras that came with the undistorted photographs.", errors
            )
    if fitted := fit(polynomial(flat), views.xy):
        (linear, cubic, *_), _, errors = fitted
        is_bent = any(name in _BEND and abs(value) > _LEAST_LENS for name, value in camera.named_params())
        kind, had = ("wrong_lens", "another") if is_bent else ("distortion_dropped", "no")
        what = f"the keypoints fit a lens with k1 = {cubic / (linear or 1.0):.3g}, the camera has {had} distortion"
        yield CauseCandidate(kind, what, _USE_ITS_LENS, errors)
    angles = project(unit(replace(pinhole, model="FISHEYE")), views.in_camera)
    if "FISHEYE" not in camera.model and (fisheye := fit(polynomial(angles), views.xy)):
        what = f"the keypoints fit a fisheye lens, the camera is {camera.model}"
        yield CauseCandidate("wrong_lens", what, _USE_ITS_LENS, fisheye[2])


def name_change(
    camera: Camera, fitted: tuple[float, float, float, float], reach: KeypointReach, part: str
) -> tuple[str, str, str]:
    """Return kind of finding, words and remedy for a camera whose keypoints fit another K.

    Args:
        camera: the camera as the model has it.
        fitted: fx, fy, cx, cy of the K that the keypoints fit, in pixels.
        reach: how far the keypoints reach over the photograph.
        part: the keypoints that were fitted, in words, if they are only some of the camera's; empty: they are all.

    Raises:
        SceneError: `camera.has_center` is False.
        ZeroDivisionError: a focal length, width or height of the camera is 0.
    """
    fx, fy, cx, cy = fitted
    size, side = camera.size, max(camera.size)
    scale, moved = np.array([fx / camera.fx, fy / camera.fy]), np.array([cx - camera.cx, cy - camera.cy])
    has_scale = bool((np.abs(scale - 1) > limits.SAME).any())
    is_uniform = abs(scale[0] - scale[1]) <= 2 * limits.SAME * max(scale)
    off_if_stays = np.abs(moved).max()
    off_if_follows = max(abs(cx - scale[0] * camera.cx), abs(cy - scale[1] * camera.cy))
    # a focal length that is far too long makes a principal point vague
    slack = limits.SAME * max(1.0, *np.abs(scale)) + 0.02 * min(1.0, abs(abs(scale[0]) - 1))
    stays, follows = (off <= slack * side for off in (off_if_stays, off_if_follows))
    if stays and follows:  # a small change of scale moves both by less than the principal point is known to
        follows = off_if_follows < off_if_stays
    are_centres_exchanged = max(abs(cx - camera.cy), abs(cy - camera.cx)) < limits.SAME * side
    is_centred = _off_centre(camera) < limits.CENTRED
    is_beyond = max(np.array(reach.high) / size) > 1 + limits.SAME or min(reach.low) < -limits.SAME
    is_k_alone = _off_centre(camera, scale) < _off_centre(camera)  # K belongs to its size once it is mended

    k, had = ("fx {:.6g}, fy {:.6g}, cx {:.6g}, cy {:.6g}".format(*each) for each in (fitted, camera.pinhole))
    centre = f"the keypoints say ({cx:.6g}, {cy:.6g})"
    off = "({:+.4g}, {:+.4g}) px".format(*-moved)
    factor = f"{scale[0]:.4g}" if is_uniform else f"{scale[0]:.4g} in x and {scale[1]:.4g} in y"
    off_by = 1 / scale
    worse = int(abs(scale[1] - 1) > abs(scale[0] - 1))
    which, times = ("the focal length", np.mean(off_by)) if is_uniform else (f"f{'xy'[worse]}", off_by[worse])
    rows = [  # whether the row holds, kind, words, remedy
        (scale.min() < 0, "mirrored", f"the keypoints are mirrored: they say {k}", "Use the photographs unmirrored."),
        (
            not has_scale and are_centres_exchanged,
            "principal_point_off",
            f"cx and cy are exchanged: {centre}",
            "Exchange cx and cy.",
        ),
        (
            not has_scale and bool(part),
            "half_applied",
            f"{part} lie {off} off where the camera puts their points",
            "Apply the crop to all images of the camera, or give these images a camera of their own.",
        ),
        (
            not has_scale and is_centred and is_beyond,
            "keypoints_left",
            f"the keypoints lie {off} off where the camera puts their points, and beyond the photograph:"
            " it was cropped, and the keypoints were left as they were",
            "Shift the keypoints as the principal point was shifted; the camera fits the photographs.",
        ),
        (
            not has_scale,
            "principal_point_off",
            f"the principal point is {off} ({percent((np.abs(moved) / size).max())} of the side) off: {centre}",
            _RECOVER,
        ),
        (
            follows and bool(part),
            "half_applied",
            f"{part} are {factor} times as large as the camera says: only these were rescaled",
            "Rescale all images of the camera alike, or give these images a camera of their own.",
        ),
        (
            follows and is_k_alone,
            "k_rescaled",
            f"focal length and principal point alone were rescaled, to {off_by[0]:.4g} times what the keypoints say",
            f"Multiply fx, cx (and fy, cy) by {factor}, or take the camera from the source model.",
        ),
        (
            follows,
            "keypoints_left",
            f"the keypoints are {factor} times as large as the camera says: only the camera was rescaled",
            f"Divide the keypoints in images.bin by {factor}; the camera fits the photographs.",
        ),
        (
            stays,
            "focal_off",
            f"{which} is {times:.3g} times what the keypoints say ({fitted[worse]:.6g} px); the principal point fits",
            _RECOVER,
        ),
        (True, "wrong_k", f"the camera is wrong: the keypoints say {k}; the camera has {had}", _RECOVER),
    ]
    return next((kind, what, remedy) for holds, kind, what, remedy in rows if holds)


def _off_centre(camera: Camera, scale: Sequence[float] | Floats = (1.0, 1.0)) -> float:
    """Return how far from the middle a principal point times `scale` lies, as a share of the side."""
    shares = (scale[0] * camera.cx / camera.width, scale[1] * camera.cy / camera.height)
    return max(abs(share - 0.5) for share in shares)


def moved_points(views: TrackObservations) -> Iterator[CauseCandidate]:
    """Yield the hypothesis that the points were moved without the poses: by a similarity, then by a mirroring one.

    Nothing is yielded with fewer than 24 usable observations, or where no such transform can be computed.
    """
    rays, of_camera = np.full((len(views.rows), 2), np.nan), views.camera_ids[views.rows]
    for number in np.unique(of_camera):
        chosen = of_camera == number
        rays[chosen] = unproject(views.cameras[int(number)], views.xy[chosen])  # NaN if pycolmap lacks the camera
    usable = np.flatnonzero(np.isfinite(rays).all(axis=1) & np.isfinite(views.xyz).all(axis=1))
    if len(usable) < 24:
        return
    part = views.observed(usable)
    target = _affine(part, rays[usable])
    if target is None:
        return
    for is_mirrored in (False, True):
        similarity = fitted_similarity(part.xyz, target, np.ones(len(target)), is_mirrored=is_mirrored)
        errors = replace(views, xyz=similarity.of_points(views.xyz)).errors
        yield CauseCandidate(
            "points_moved",
            _spell_similarity(similarity, views),
            "Apply the same transformation to points and poses: pycolmap's Reconstruction.transform moves both.",
            errors,
        )


def _affine(views: TrackObservations, rays: Floats) -> Floats | None:
    """Return the points [O, 3] after the affine map that brings them nearest to their rays; None where it diverges.

    Each observation says x = u z and y = v z of its point in camera coordinates, linear in the twelve numbers of the
    map. Divided by the depth of the round before, the misfit is one in the image.
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


def _spell_similarity(similarity: Similarity, views: TrackObservations) -> str:
    """Describe the change to the points that the similarity stands for."""
    parts, turn = [], similarity.rotation
    degrees = math.degrees(angle(turn, np.eye(3)))
    if abs(similarity.scale - 1) > _PLAIN:
        parts.append(f"scaled by {similarity.scale:.3g}")
    if np.abs(np.abs(turn).max(axis=1) - 1).max() < _PLAIN / 2 and degrees > 1:
        along = np.abs(turn).argmax(axis=1)
        names = (("-" if row[at] < 0 else "") + "xyz"[at] for row, at in zip(turn, along, strict=True))
        parts.append(f"with their axes exchanged to ({', '.join(names)})")
    elif degrees > math.degrees(_PLAIN):
        parts.append(f"turned by {degrees:.3g} degrees")
    if float(np.linalg.norm(similarity.translation)) > _PLAIN * max(float(views.xyz.std()), 1e-12):
        parts.append("shifted by ({:.6g}, {:.6g}, {:.6g})".format(*similarity.translation))
    done = " and ".join(parts) or "moved a little"
    return f"the points fit the poses once the points are {done}: points or poses were moved alone"


def widest_angle_degrees(views: TrackObservations) -> float | None:
    """Return the median, over sampled points, of the widest angle between a point's first ray and its other rays.

    None if fewer than 30 points were sampled with two rays. The angle is at least half of the widest between any two
    rays, which is enough to tell 0.1 degrees from 3.
    """
    with np.errstate(all="ignore"):
        centres = -np.einsum("iba,ib->ia", views.rotations, views.translations)
        rays = views.xyz - centres[views.rows]
        rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    _, first, point = np.unique(views.places, return_index=True, return_inverse=True)
    widest = np.zeros(len(first))
    np.maximum.at(widest, point, np.linalg.norm(rays - rays[first[point]], axis=1))
    widest = widest[(widest > 0) & np.isfinite(widest)]  # 0: seen once, or by copies of one photograph
    if len(widest) < _LEAST_POINTS:
        return None
    return float(np.degrees(2 * np.arcsin(np.clip(np.median(widest) / 2, 0, 1))))


_INVERSIONS = {
    "": (False, False, 1, ""),
    "poses are camera-to-world and not world-to-camera": (True, True, -1, "R' = R^T, t' = -R^T t"),
    "translations are camera centres": (False, True, -1, "R' = R, t' = -R t"),
    "translations have the opposite sign": (False, False, -1, "R' = R, t' = -t"),
    "rotations are camera-to-world": (True, False, 1, "R' = R^T, t' = t"),
}
"""Whether rotations are transposed, whether translations are turned by them then, and their sign; and the formula."""


Poses = tuple[Floats, Floats]
"""Rotations [I, 3, 3] and translations [I, 3] of images, from world to camera."""


def conventions(views: TrackObservations) -> Iterator[CauseCandidate]:
    """Yield the hypotheses that poses were written in the conventions of another program, the fewest changes first.

    They are inverted poses (or only rotations or translations of them), quaternions in another order, and other camera
    axes, alone and together.
    """
    for kind, what, remedy, (rotations, translations) in other_poses_of(views.images, views.translations):
        yield CauseCandidate(kind, what, remedy, replace(views, rotations=rotations, translations=translations).errors)


def other_poses_of(images: Sequence[Image], before: Floats) -> Iterator[tuple[str, str, str, Poses]]:
    """Yield kind of finding, words, remedy and poses for each other convention that poses may have been written in.

    Conventions with the fewest changes come first.

    Args:
        images: images with their quaternions.
        before: translations as the model has them, [I, 3].
    """
    quats = np.array([image.quat for image in images])
    choices = list(product(_INVERSIONS, _ORDERS, _AXES))
    for inversion, order, axes in sorted(choices, key=lambda names: sum(map(bool, names))):
        named = {"inverted_poses": inversion, "quaternion_order": order, "flipped_axes": axes}
        kinds = [kind for kind, name in named.items() if name]
        if kinds:
            is_transposed, is_turned, sign, formula = _INVERSIONS[inversion]
            rotations = from_quats(quats[:, _ORDERS[order]]).transpose((0, 2, 1) if is_transposed else (0, 1, 2))
            translations = sign * (np.einsum("iab,ib->ia", rotations, before) if is_turned else before)
            signs = np.array(_AXES[axes])
            what = "; ".join(name for name in (inversion, order, axes) if name)
            remedy = " ".join(_REMEDY[kind].format(formula) for kind in kinds)
            yield kinds[0], what, remedy, (signs[:, None] * rotations, signs * translations)


def resected(views: TrackObservations) -> Iterator[CauseCandidate]:
    """Yield the hypothesis that poses are wrong, with the poses that pycolmap finds from keypoints and points.

    One candidate is yielded; none if pycolmap finds no pose for any image. Images without a new pose keep theirs.
    """
    found = {row: pose for row in np.unique(views.rows).tolist() if (pose := _resect(views, row))}
    if found:
        degrees = math.degrees(np.median([angle(views.rotations[row], turn) for row, (turn, _) in found.items()]))
        moved = [
            views.rotations[row].T @ views.translations[row] - turn.T @ move for row, (turn, move) in found.items()
        ]
        distance = np.median(np.linalg.norm(moved, axis=1))
        what = f"poses are off by {degrees:.3g} degrees and {distance:.3g} units (medians); the rest fits the keypoints"
        remedy = "Register these images again (colmap image_registrator), or remove them from the model."
        yield CauseCandidate("wrong_pose", what, remedy, views.with_poses(found).errors)


def _resect(views: TrackObservations, row: int) -> tuple[Floats, Floats] | None:
    pycolmap, chosen = load_pycolmap(), views.rows == row
    camera = in_pycolmap(views.cameras[views.images[row].camera_id])
    if chosen.sum() < limits.LEAST_OBSERVATIONS or camera is None:
        return None
    options: Any = pycolmap.AbsolutePoseEstimationOptions()
    options.ransac.max_error = 4 * float(views.trusted[row])
    options.ransac.max_num_trials = 300
    found = pycolmap.estimate_and_refine_absolute_pose(views.xy[chosen], views.xyz[chosen], camera, options)
    if found is None:
        return None
    matrix = np.array(found["cam_from_world"].matrix())
    return matrix[:, :3], matrix[:, 3]


def other_cameras(views: TrackObservations, camera_id: int, others: Collection[int]) -> Iterator[CauseCandidate]:
    """Yield, for each other camera in order of ids, the hypothesis that it was exchanged with camera `camera_id`.

    Args:
        views: observations of the camera's images.
        camera_id: id of the camera whose keypoints do not fit.
        others: ids of the cameras to try; those with the same model and parameters are left out.
    """
    own = views.cameras[camera_id]
    for number, camera in sorted(views.cameras.items()):
        if number not in others or (camera.model, camera.params) == (own.model, own.params):
            continue
        what = f"the keypoints fit camera {number} and not camera {camera_id}: cameras are exchanged"
        remedy = f"Exchange cameras {camera_id} and {number} in cameras.bin, or the camera ids of the images."
        yield CauseCandidate("cameras_exchanged", what, remedy, views.with_camera(replace(camera, id=camera_id)).errors)


def other_poses(views: TrackObservations) -> Iterator[CauseCandidate]:
    """Yield the hypothesis that poses were exchanged among images: each image gets the pose that fits best.

    The first 24 images are searched, and the others taken to be like them. One candidate is yielded; none if every
    searched image fits its own pose best.
    """
    rows = np.unique(views.rows)[:_SEARCHED_IMAGES].tolist()
    partners = {row: partner for row in rows if (partner := _fitting_pose(views, row)) != row}
    if partners:
        poses = {row: (views.rotations[partner], views.translations[partner]) for row, partner in partners.items()}
        errors = views.with_poses(poses).errors
        missing = np.isin(views.rows, rows)
        errors[~missing] = np.median(errors[missing])  # images that were not searched are taken to be like the others
        yield CauseCandidate(
            "poses_exchanged",
            _spell_exchange(views, partners),
            "Give every image its own pose again, by name and never by order, in the program that makes the model.",
            errors,
        )


def _fitting_pose(views: TrackObservations, row: int) -> int:
    """Return the row of the image whose pose fits the keypoints of `row` best, by the median error of a sample."""
    own = np.flatnonzero(views.rows == row)
    own = own[:: max(1, len(own) // limits.LEAST_OBSERVATIONS)]
    local = np.einsum("iab,ob->ioa", views.rotations, views.xyz[own]) + views.translations[:, None]  # [I, n, 3]
    pixels = project(views.cameras[views.images[row].camera_id], local.reshape(-1, 3)).reshape(len(local), -1, 2)
    errors = np.linalg.norm(pixels - views.xy[own], axis=2)
    return int(np.argmin(np.median(np.where(np.isfinite(errors), errors, 1e9), axis=1)))


def shifted_points(views: TrackObservations) -> Iterator[CauseCandidate]:
    """Yield the two hypotheses that keypoints name the neighbour of their point: the next or the previous by id."""
    for shift in (1, -1):
        places = np.clip(views.places + shift, 0, len(views.points) - 1)
        what = f"the keypoints fit the points whose numbers are {'one higher' if shift > 0 else 'one lower'}"
        remedy = "Let keypoints name points by id, not by position, in the program that makes the model."
        yield CauseCandidate("points_mismatch", what, remedy, replace(views, xyz=views.points[places]).errors)


def _spell_exchange(views: TrackObservations, partners: dict[int, int]) -> str:
    shift, count = Counter(partner - row for row, partner in partners.items()).most_common(1)[0]
    if count >= limits.MOST * len(partners) and len(partners) > 2:
        return f"the keypoints fit the poses of images {shift:+} in order of names: poses are shifted among the images"
    row, partner = next(iter(partners.items()))
    first, second = (shown(views.images[index].name) for index in (row, partner))
    return f"the keypoints of {first} fit the pose of {second}: poses are exchanged among the images"
