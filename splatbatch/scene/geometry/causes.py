"""Finds the most likely cause of reprojection errors: in the scene, then in each camera, then in single images.

Of the hypotheses that bring the error down to that of intact scenes, the simplest is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from splatbatch.scene.colmap.types import Ints
from splatbatch.scene.geometry import hypotheses, limits
from splatbatch.scene.geometry.survey import (
    CauseCandidate,
    TrackObservations,
    best,
    best_of_small,
    typical,
)

_LENSES = frozenset({"wrong_lens", "distortion_dropped", "distortion_kept"})
_POSES = frozenset({"wrong_pose", "poses_exchanged"})
_MOST_CAMERAS = 16  # tried in place of another: there may be one for each image
_RESECTED = 8  # images whose pose is looked for anew: 3 ms each


@dataclass(frozen=True)
class Cause:
    """One fault of a model: its best explanation, the names of the images concerned, and how grave the fault is."""

    best: CauseCandidate
    images: tuple[str, ...]
    camera_id: int | None
    """Id of the camera that all these images have; None where the fault concerns the whole scene."""
    behind: float
    """Share of these images' observations whose point lies behind the camera; 0 without observations."""
    is_grave: bool
    """Whether the median error is above `trusted_px` (limits.py), or more than 5 % of the points lie behind the camera.

    Of several cameras, the smallest `trusted_px` counts. If False, the fault is systematic but small, and the audit
    only warns.
    """


@np.errstate(all="ignore")  # files hold what they like: what overflows is infinite, and no cause explains it
def find_causes(survey: TrackObservations) -> tuple[Cause, ...]:
    """Return the causes of the errors of a model; empty for an intact model, or if no image can be judged.

    An image is judged from 8 observations on. Values that overflow do not raise.

    A single cause is returned if it explains the whole scene, else causes per camera. Images beyond the alarm limit
    (`alarm_px` in limits.py) that nothing explains have a cause, too, of the kind `reprojection` or `points_mismatch`.

    Raises:
        ZeroDivisionError: a focal length, width or height of a camera is 0.
    """
    seen = survey.obs()
    bad = seen[survey.medians[seen] > survey.trusted[seen]]
    if len(bad) >= limits.HALF * len(seen) and len(bad) > 1 and (causes := _of_scene(survey, seen)):
        return causes
    # small but systematic faults of K or of a lens, in cameras most of whose images are trusted
    sound = [(number, rows) for number, rows in _by_camera(survey, seen) if np.isin(rows, bad).mean() < limits.HALF]
    found = [(number, rows, _systematic(survey, number, rows)) for number, rows in sound]
    # in one or two photographs a pose that is a little off looks like that, unless other cameras show it, too
    few = [chosen is not None for _, rows, chosen in found if len(rows) <= limits.FEW]
    least = limits.FEW if sum(few) < limits.HALF * len(few) else 0
    faint = [_cause(survey, rows, number, chosen) for number, rows, chosen in found if chosen and len(rows) > least]
    blamed = [cause.camera_id for cause in faint if cause.camera_id is not None]
    return (*faint, *_of_cameras(survey, seen, bad[~np.isin(survey.camera_ids[bad], blamed)]))


def _of_scene(survey: TrackObservations, seen: Ints) -> tuple[Cause, ...]:
    """Return the one cause that explains all images, or one for each camera, whichever is simpler; empty: neither."""
    views = survey.only(seen)
    if chosen := best(views, hypotheses.conventions(views)):
        return (_cause(survey, seen, None, chosen),)
    groups = [(number, rows) for number, rows in _by_camera(survey, seen) if _is_bad(survey, rows)]
    found = [
        (number, rows, (_of_group if len(rows) <= limits.FEW else _of_camera)(survey, number, rows))
        for number, rows in groups
    ]
    moved = best(views, chain(hypotheses.moved_points(views), hypotheses.shifted_points(views)))
    if moved and _is_simpler(moved, [chosen for _, _, chosen in found]):
        return (_cause(survey, seen, None, moved),)
    if all(chosen for _, _, chosen in found):
        return tuple(_cause(survey, rows, number, chosen) for number, rows, chosen in found if chosen)
    return ()


def _is_simpler(moved: CauseCandidate, cameras: Sequence[CauseCandidate | None]) -> bool:
    """Return whether moved points explain the scene better than its cameras.

    K counts as simpler, fitted lenses and poses do not.
    """
    if not cameras or not all(cameras):
        return True
    is_fitted = any(chosen.kind in _LENSES | _POSES for chosen in cameras if chosen)
    worst = max(chosen.after_px for chosen in cameras if chosen)
    return moved.after_px < (limits.AS_GOOD * worst if is_fitted else worst / limits.AS_GOOD - 0.02)


def _of_camera(survey: TrackObservations, number: int, rows: Ints, share: float = 1.0) -> CauseCandidate | None:
    """Return the best cause in the K, the lens or an exchange of one camera; None if there is none.

    Args:
        survey: the survey of the model.
        number: id of the camera.
        rows: its images to be explained.
        share: share of the camera's images that `rows` are.
    """
    views, camera = survey.only(rows), survey.cameras[number]
    # a whole camera was exchanged only if the other camera is wrong, too; else its K is wrong
    everyone = [(other, its) for other, its in _by_camera(survey, survey.obs()) if other != number]
    others = [other for other, its in everyone if share < 1 or _is_bad(survey, its)][:_MOST_CAMERAS]
    candidates = chain(
        hypotheses.other_cameras(views, number, others),
        hypotheses.of_camera(views, camera, survey.reach_of(camera, rows.tolist()), share),
    )
    return best(views, candidates)


def _of_cameras(survey: TrackObservations, seen: Ints, bad: Ints) -> Iterator[Cause]:
    """Yield causes per camera, for all of its images or its bad ones; then the bad images without any explanation.

    Those are images with an error beyond the alarm limit that no hypothesis explains; one cause if nearly all are.
    """
    everyone, left = dict(_by_camera(survey, seen)), []
    for number, rows in _by_camera(survey, bad):
        every = everyone[number]
        tried = [(every, _of_group)] if len(rows) >= limits.MOST * len(every) else []
        tried += [(rows, _of_group), (every, _systematic)]
        found = ((meant, explain(survey, number, meant)) for meant, explain in tried)
        meant, chosen = next((one for one in found if one[1]), (rows, None))
        is_sure = len(rows) > limits.FEW or len(rows) == len(every)  # no image beside them tells otherwise
        if chosen and (chosen.before_px > _alarm(survey, number) or is_sure):
            yield _cause(survey, meant, number, chosen)
        else:
            left.append(rows[survey.medians[rows] > _alarm(survey, number)])
    rows = np.concatenate([np.zeros(0, np.int64), *left])
    groups: list[tuple[int | None, Ints]] = [*_by_camera(survey, rows)]
    kind, what = "reprojection", "no known mistake explains the error"
    remedy = "Look at these images in COLMAP's viewer; register them again or remove them from the model."
    if len(rows) >= limits.MOST * len(seen) and len(rows):
        groups = [(None, rows)]
        kind, what = "points_mismatch", "points and keypoints do not belong together: no other pose or camera fits"
        remedy = "Use the points3D, images and cameras files of one model; all three are written together."
    for group, some in groups:
        before = typical(survey.only(some))
        yield _cause(survey, some, group, CauseCandidate(kind, what, remedy, np.array([np.nan]), before))


def _of_group(survey: TrackObservations, number: int, rows: Ints) -> CauseCandidate | None:
    """Return the cause for images of a camera: their poses, if the camera fits its other images, else the camera.

    A camera that fits no image but one or two is wrong by its K, or they by their poses; a lens is the least likely.
    """
    own, is_few = survey.own_cameras, len(rows) <= limits.FEW
    share = len(rows) / int(np.isin(own[survey.obs()], own[rows]).sum())
    camera = _of_camera(survey, number, rows, share)
    if camera and share == 1 and not is_few:
        return camera
    pose = _of_poses(survey, rows)
    if not (pose and camera and is_few):
        return camera or pose
    is_alone = len(rows) == len(np.flatnonzero(survey.camera_ids == number))
    likelier, other = (camera, pose) if is_alone and camera.kind not in _LENSES else (pose, camera)
    return likelier if likelier.after_px <= limits.AS_GOOD * other.after_px + 0.02 else other


def _of_poses(survey: TrackObservations, rows: Ints) -> CauseCandidate | None:
    views = survey.only(rows)
    if chosen := best(views, chain(hypotheses.conventions(views), hypotheses.other_poses(views))):
        return chosen
    few = survey.only(rows[np.linspace(0, len(rows) - 1, min(_RESECTED, len(rows))).astype(int)])
    return best(few, hypotheses.resected(few))


def _systematic(survey: TrackObservations, number: int, rows: Ints) -> CauseCandidate | None:
    views, camera = survey.only(rows), survey.cameras[number]
    reach = survey.reach_of(camera, rows.tolist())
    return best_of_small(views, camera, hypotheses.of_camera(views, camera, reach, 1.0))


def _cause(survey: TrackObservations, rows: Ints, number: int | None, chosen: CauseCandidate) -> Cause:
    ids = np.isin(survey.rows, rows)
    behind = float((survey.in_camera[ids, 2] <= 0).mean()) if ids.any() else 0.0
    cameras = survey.cameras.values() if number is None else [survey.cameras[number]]
    is_grave = chosen.before_px > min(map(limits.trusted_px, cameras)) or behind > 0.05
    return Cause(chosen, tuple(survey.images[row].name for row in rows), number, behind, is_grave)


def _by_camera(views: TrackObservations, rows: Ints) -> list[tuple[int, Ints]]:
    ids = views.camera_ids[rows]
    return [(int(number), rows[ids == number]) for number in np.unique(ids)]


def _is_bad(views: TrackObservations, rows: Ints) -> bool:
    return bool((views.medians[rows] > views.trusted[rows]).mean() >= limits.HALF)


def _alarm(survey: TrackObservations, number: int) -> float:
    medians = survey.medians[survey.obs()]
    return limits.alarm_px(survey.cameras[number], float(np.median(medians)) if len(medians) else float("inf"))
