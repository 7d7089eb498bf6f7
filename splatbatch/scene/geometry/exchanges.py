"""Cameras, poses or points that stand where others belong: exchanged, shifted by one, or numbered otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from splatbatch.scene.colmap.files import shown
from splatbatch.scene.geometry import limits
from splatbatch.scene.geometry.candidates import Candidate
from splatbatch.scene.geometry.views import Views
from splatbatch.scene.reprojection import project

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
