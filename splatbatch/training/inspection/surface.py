"""The surface as it is drawn, against the points of the model: its depth there, and what stands in front of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from splatbatch.training.gaussians import chosen
from splatbatch.training.inspection.subject import Floats, Look, Subject
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.spread import spread

MOST_VIEWS = 16
OPAQUE = 0.5
"""Opacity from which on a pixel shows something that has a depth."""
OFF = 0.05
"""Of the depth: a point whose surface is drawn further away from it, in the median over its pictures, is off."""
FINEST = 1e-4
"""Relative error of a depth, below which a smaller one counts for no more."""
LEAST_VIEWS = 2
"""That a point must be seen in, to count."""
IN_FRONT = 0.85
"""Of the smallest depth of the points around it: a Gaussian that is nearer stands in front of them all."""
NEIGHBOURS = 8
CELL_PX = 4.0
"""Side of the squares of a picture in which points have the same neighbours."""
BESIDE = 0.5
"""Of the picture, that a Gaussian's centre may lie beside it: it may be large."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Fronts:
    """How much stands in front of the points, picture by picture, and which Gaussians these are."""

    covers: dict[str, float]
    """By photograph: mean opacity of what stands in front of its points."""
    num_front: NDArray[np.int64]  # [N], pictures in which a Gaussian stands in front
    num_seen: NDArray[np.int64]  # [N], pictures in or beside which its centre lies


@dataclass(frozen=True)
class Depths:
    """How far from the model's points the surface is drawn, sighting by sighting, relative to the depth."""

    points: NDArray[np.int64]  # [n], rows of the subject's points
    errors: Floats  # [n]; 1 where nothing is drawn

    @property
    def off(self) -> float | None:
        """Return the share of points where the surface is drawn elsewhere, or not at all; None without points."""
        medians = list(_medians(self.points, self.errors))
        return float(np.mean(np.array(medians) > OFF)) if medians else None

    @property
    def digits(self) -> float | None:
        """Return to how many decimal digits depths are right, in the mean over sightings; None without points.

        Splats of the same scene may be ranked by it: see docs/quality.md for where that holds.
        """
        return float(-np.log10(np.maximum(self.errors, FINEST)).mean()) if len(self.errors) else None


def depths_at_points(subject: Subject) -> Depths:
    """Return how far from the points the surface is drawn in some of the pictures."""
    points, errors = [np.zeros(0, np.int64)], [np.zeros(0)]
    for look in spread(subject.looks, MOST_VIEWS):
        y, x = look.cells()
        shown = subject.shown(look)
        drawn, alpha = (values.cpu().numpy()[y, x] for values in (shown.depths, shown.alphas))
        points.append(look.points[look.is_inside])
        error = np.abs(drawn / look.depths[look.is_inside] - 1)
        errors.append(np.where(alpha > OPAQUE, error, 1.0))
    return Depths(np.concatenate(points), np.concatenate(errors))


def _medians(points: NDArray[np.int64], errors: Floats) -> Iterator[float]:
    """Yield the median error of each point that several pictures show."""
    order = np.argsort(points, kind="stable")
    _, starts = np.unique(points[order], return_index=True)
    for group in np.split(errors[order], starts[1:]):
        if len(group) >= LEAST_VIEWS:
            yield float(np.median(group))


@torch.inference_mode()
def fronts(subject: Subject) -> Fronts:
    """Return what stands in front of the points that photographs see."""
    num = len(subject.own["means"])
    covers, num_front, num_seen = {}, np.zeros(num, np.int64), np.zeros(num, np.int64)
    means = subject.own["means"].double().cpu().numpy()
    for look in subject.looks:
        seen, front = standing_in_front(means, look)
        num_seen[seen] += 1
        num_front[front] += 1
        covers[look.photo.name] = _cover(subject, look, front)
    return Fronts(covers, num_front, num_seen)


def standing_in_front(means: Floats, look: Look) -> tuple[Mask, Mask]:
    """Return which Gaussians have their centre in a picture, and which of them are nearer than all points around."""
    view = look.small.view
    matrix, K = view.viewmat.double().cpu().numpy(), view.K.double().cpu().numpy()
    local = means @ matrix[:3, :3].T + matrix[:3, 3]
    with np.errstate(all="ignore"):
        pixels = local[:, :2] / local[:, 2:] * K[[0, 1], [0, 1]] + K[:2, 2]
    size = np.array([view.width, view.height])
    seen = (local[:, 2] > 0) & (pixels >= -BESIDE * size).all(axis=1) & (pixels < (1 + BESIDE) * size).all(axis=1)
    front = np.zeros(len(means), dtype=bool)
    known = look.depths[look.is_inside]
    if seen.any() and len(known):
        cells, of_cell = np.unique(np.floor(pixels[seen] / CELL_PX), axis=0, return_inverse=True)
        places = (cells + 0.5) * CELL_PX
        _, near = cKDTree(look.pixels[look.is_inside]).query(places, k=min(NEIGHBOURS, len(known)))
        nearest = known[near.reshape(len(cells), -1)].min(axis=1)
        front[seen] = local[seen, 2] < IN_FRONT * nearest[of_cell.reshape(-1)]
    return seen, front


def _cover(subject: Subject, look: Look, front: Mask) -> float:
    if not front.any():
        return 0.0
    which = torch.from_numpy(front).to(subject.own["means"].device)
    rendering = rasterize(chosen(subject.own, which), look.small.view, replace(subject.options, sh_degree=0))
    y, x = look.cells()
    return float(rendering.alphas[..., 0].cpu().numpy()[y, x].mean()) if len(y) else 0.0
