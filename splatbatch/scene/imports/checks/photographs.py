"""Poses held against the photographs, and points triangulated from them: both match features, in bounded time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splatbatch.plain_text import counted
from splatbatch.scene.imports.capture import Capture, Notes, Shot, Wish
from splatbatch.scene.imports.checks import agreement, matching
from splatbatch.scene.imports.checks.matching import OutOfTime
from splatbatch.scene.imports.mistakes import Mistakes, some

_CHECKED, _NEIGHBOURS, _EACH = 6, 3, 12
"""Photographs whose pairs are matched as a check, pairs of each; and pairs of each where points are wanted."""
_CHECK_S = 300.0


def see_poses(model: Any, capture: Capture, folder: Path, told: tuple[Notes, Mistakes]) -> None:
    """Match a few pairs of photographs and see that they fit poses and points."""
    notes, mistakes = told
    shots = capture.shots
    anchors = set(range(0, len(shots), len(shots) // _CHECKED or 1))
    pairs = [pair for pair in matching.near_pairs(shots, _NEIGHBOURS) if pair[0] in anchors]
    with _workplace(folder, _CHECK_S) as place:
        try:
            matched = matching.match(shots, model, pairs[: _CHECKED * _NEIGHBOURS], place)
        except OutOfTime:
            notes.leave_out(f"a look at the poses: matching photographs took more than {_CHECK_S:.0f} s")
            return
    _judge(shots, matched, notes, mistakes)
    if capture.cloud is None or len(mistakes):
        return
    ratio = agreement.depth_ratio(shots, capture.cloud, matched)
    if ratio is not None and not agreement.is_same_depth(ratio):
        what = f"its points lie {ratio:.3g} times as far from the cameras as the photographs show"
        mistakes.add(capture.cloud.origin, what, "Points and poses are in different units: export both in the same.")


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


def triangulated(model: Any, capture: Capture, folder: Path, told: tuple[Wish, Notes, Mistakes]) -> Any:
    """Return the model with points that the photographs show; without, where that is not done in time."""
    wish, notes, mistakes = told
    shots = capture.shots
    with _workplace(folder, wish.within_s) as place:
        try:
            matched = matching.match(shots, model, matching.near_pairs(shots, _EACH), place)
            _judge(shots, matched, notes, mistakes)
            if len(mistakes):
                return model
            found = matching.triangulate(model, place)
        except OutOfTime:
            what = f"points: the source has none, and triangulating them took more than {wish.within_s:.0f} s"
            notes.leave_out(f"{what} (--within-s): nothing can be trained without")
            return model
    if not found.num_points3D():
        notes.leave_out("points: the source has none, and the photographs show none that match")
        return model
    kept = f"{counted(found.num_points3D(), 'point')} triangulated from the photographs (SIFT), poses and lenses kept"
    unseen = [image.name for image in found.images.values() if not image.num_points3D]
    notes.convert(kept + (f"; none in {some(unseen)}" if unseen else ""))
    return found


class _workplace:
    """A folder for features and matches that is gone afterwards."""

    def __init__(self, folder: Path, within_s: float) -> None:
        self._work, self._images, self._within_s = folder / ".matching", folder / "images", within_s

    def __enter__(self) -> matching.Place:
        self._work.mkdir()
        return matching.Place(self._images, self._work, time.monotonic() + self._within_s)

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._work, ignore_errors=True)
