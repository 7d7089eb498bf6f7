"""Whether the splat is one solid thing: pictures of it from far apart are matched and registered like photographs."""

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
"""Among which pairs are looked for."""
MOST_PAIRS = 3
MOST_TRIED = 8
FAR_DEG = (8.0, 30.0)
"""Between the directions from which two views see their common points: far, and near enough for SIFT."""
LEAST_SHARED = 15
"""Points that two views must share."""
UNREGISTERED_DEG = 15.0
"""What counts as the error of pictures that cannot be registered although the photographs can."""


@dataclass(frozen=True, eq=False)
class ViewPair:
    """Two views far apart, and what their renderings say of how they stand."""

    one: SmallPhotograph
    other: SmallPhotograph
    error_deg: float
    """Between the rotation that the renderings say and the cameras' own, beyond what the photographs are off.

    Of 80 x 60 pixels they are off by 3 degrees.
    """
    found: RelativePose | None


@dataclass(frozen=True, eq=False)
class Consistency:
    """Pairs that could be judged; or why none could."""

    pairs: tuple[ViewPair, ...] = ()
    why: str = ""

    @property
    def error_deg(self) -> float | None:
        """Return the error of the usual pair."""
        return float(np.median([pair.error_deg for pair in self.pairs])) if self.pairs else None


@torch.inference_mode()
def consistency(subject: InspectedSplat) -> Consistency:
    """Return how well renderings of far views fit together; only pairs count whose photographs do."""
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
    """Return pairs that see the same from far apart, those with most points in common first."""
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
    """Return a picture [H, W, 3] of 0 to 1 in grey, [H, W]."""
    grey: NDArray[np.uint8] = (255 * colors.clamp(0, 1).mean(dim=-1)).round().to(torch.uint8).cpu().numpy()
    return grey


def _intrinsics(view: RenderCamera) -> Floats:
    K: Floats = view.K.double().cpu().numpy()
    return K


def _angle(rotation: Floats, one: RenderCamera, other: RenderCamera) -> float:
    """Return by how many degrees a rotation differs from that between two cameras."""
    known = [view.viewmat[:3, :3].double().cpu().numpy() for view in (one, other)]
    difference = rotation @ known[0] @ known[1].T
    return float(np.degrees(np.arccos(np.clip((np.trace(difference) - 1) / 2, -1, 1))))
