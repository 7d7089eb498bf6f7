"""Consistency of a splat: renderings of views far apart are matched and registered like photographs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splatbatch.scene.two_views import RelativePose, SiftFeatures, features_of, register
from splatbatch.training.inspection.novel_views import center_of
from splatbatch.training.inspection.subject import Floats, InspectedSplat, SmallPhotograph
from splatbatch.training.photos.dataset import evenly_spaced
from splatbatch.training.rendering.view import RenderCamera

NAME = "consistency"
MOST_VIEWS = 24
"""Largest number of training views among which pairs are chosen."""
MOST_PAIRS = 3
MOST_TRIED = 8
FAR_DEG = (8.0, 30.0)
"""Angles between the viewing directions of a pair to its common points: far apart, but near enough for SIFT."""
LEAST_SHARED = 15
"""Least number of points that both views of a pair see."""
UNREGISTERED_DEG = 15.0
"""Error of a pair whose renderings cannot be registered although its photographs can; also the largest error."""


@dataclass(frozen=True, eq=False)
class ViewPair:
    """Two views far apart, and the error of their relative rotation as registered from their renderings."""

    one: SmallPhotograph
    other: SmallPhotograph
    error_deg: float
    """Rotation error in degrees of the renderings against the model's cameras, less the photographs' own; at least 0.

    Photographs of 80 x 60 pixels have an error of 3 degrees.
    """
    found: RelativePose | None
    """Relative pose registered from the renderings; None: they could not be registered."""


@dataclass(frozen=True, eq=False)
class Consistency:
    """Result of `consistency`: the pairs whose photographs could be registered, or why there are none."""

    pairs: tuple[ViewPair, ...] = ()
    why: str = ""

    @property
    def error_deg(self) -> float | None:
        """Return the median error of the pairs; None without pairs."""
        return float(np.median([pair.error_deg for pair in self.pairs])) if self.pairs else None


@torch.inference_mode()
def consistency(subject: InspectedSplat) -> Consistency:
    """Return the consistency of a splat, computed once; only pairs count whose photographs can be registered."""
    if NAME not in subject.found:
        subject.found[NAME] = _registered(subject)
    known: Consistency = subject.found[NAME]
    return known


def _registered(subject: InspectedSplat) -> Consistency:
    photograph, rendering = cache(_photograph), cache(lambda look: _rendering(subject, look))  # many pairs share one
    pairs, why = list[ViewPair](), "no two views see the same from far apart"
    for one, other in _far_pairs(subject)[:MOST_TRIED]:
        photos = register(photograph(one), photograph(other))
        if isinstance(photos, str):
            why = f"the photographs themselves cannot be registered: {photos}"
            continue
        drawn = register(rendering(one), rendering(other))
        if isinstance(drawn, str):
            pairs.append(ViewPair(one, other, UNREGISTERED_DEG, None))
        else:
            views = one.small.view, other.small.view
            error = max(_angle(drawn.rotation, *views) - _angle(photos.rotation, *views), 0.0)
            pairs.append(ViewPair(one, other, min(error, UNREGISTERED_DEG), drawn))
        if len(pairs) == MOST_PAIRS:
            break
    return Consistency(tuple(pairs), "" if pairs else why)


def _far_pairs(subject: InspectedSplat) -> list[tuple[SmallPhotograph, SmallPhotograph]]:
    """Return pairs of views far apart, those with most common points first."""
    found = [(shared, one, other) for one, other, shared in _candidates(subject)]
    return [(one, other) for _, one, other in sorted(found, key=lambda row: -row[0])]


def _candidates(subject: InspectedSplat) -> Iterator[tuple[SmallPhotograph, SmallPhotograph, int]]:
    looks = evenly_spaced(subject.training, MOST_VIEWS)
    for one, other in combinations(looks, 2):
        shared = np.intersect1d(one.points[one.is_inside], other.points[other.is_inside])
        if len(shared) < LEAST_SHARED:
            continue
        middle = np.median(subject.points[shared], axis=0)
        rays = [center_of(look.photo.view) - middle for look in (one, other)]
        cosine = rays[0] @ rays[1] / max(float(np.linalg.norm(rays[0]) * np.linalg.norm(rays[1])), 1e-9)
        if FAR_DEG[0] <= np.degrees(np.arccos(np.clip(cosine, -1, 1))) <= FAR_DEG[1]:
            yield one, other, len(shared)


def _photograph(look: SmallPhotograph) -> SiftFeatures:
    return features_of(grey_of(look.small.pixels.float() / 255), _intrinsics(look.small.view))


def _rendering(subject: InspectedSplat, look: SmallPhotograph) -> SiftFeatures:
    return features_of(grey_of(subject.shown(look).colors), _intrinsics(look.small.view))


def grey_of(colors: Tensor) -> NDArray[np.uint8]:
    """Return a picture [H, W, 3] of 0 to 1 as grey bytes, [H, W]."""
    grey: NDArray[np.uint8] = (255 * colors.clamp(0, 1).mean(dim=-1)).round().to(torch.uint8).cpu().numpy()
    return grey


def _intrinsics(view: RenderCamera) -> Floats:
    K: Floats = view.K.double().cpu().numpy()
    return K


def _angle(rotation: Floats, one: RenderCamera, other: RenderCamera) -> float:
    """Return the angle in degrees between a rotation and the relative rotation of two cameras."""
    known = [view.viewmat[:3, :3].double().cpu().numpy() for view in (one, other)]
    difference = rotation @ known[0] @ known[1].T
    return float(np.degrees(np.arccos(np.clip((np.trace(difference) - 1) / 2, -1, 1))))
