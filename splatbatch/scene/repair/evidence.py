"""Which change is right: that after which unchanged points fall on the keypoints, and keypoints on the photograph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from splatbatch.scene.colmap.types import CAMERA_MODELS, Camera, Floats
from splatbatch.scene.geometry import limits
from splatbatch.scene.geometry.extents import find_misfit
from splatbatch.scene.geometry.survey import Reach, Survey, reach_of
from splatbatch.scene.geometry.views import Views
from splatbatch.scene.photos.sizes import Size, spell
from splatbatch.scene.repair.camera_change import Change, How, Refusal, change_camera


def choose_change(survey: Survey, rows: list[int], photo: Size, how: How) -> Change | Refusal:
    """Return the change that makes a camera fit its photographs, or those images of it that have this size.

    Keypoints that move with K cannot tell whether K is right: they do so only by where they are now. If they agree with
    K, both follow the photographs, unless they fit those already; if not, K alone follows if it then agrees.
    """
    views = survey.views
    camera = views.cameras[views.images[rows[0]].camera_id]
    if camera.model not in CAMERA_MODELS:
        return Refusal(f"camera {camera.id}: unknown camera model {camera.model}", "Undistort the reconstruction.")
    reach = survey.reach_of(camera, [views.images[row].id for row in rows])
    misfit = find_misfit(camera, photo, reach)
    if misfit and misfit.kind == "size_alone":
        return Change(camera, replace(camera, width=photo[0], height=photo[1]), has_keypoints=False)
    if misfit and misfit.meant and photo == (camera.width, camera.height):
        meant = change_camera(replace(camera, width=misfit.meant[0], height=misfit.meant[1]), photo, how)
        return replace(meant, before=camera) if isinstance(meant, Change) else meant
    change = change_camera(camera, photo, how)
    if isinstance(change, Refusal) or not change.moves_pixels:
        return change
    return _followed(views.only(rows), change, survey, rows)


def _followed(views: Views, change: Change, survey: Survey, rows: list[int]) -> Change | Refusal:
    """Return the change with its keypoints, without them, or why it would make the camera worse."""
    before, after, photo = change.before, change.after, (change.after.width, change.after.height)
    if not len(views.seen()):
        return change  # nothing can be verified: no image has enough keypoints with points
    agreed = _median(views, before)
    if agreed <= limits.trusted_px(before):
        return change
    alone = _median(views, after)
    reach = reach_of(np.concatenate([survey.reach[views.images[row].id] for row in rows]), after)
    if alone <= limits.trusted_px(after) and _is_within(reach, photo):
        return replace(change, has_keypoints=False)
    what = (
        f"camera {before.id}: K and keypoints disagree (median reprojection error {agreed:.4g} px), and with K for"
        f" {spell(photo)} the keypoints as they are miss by {alone:.4g} px: this would not mend it"
    )
    return Refusal(what, "Mend what verify-dims says of the geometry first.")


def _median(views: Views, camera: Camera) -> float:
    errors: Floats = views.errors_with({**views.cameras, camera.id: camera})
    return float(np.median(errors))


def _is_within(reach: Reach, size: Size) -> bool:
    return all(reach.high[axis] <= 1.02 * size[axis] for axis in (0, 1))
