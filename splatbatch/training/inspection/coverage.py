"""Coverage: how many photographs see each cell of the scene, and how far held-out views are from training views."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from splatbatch.training.inspection.subject import AT_ONCE, Floats, InspectedSplat

Mask = NDArray[np.bool_]
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


def coverage(subject: InspectedSplat) -> tuple[tuple[dict[str, float], ...], float | None]:
    """Measure how the training photographs cover the opaque Gaussians.

    Returns:
        The cells of the scene with enough opaque Gaussians, as inspection.json has them: columns with a square base, as
        tall as the scene.
        The share of opaque Gaussians that fewer than `FEW` photographs see; None without any.
    """
    surface = _surface(subject)
    if not len(surface):
        return (), None
    seen = _seen(subject, surface)
    weak = float((seen.sum(axis=1) < FEW).mean())
    if len(surface) < LEAST_GAUSSIANS:
        return (), weak
    axes, low, side = _grid(surface)
    flat = np.floor((surface @ axes.T - low) / side).astype(np.int64)  # [n, 2]
    centers = np.array([look.photo.view.center() for look in subject.training])
    _, of_cell, counts = np.unique(flat, axis=0, return_inverse=True, return_counts=True)
    groups = np.split(np.argsort(of_cell.reshape(-1), kind="stable"), np.cumsum(counts)[:-1])
    chosen = [group for group in groups if len(group) >= LEAST_GAUSSIANS]
    return tuple(_cell(subject, side, surface[group], seen[group], centers) for group in chosen), weak


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
    found = []
    for part in torch.split(torch.from_numpy(surface), AT_ONCE):
        there = part.to(subject.device)
        falls = [(look.photo.view, *look.photo.view.project(there)) for look in subject.training]
        found.append(torch.stack([(depths > 0) & view.shows(at) for view, at, depths in falls], dim=1).cpu())
    seen: Mask = torch.cat(found).numpy()
    return seen


def _cell(subject: InspectedSplat, side: float, places: Floats, seen: Mask, centers: Floats) -> dict[str, float]:
    """Return a cell in the coordinates of the splat file, from the opaque Gaussians in it."""
    middle, scale = places.mean(axis=0), subject.frame.scale
    by = np.flatnonzero(seen.mean(axis=0) >= 0.5)
    rays = centers[by] - middle
    away = np.maximum(np.linalg.norm(rays, axis=1), 1e-9)
    cosines = (rays / away[:, None]) @ (rays / away[:, None]).T
    fine = [float(subject.training[at].photo.view.K[0, 0]) / far for at, far in zip(by, away, strict=True)]
    angle = float(np.degrees(np.arccos(np.clip(cosines.min(), -1, 1)))) if len(by) else 0.0
    num_photos = float(np.median(seen.sum(axis=1)))
    found = dict(zip("xyz", subject.frame.to_model(middle).tolist(), strict=True))
    found |= {"size": side * scale, "photos": num_photos, "angle": angle, "resolution": max(fine, default=0.0) / scale}
    found["weak"] = float(num_photos < FEW)
    return {name: float(f"{value:.9g}") for name, value in found.items()}


def distances(subject: InspectedSplat) -> dict[str, float]:
    """Return the distance of each held-out view to the nearest training view, by name, in baselines.

    The baseline is the median distance between nearest training views. Empty with fewer than two of these.
    """
    if len(subject.training) < 2:
        return {}
    centers = np.array([look.photo.view.center() for look in subject.training])
    tree = cKDTree(centers)
    baseline = max(float(np.median(tree.query(centers, k=2)[0][:, 1])), 1e-9)
    held_out = {look.photo.name: look.photo.view.center() for look in subject.holdout}
    return {name: float(tree.query(center)[0]) / baseline for name, center in held_out.items()}
