"""The rendered surface against the points of the model: its depth, Gaussians that stand in front, and holes.

Holes are looked for from between the cameras: from training views moved sideways by half the baseline.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from splatbatch.training.inspection.subject import AT_ONCE, Floats, InspectedSplat, SmallPhotograph
from splatbatch.training.photos.dataset import evenly_spaced
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RenderCamera

MOST_VIEWS = 16
OPAQUE = 0.5
"""Opacity of a pixel above which its depth counts."""
OFF = 0.05
"""Relative depth error, in the median over its pictures, above which the surface at a point counts as wrong."""
LEAST_VIEWS = 2
"""Least number of pictures that show a point, for the point to count."""
IN_FRONT = 0.85
"""Share of the smallest depth of the points around: a Gaussian that is nearer stands in front of them."""
NEIGHBOURS = 8
CELL_PX = 4.0
"""Side of the squares of a picture in which all Gaussians are compared with the same neighbouring points."""
FLOATING = 0.1
"""Opacity above which a Gaussian can be a floater."""
MOST_BETWEEN = 10
"""Largest number of training views that are moved sideways to look for holes."""
NEAREST = 3
"""Number of nearest cameras whose median distance is the baseline of a camera."""
HOLE = 0.3
"""Opacity below which a pixel at a point of the model is a hole; after short runs solid ground has about 0.5."""
BESIDE = 0.5
"""Share of the picture by which a Gaussian's centre may be outside of it, since large Gaussians reach in."""


def depth_error(subject: InspectedSplat) -> float | None:
    """Return the share of wrong points (see `share_off`) among those of at most `MOST_VIEWS` photographs.

    The error of a point in a picture is relative to its depth; 1 where nothing is drawn.
    """
    points, errors = [np.zeros(0, np.int64)], [np.zeros(0)]
    for look in evenly_spaced(subject.looks, MOST_VIEWS):
        y, x = look.cells()
        shown = subject.shown(look)
        drawn, alpha = (values.cpu().numpy()[y, x] for values in (shown.depths, shown.alphas))
        points.append(look.points)
        error = np.abs(drawn / look.depths - 1)
        errors.append(np.where(alpha > OPAQUE, error, 1.0))
    return share_off(np.concatenate(points), np.concatenate(errors))


def share_off(points: NDArray[np.int64], errors: Floats) -> float | None:
    """Return the share of points whose median error exceeds `OFF`; None where `LEAST_VIEWS` pictures show none.

    Args:
        points: point of each error, [n].
        errors: relative to the depth, one for each point and picture, [n].
    """
    order = np.argsort(points, kind="stable")
    _, starts = np.unique(points[order], return_index=True)
    groups = np.split(errors[order], starts[1:])
    medians = [np.median(group) for group in groups if len(group) >= LEAST_VIEWS]
    return float(np.mean(np.array(medians) > OFF)) if medians else None


@torch.inference_mode()
def fronts(subject: InspectedSplat) -> tuple[dict[str, float], float]:
    """Look, in all photographs, for Gaussians that stand in front of the photograph's points.

    Returns:
        The mean opacity at a photograph's points of a rendering of only these Gaussians, by photograph.
        The share of floaters in the summed opacity of opaque Gaussians. A floater stands in front in at least half of
        the pictures that have its centre in or beside them.
    """
    means = subject.own["means"]
    num_front, num_seen = means.new_zeros((2, len(means)), dtype=torch.int64)
    covers = {}
    for look in subject.looks:
        seen, front = standing_in_front(means, look)
        num_seen += seen
        num_front += front
        covers[look.photo.name] = _cover(subject, look, front)
    opacities = subject.own["opacities"].double().sigmoid().cpu().numpy()
    opaque = opacities > FLOATING
    is_floater = opaque & ((num_seen > 0) & (2 * num_front >= num_seen)).cpu().numpy()
    return covers, float(opacities[is_floater].sum() / max(opacities[opaque].sum(), 1e-9))


def standing_in_front(means: Tensor, look: SmallPhotograph) -> tuple[Tensor, Tensor]:
    """Return which Gaussians have their centre in or beside a picture, and which of these stand in front, [N] each.

    Those in front are clearly nearer than the `NEIGHBOURS` points around them in the picture.
    """
    found = [_in_front(part.to(look.small.view.viewmat.device).double(), look) for part in torch.split(means, AT_ONCE)]
    seen, front = (torch.cat(parts).to(means.device) for parts in zip(*found, strict=True))
    return seen, front


def _in_front(means: Tensor, look: SmallPhotograph) -> tuple[Tensor, Tensor]:
    view = look.small.view
    pixels, depths = view.project(means)
    seen = (depths > 0) & view.shows(pixels, BESIDE)
    front = torch.zeros_like(seen)
    known = look.depths
    if len(known) and bool(seen.any()):
        of_cell, places = _cells(pixels[seen])
        _, near = cKDTree(look.pixels).query(places, k=min(NEIGHBOURS, len(known)))
        nearest = torch.from_numpy(known[near.reshape(len(places), -1)].min(axis=1)).to(depths)
        front[seen] = depths[seen] < IN_FRONT * nearest[of_cell]
    return seen, front


def _cells(pixels: Tensor) -> tuple[Tensor, Floats]:
    """Return the index of the square of each pixel position [n, 2], [n], and the middles of the squares, [m, 2]."""
    squares = (pixels / CELL_PX).floor().long()
    low = squares.amin(dim=0)
    across, down = (squares.amax(dim=0) - low + 1).tolist()
    number = (squares[:, 1] - low[1]) * across + squares[:, 0] - low[0]
    taken = torch.zeros(across * down, dtype=torch.int64, device=pixels.device)
    taken[number] = 1
    found = taken.nonzero()[:, 0]  # by a table of all squares: sorting the positions takes fifty times as long
    middles = (torch.stack([found % across, found // across], dim=1) + low + 0.5) * CELL_PX
    return (taken.cumsum(dim=0) - 1)[number], middles.double().cpu().numpy()


def _cover(subject: InspectedSplat, look: SmallPhotograph, front: Tensor) -> float:
    if not bool(front.any()):
        return 0.0
    rendering = rasterize(subject.part(front), look.small.view, replace(subject.options, sh_degree=0))
    y, x = look.cells()
    return float(rendering.alphas[..., 0].cpu().numpy()[y, x].mean()) if len(y) else 0.0


@torch.inference_mode()
def holes(subject: InspectedSplat) -> float | None:
    """Return the share of a view's points at which the splat has a hole, from between cameras, in the mean over views.

    None with fewer than two training views.
    """
    looks = subject.training
    if len(looks) < 2:
        return None
    shares = [_holes_beside(subject, look, baseline_of(subject, look)) for look in evenly_spaced(looks, MOST_BETWEEN)]
    return float(np.mean(shares))


def baseline_of(subject: InspectedSplat, look: SmallPhotograph) -> float:
    """Return the median distance of a camera to the `NEAREST` nearest training cameras; 0 without others."""
    centers = np.array([other.photo.view.center() for other in subject.training if other is not look])
    away = np.sort(np.linalg.norm(centers.reshape(-1, 3) - look.photo.view.center(), axis=1))
    return float(np.median(away[:NEAREST])) if len(away) else 0.0


def _holes_beside(subject: InspectedSplat, look: SmallPhotograph, baseline: float) -> float:
    """Return the share of a photograph's points that are holes from half a baseline left and right of its camera."""
    own, local = look.small.view, subject.points[look.points]
    views = [moved(own, step) for step in (-baseline / 2, baseline / 2)]
    seen = [_alphas_at(subject.shown_from(view).alphas, view, local) for view in views]
    return float(np.mean([float((at < HOLE).float().mean()) if len(at) else 0.0 for at in seen]))


def moved(view: RenderCamera, step: float) -> RenderCamera:
    """Return a camera moved to its right by `step`, with the same orientation."""
    viewmat = view.viewmat.clone()
    viewmat[0, 3] -= step
    return RenderCamera(viewmat, view.K, view.width, view.height)


def _alphas_at(alphas: Tensor, view: RenderCamera, points: Floats) -> Tensor:
    """Return the opacity at the pixels of those points [n, 3] that are in the picture."""
    there = torch.from_numpy(points).to(alphas)
    pixels, depths = view.project(there)
    x, y = pixels[(depths > 0) & view.shows(pixels)].long().unbind(1)
    return alphas[y, x]
