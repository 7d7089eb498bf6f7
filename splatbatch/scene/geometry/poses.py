"""Poses under other conventions: inverted, with the axes of OpenGL, with quaternions in another order; or an image's
own pose found anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from splatbatch.scene.colmap.library import load_pycolmap
from splatbatch.scene.colmap.types import Floats
from splatbatch.scene.geometry import limits
from splatbatch.scene.geometry.candidates import Candidate
from splatbatch.scene.geometry.views import Views, from_quats
from splatbatch.scene.reprojection import in_pycolmap

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
    product_: Floats = np.einsum("iab,ib->ia", turn, move)
    return product_


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
