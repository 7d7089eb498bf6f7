"""Poses under other conventions: inverted, with the axes of OpenGL, with quaternions in another order; or an image's
own pose found anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from splatbatch.scene.colmap.files import load_pycolmap, shown
from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.geometry import limits
from splatbatch.scene.geometry.views import Candidate, Views, from_quats
from splatbatch.scene.reprojection import in_pycolmap, project

_ORDERS = {"": (0, 1, 2, 3), "quaternions are x, y, z, w": (3, 0, 1, 2), "quaternions are z, w, x, y": (1, 2, 3, 0)}
_AXES = {
    "": (1.0, 1.0, 1.0),
    "the camera's y and z axes are OpenGL's (up, backward) and not COLMAP's (down, forward)": (1.0, -1.0, -1.0),
    "the camera's x and y axes are turned by 180 degrees": (-1.0, -1.0, 1.0),
    "the camera looks backward (x and z axes flipped)": (-1.0, 1.0, -1.0),
}
_TO_WORLD = "poses are camera-to-world and not world-to-camera"
_INVERSIONS: dict[str, Callable[[Floats, Floats], tuple[Floats, Floats]]] = {
    "": lambda turn, move: (turn, move),
    _TO_WORLD: lambda turn, move: (_transposed(turn), -_times(_transposed(turn), move)),
    "translations are camera centres": lambda turn, move: (turn, -_times(turn, move)),
    "translations have the opposite sign": lambda turn, move: (turn, -move),
    "rotations are camera-to-world": lambda turn, move: (_transposed(turn), move),
}
_REMEDY = {
    "inverted_poses": "Invert every pose where the model is made (R' = R^T, t' = -R^T t).",
    "flipped_axes": "Turn the axes where the model is made: COLMAP's cameras look along +z with y down.",
    "quaternion_order": "Write quaternions as w, x, y, z (scipy and pycolmap's .quat have w last).",
}


def conventions(views: Views) -> Iterator[Candidate]:
    """Yield poses as other programs would have written them, the plainest first."""
    quats = np.array([image.quat for image in views.images])
    choices = list(product(_INVERSIONS, _ORDERS, _AXES))
    for inversion, order, axes in sorted(choices, key=lambda names: sum(map(bool, names))):
        names = [name for name in (inversion, order, axes) if name]
        if not names:
            continue
        turn = from_quats(quats[:, _ORDERS[order]])
        rotations, translations = _INVERSIONS[inversion](turn, views.translations)
        signs = np.array(_AXES[axes])
        flipped = replace(views, rotations=signs[:, None] * rotations, translations=signs * translations)
        kind = "inverted_poses" if inversion else "quaternion_order" if order else "flipped_axes"
        yield Candidate(kind, "; ".join(names), " ".join(_remedies(inversion, order, axes)), flipped.errors)


def _remedies(inversion: str, order: str, axes: str) -> Iterator[str]:
    named = {"inverted_poses": inversion, "quaternion_order": order, "flipped_axes": axes}
    yield from (_REMEDY[kind] for kind, is_so in named.items() if is_so)


def _transposed(turn: Floats) -> Floats:
    return turn.transpose(0, 2, 1)


def _times(turn: Floats, move: Floats) -> Floats:
    return np.einsum("iab,ib->ia", turn, move)


def resected(views: Views) -> Iterator[Candidate]:
    """Yield poses that pycolmap finds for each image from its keypoints and points."""
    rotations, translations = views.rotations.copy(), views.translations.copy()
    turned, moved = [], []
    for row in np.unique(views.rows):
        pose = _resect(views, int(row))
        if pose is None:
            continue
        angle, distance = _difference((rotations[row], translations[row]), pose)
        turned.append(angle)
        moved.append(distance)
        rotations[row], translations[row] = pose
    if turned:
        what = (
            f"poses are off by {np.median(turned):.3g} degrees and {np.median(moved):.3g} units (medians);"
            " points and K fit the keypoints"
        )
        remedy = "Register these images again (colmap image_registrator), or remove them from the model."
        yield Candidate(
            "wrong_pose", what, remedy, replace(views, rotations=rotations, translations=translations).errors
        )


def _resect(views: Views, row: int) -> tuple[Floats, Floats] | None:
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


def _difference(old: tuple[Floats, Floats], new: tuple[Floats, Floats]) -> tuple[float, float]:
    """Return by how many degrees two poses are turned, and how far apart their cameras stand."""
    cosine = (np.trace(old[0] @ new[0].T) - 1) / 2
    centers = [-turn.T @ move for turn, move in (old, new)]
    return float(np.degrees(np.arccos(np.clip(cosine, -1, 1)))), float(np.linalg.norm(centers[0] - centers[1]))


_SEARCHED_IMAGES = 24
_REORDER = "Give every image its own pose again, by name and never by position, where the model is made."


def other_cameras(views: Views, camera_id: int, others: Collection[int]) -> Iterator[Candidate]:
    """Yield other cameras of the model in place of this one."""
    own = views.cameras[camera_id]
    for number, camera in sorted(views.cameras.items()):
        if number not in others or (camera.model, camera.params) == (own.model, own.params):
            continue
        what = f"the keypoints fit camera {number} and not camera {camera_id}: cameras are exchanged"
        remedy = f"Exchange cameras {camera_id} and {number} in cameras.bin, or the camera ids of the images."
        yield Candidate("cameras_exchanged", what, remedy, views.errors_with({**views.cameras, camera_id: camera}))


def other_poses(views: Views) -> Iterator[Candidate]:
    """Yield for some images the pose of whichever other image fits their keypoints best."""
    rows = np.unique(views.rows)[:_SEARCHED_IMAGES]
    rotations, translations, partners = views.rotations.copy(), views.translations.copy(), {}
    for row in rows:
        partner = _fitting_pose(views, int(row))
        if partner != row:
            partners[int(row)] = partner
            rotations[row], translations[row] = views.rotations[partner], views.translations[partner]
    if partners:
        errors = replace(views, rotations=rotations, translations=translations).errors
        missing = np.isin(views.rows, rows)
        errors[~missing] = np.median(errors[missing])  # images that were not searched are taken to be like the others
        yield Candidate("poses_exchanged", _spell(views, partners), _REORDER, errors)


def _fitting_pose(views: Views, row: int) -> int:
    """Return the image whose pose fits the keypoints of an image best, by the median over some of them."""
    own = np.flatnonzero(views.rows == row)
    own = own[:: max(1, len(own) // limits.LEAST_OBSERVATIONS)]
    local = np.einsum("iab,ob->ioa", views.rotations, views.xyz[own]) + views.translations[:, None]  # [I, n, 3]
    pixels = project(views.cameras[views.images[row].camera_id], local.reshape(-1, 3)).reshape(len(local), -1, 2)
    errors = np.linalg.norm(pixels - views.xy[own], axis=2)
    return int(np.argmin(np.median(np.where(np.isfinite(errors), errors, 1e9), axis=1)))


def shifted_points(views: Views) -> Iterator[Candidate]:
    """Yield points whose numbers are off by one."""
    for shift in (1, -1):
        places = np.clip(views.places + shift, 0, len(views.points) - 1)
        what = f"the keypoints fit the points whose numbers are {'one higher' if shift > 0 else 'one lower'}"
        remedy = "Number points as the keypoints do (point ids are no positions), where the model is made."
        yield Candidate("points_mismatch", what, remedy, replace(views, xyz=views.points[places]).errors)


def _spell(views: Views, partners: dict[int, int]) -> str:
    shifts = Counter(partner - row for row, partner in partners.items())
    shift, count = shifts.most_common(1)[0]
    if count >= limits.MOST * len(partners) and len(partners) > 2:
        where = "next" if shift > 0 else "previous"
        steps = (
            f"the {where} image"
            if abs(shift) == 1
            else f"the image {abs(shift)} places {'on' if shift > 0 else 'back'}"
        )
        return f"the keypoints fit the pose of {steps} in order of names: poses are shifted among the images"
    row, partner = next(iter(partners.items()))
    first, second = (shown(views.images[index].name) for index in (row, partner))
    return f"the keypoints of {first} fit the pose of {second}: poses are exchanged among the images"
