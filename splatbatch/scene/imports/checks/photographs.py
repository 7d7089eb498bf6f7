"""Poses held against the photographs, and points triangulated from them: both match features, in bounded time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from splatbatch.plain_text import counted
from splatbatch.scene.imports.capture import Capture, Notes, Shot, Wish
from splatbatch.scene.imports.checks import agreement, matching
from splatbatch.scene.imports.checks.matching import GLANCE, Unmatched
from splatbatch.scene.imports.mistakes import Mistakes, some
from splatbatch.scene.imports.writing import posed_model

_CHECKED, _NEIGHBOURS, _EACH = 6, 3, 12
"""Photographs whose pairs are matched as a check, pairs of each; and pairs of each where points are wanted."""
_CHECK_S = 300.0


def see_poses(capture: Capture, folder: Path, told: tuple[Notes, Mistakes]) -> None:
    """Match a few pairs of photographs and see that they fit poses and points."""
    notes, mistakes = told
    try:
        with _workplace(folder, _CHECK_S, capture.shots) as place:
            matched = matching.match(posed_model(place.shots), _few_pairs(capture.shots), replace(place, effort=GLANCE))
    except Unmatched as error:
        notes.leave_out(f"a look at the poses by matching photographs: {error}")
        return
    _judge(capture.shots, matched, notes, mistakes)
    if capture.cloud is None or len(mistakes):
        return
    ratio = agreement.depth_ratio(capture.shots, capture.cloud, matched)
    if ratio is not None and not agreement.is_same_depth(ratio):
        what = f"its points lie {ratio:.3g} times as far from the cameras as the photographs show"
        mistakes.add(capture.cloud.origin, what, "Points and poses are in different units: export both in the same.")


def _few_pairs(shots: Sequence[Shot]) -> list[tuple[int, int]]:
    """Return some pairs of neighbours, evenly over the photographs."""
    anchors = set(range(0, len(shots), len(shots) // _CHECKED or 1))
    pairs = [pair for pair in matching.near_pairs(shots, _NEIGHBOURS) if pair[0] in anchors]
    return pairs[: _CHECKED * _NEIGHBOURS]


def _judge(shots: Sequence[Shot], matched: Sequence[matching.Matched], notes: Notes, mistakes: Mistakes) -> None:
    verdict = agreement.judge(shots, matched)
    if verdict is None:
        notes.leave_out("a look at the poses: too few of the photographs' features match to say anything of them")
        return
    told = (
        f"{100 * verdict.agreement:.0f} % of what pairs of photographs both show (median of {verdict.num_pairs} pairs)"
    )
    if verdict.agreement < agreement.CONTRADICTS or verdict.cause:
        cause = f"; it would if {verdict.cause}" if verdict.cause else ""
        remedy = "Export poses and photographs anew, in the axes that the format is written in."
        mistakes.add("poses", f"the photographs contradict them: {told} fits{cause}", remedy)
    else:
        notes.convert(f"poses were held against the photographs: {told} fits")


def triangulated(capture: Capture, folder: Path, told: tuple[Wish, Notes, Mistakes]) -> Any:
    """Return pycolmap's model with points that the photographs show; without, where that is not done in time."""
    wish, notes, mistakes = told
    shots = capture.shots
    with _workplace(folder, wish.within_s, shots) as place:
        model = posed_model(place.shots)
        try:
            _judge(shots, matching.match(model, _few_pairs(shots), replace(place, effort=GLANCE)), notes, mistakes)
            # poses that are wrong are known before all photographs are matched
            if not len(mistakes) and matching.match(model, matching.near_pairs(shots, _EACH), place):
                model = matching.triangulate(model, place)
        except Unmatched as error:
            notes.leave_out(
                f"points: the source has none; triangulating in {wish.within_s:.0f} s (--within-s): {error}"
            )
    for number, shot in enumerate(shots, start=1):
        model.images[number].name = shot.name
    if model.num_points3D():
        kept = f"{counted(model.num_points3D(), 'point')} triangulated from the photographs (SIFT)"
        unseen = sorted(image.name for image in model.images.values() if not image.num_points3D)
        notes.convert(f"{kept}, poses and lenses kept{f'; none in {some(unseen)}' if unseen else ''}")
    elif not notes.left_out or "points:" not in notes.left_out[-1]:
        notes.leave_out("points: the source has none, and the photographs show none that match")
    return model


@contextmanager
def _workplace(folder: Path, within_s: float, shots: Sequence[Shot]) -> Iterator[matching.Place]:
    """Give a folder for features and matches that is gone afterwards; photographs have plain names there.

    Names may hold spaces, which the lists of pairs do not know.
    """
    work = folder / ".matching"
    plain = [replace(shot, name=f"{index:07d}{shot.photo.suffix}", keypoints=None) for index, shot in enumerate(shots)]
    try:
        (work / "images").mkdir(parents=True)
        for shot in plain:
            (work / "images" / shot.name).symlink_to(shot.photo.absolute())
        yield matching.Place(work, plain, time.monotonic() + within_s)
    finally:
        shutil.rmtree(work, ignore_errors=True)
