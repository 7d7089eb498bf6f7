"""The world of a capture by itself: names that occur twice, places in another unit, points that nobody sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from splatbatch.plain_text import spell_place
from splatbatch.scene.imports.capture import Cloud, Shot
from splatbatch.scene.imports.checks.views import share_that_see
from splatbatch.scene.imports.mistakes import Mistakes

_FAR = 200
"""Times the median distance from the middle beyond which a camera's place is in another unit."""
_NOWHERE = 1e15
"""Beyond it float64 has no fractions left: no unit makes that a place."""
_LEAST_SEEING = 0.25
"""Share of the photographs that have points in view, below which points and poses are of two worlds."""


def check_world(shots: Sequence[Shot], cloud: Cloud | None, mistakes: Mistakes) -> None:
    """Note what poses and points say against themselves."""
    _check_names(shots, mistakes)
    _check_places(shots, mistakes)
    if len(mistakes) or cloud is None or not shots or not len(cloud.xyz):
        return
    share = share_that_see(shots, cloud.xyz)
    if share < _LEAST_SEEING:
        what = f"{100 * share:.0f} % of the photographs have any of its points in view"
        remedy = (
            "Points and poses are not in one world (units, axes, coordinate system), or the axes of the poses are "
            "turned: export both together, in the same coordinates."
        )
        mistakes.add(cloud.origin, what, remedy)


def _check_names(shots: Sequence[Shot], mistakes: Mistakes) -> None:
    counts = Counter(shot.name for shot in shots)
    for shot in shots:
        if counts[shot.name] > 1:
            what = f"{counts[shot.name]} poses are of the photograph {shot.name}"
            mistakes.add(shot.where, what, "Keep one pose for each photograph.")


@np.errstate(all="ignore")  # what overflows is no place
def _check_places(shots: Sequence[Shot], mistakes: Mistakes) -> None:
    """Note cameras that stand so far from the others that their unit must be another, or nowhere."""
    centers = np.array([shot.center for shot in shots]).reshape(-1, 3)
    sound = (np.abs(centers) < _NOWHERE).all(axis=1)
    for index in map(int, np.flatnonzero(~sound)):
        remedy = "Export it again; numbers of this size come of a broken transform."
        mistakes.add(
            shots[index].where, f"its place is {spell_place(centers[index])}: none that can be computed", remedy
        )
    shots, centers = [shot for shot, is_sound in zip(shots, sound, strict=True) if is_sound], centers[sound]
    if len(centers) < 4:
        return
    apart = np.linalg.norm(centers - np.median(centers, axis=0), axis=1)
    typical = float(np.median(apart))
    if not apart.max() > 0:
        mistakes.add("all poses", "all cameras stand at the same place", "Export poses with their translations.")
        return
    for index in map(int, np.flatnonzero(apart > _FAR * typical)) if typical > 0 else ():
        what = f"stands {apart[index] / typical:,.0f} times as far out as the cameras typically do"
        remedy = "Poses are in mixed units, or these are wrong: bring all into one unit, or remove these."
        mistakes.add(shots[index].where, what, remedy)
