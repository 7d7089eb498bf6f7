"""A candidate: something that may be wrong, with the errors that would remain without it. The best explains a fault."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from splatbatch.scene.colmap.types import Camera, Floats
from splatbatch.scene.geometry import limits
from splatbatch.scene.geometry.views import Views, medians


@dataclass(frozen=True, eq=False)
class Candidate:
    """What would explain the errors of some views."""

    kind: str
    """A key of `KINDS` in audit/findings."""
    what: str
    remedy: str
    errors: Floats
    """[O], of the same observations, were it mended."""


@dataclass(frozen=True)
class Chosen:
    """The best candidate, and the median error before and after in pixels."""

    kind: str
    what: str
    remedy: str
    before_px: float
    after_px: float


def best(views: Views, candidates: Iterable[Candidate]) -> Chosen | None:
    """Return the simplest candidate that explains the views about as well as any; they come in order of simplicity."""
    found = [(each, float(np.median(each.errors))) for each in candidates if explains(views, each)]
    limit = limits.AS_GOOD * min((after for _, after in found), default=0.0) + 0.02
    return next((_chosen(views, each) for each, after in found if after <= limit), None)


def best_of_small(views: Views, camera: Camera, candidates: Iterable[Candidate]) -> Chosen | None:
    """Return the simplest candidate that explains a small but systematic part of the error about as well as any."""
    before, least_gain = square_error(views.errors), limits.systematic_px(camera) ** 2
    if before < least_gain:
        return None
    scored = [(each, square_error(each.errors)) for each in candidates]
    scored = [(each, after) for each, after in scored if after <= limits.trusted_px(camera) ** 2]
    found = [
        (each, after)
        for each, after in scored
        if before >= limits.SYSTEMATIC_GAIN * after and before - after >= least_gain
    ]
    limit = limits.SYSTEMATIC_AS_GOOD * min((after for _, after in found), default=0.0)
    return next((_chosen(views, each) for each, after in found if after <= limit), None)


def _chosen(views: Views, candidate: Candidate) -> Chosen:
    after = float(np.median(candidate.errors))
    return Chosen(candidate.kind, candidate.what, candidate.remedy, typical(views), after)


def explains(views: Views, candidate: Candidate) -> bool:
    """Return whether nearly all images would be as they should be."""
    after = medians(candidate.errors, views.rows, len(views.images))
    judged = np.isfinite(after) | np.isinf(after)
    before, total = views.medians, int(judged.sum())
    with np.errstate(invalid="ignore"):
        mended = judged & (after <= views.trusted) & (after * limits.GAIN <= before)
    return total > 0 and mended.sum() >= limits.MOST * total


def square_error(errors: Floats) -> float:
    """Return the mean square of the errors but for the worst twentieth, which may be wrong matches."""
    kept = np.sort(errors)[: max(1, int(0.95 * len(errors)))]
    return float(np.mean(kept**2))


def typical(views: Views) -> float:
    """Return the median error in pixels of what lies before its camera; infinite if nothing does."""
    errors = views.errors[np.isfinite(views.errors)]
    return float(np.median(errors)) if len(errors) else float("inf")
