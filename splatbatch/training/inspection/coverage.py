"""Coverage: how many photographs see each cell of the scene, and how far held-out views are from training views."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from splatbatch.training.inspection.novel_views import center_of
from splatbatch.training.inspection.subject import AT_ONCE, Floats, InspectedSplat

Mask = NDArray[np.bool_]
SEEN = "seen"
CELLS = 12
"""Number of cells along the longer side of the scene."""
FEW = 3
"""Number of photographs below which a cell is weakly covered."""
OPAQUE = 0.3
"""Opacity above which a Gaussian counts as surface."""
LEAST_GAUSSIANS = 5
"""Least number of opaque Gaussians in a cell that is reported."""
TAILS = (5.0, 95.0)
"""Percentiles of the opaque Gaussians' positions that bound the scene."""


@dataclass(frozen=True)
class CoverageColumn:
    """A cell of the coverage map: a column with a square base, as tall as the scene, and how photographs see it."""

    place: tuple[float, float, float]
    """Mean position of its opaque Gaussians, in the frame of the training."""
    size: float
    """Side of its base, in units of the frame."""
    num_photos: float
    """Number of training photographs that see its surface, in the median over the surface."""
    angle_deg: float
    """Largest angle between the viewing directions of the photographs that see at least half of it."""
    px_per_unit: float
    """Resolution of the closest such photograph, in pixels per unit of the frame."""

    @property
    def is_weak(self) -> bool:
        """Return whether fewer than `FEW` photographs see it."""
        return self.num_photos < FEW


def cells(subject: InspectedSplat) -> list[CoverageColumn]:
    """Return the cells of the scene with enough opaque Gaussians, and their coverage by the training photographs."""
    surface = _surface(subject)
    if len(surface) < LEAST_GAUSSIANS:
        return []
    axes, low, side = _grid(surface)
    flat = np.floor((surface @ axes.T - low) / side).astype(np.int64)  # [n, 2]
    seen = _seen(subject, surface)
    centers = np.array([center_of(look.photo.view) for look in subject.training])
    _, of_cell, counts = np.unique(flat, axis=0, return_inverse=True, return_counts=True)
    groups = np.split(np.argsort(of_cell.reshape(-1), kind="stable"), np.cumsum(counts)[:-1])
    chosen = [group for group in groups if len(group) >= LEAST_GAUSSIANS]
    return [_cell(subject, side, (surface[group], seen[group]), centers) for group in chosen]


def _surface(subject: InspectedSplat) -> Floats:
    """Return the means of the opaque Gaussians within `TAILS`, [n, 3]; the outermost are seen by few in every scene."""
    means = subject.own["means"].double().cpu().numpy()
    opaque = subject.own["opacities"].sigmoid().cpu().numpy() > OPAQUE
    if not opaque.any():
        return means[opaque]
    low, high = np.percentile(means[opaque], TAILS, axis=0)
    within: Floats = means[opaque & (means >= low).all(axis=1) & (means <= high).all(axis=1)]
    return within


def _grid(points: Floats) -> tuple[Floats, Floats, float]:
    """Return the two principal axes of points, [2, 3], the lower corner of the grid along them, and a cell's side."""
    axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[2][:2]
    low, high = np.percentile(points @ axes.T, TAILS, axis=0)
    return axes, low, max(float((high - low).max()) / CELLS, 1e-9)


def _seen(subject: InspectedSplat, surface: Floats) -> Mask:
    """Return which training photographs have each point of the surface in their picture, [n, I]; not by occlusion."""
    if SEEN not in subject.found:
        found = []
        for part in torch.split(torch.from_numpy(surface), AT_ONCE):
            there = part.to(subject.device)
            falls = [(look.photo.view, *look.photo.view.project(there)) for look in subject.training]
            found.append(torch.stack([(depths > 0) & view.shows(at) for view, at, depths in falls], dim=1).cpu())
        subject.found[SEEN] = torch.cat(found).numpy()
    seen: Mask = subject.found[SEEN]
    return seen


def _cell(subject: InspectedSplat, side: float, surface: tuple[Floats, Mask], centers: Floats) -> CoverageColumn:
    places, seen = surface
    middle = places.mean(axis=0)
    by = np.flatnonzero(seen.mean(axis=0) >= 0.5)
    rays = centers[by] - middle
    distances = np.maximum(np.linalg.norm(rays, axis=1), 1e-9)
    cosines = (rays / distances[:, None]) @ (rays / distances[:, None]).T
    fine = [float(subject.training[at].photo.view.K[0, 0]) / far for at, far in zip(by, distances, strict=True)]
    angle = float(np.degrees(np.arccos(np.clip(cosines.min(), -1, 1)))) if len(by) else 0.0
    place = (float(middle[0]), float(middle[1]), float(middle[2]))
    return CoverageColumn(place, side, float(np.median(seen.sum(axis=1))), angle, max(fine, default=0.0))


def weakly_covered(subject: InspectedSplat) -> float | None:
    """Return the share of the opaque Gaussians that fewer than `FEW` photographs see; None without any."""
    surface = _surface(subject)
    if not len(surface):
        return None
    return float((_seen(subject, surface).sum(axis=1) < FEW).mean())


def distances(subject: InspectedSplat) -> dict[str, float]:
    """Return the distance of each held-out view to the nearest training view, by name, in baselines.

    The baseline is the median distance between nearest training views. Empty with fewer than two of these.
    """
    if len(subject.training) < 2:
        return {}
    centers = np.array([center_of(look.photo.view) for look in subject.training])
    tree = cKDTree(centers)
    baseline = max(float(np.median(tree.query(centers, k=2)[0][:, 1])), 1e-9)
    held_out = {look.photo.name: center_of(look.photo.view) for look in subject.holdout}
    return {name: float(tree.query(center)[0]) / baseline for name, center in held_out.items()}
