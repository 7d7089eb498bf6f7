"""The rendered surface against the points of the model: its depth there, and Gaussians that stand in front."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from splatbatch.training.inspection.subject import AT_ONCE, Floats, InspectedSplat, SmallPhotograph
from splatbatch.training.photos.dataset import evenly_spaced
from splatbatch.training.rendering.rasterize import rasterize

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
BESIDE = 0.5
"""Share of the picture by which a Gaussian's centre may be outside of it, since large Gaussians reach in."""


@dataclass(frozen=True)
class FrontCounts:
    """Opacity in front of the model's points by picture, and in how many pictures each Gaussian stands in front."""

    covers: dict[str, float]
    """Mean opacity, by photograph, of a rendering of only the Gaussians in front, at the photograph's points."""
    num_front: NDArray[np.int64]  # [N], pictures in which a Gaussian stands in front
    num_seen: NDArray[np.int64]  # [N], pictures in or beside which its centre lies


@dataclass(frozen=True)
class SurfaceDepths:
    """Depth errors of the rendered surface at the model's points, relative to the depth, one per point and picture."""

    points: NDArray[np.int64]  # [n], rows of the subject's points
    errors: Floats  # [n]; 1 where nothing is drawn

    @property
    def off(self) -> float | None:
        """Return the share of points with a median error above `OFF`; None without points in enough pictures."""
        medians = list(_medians(self.points, self.errors))
        return float(np.mean(np.array(medians) > OFF)) if medians else None


def depths_at_points(subject: InspectedSplat) -> SurfaceDepths:
    """Return the depth errors at the points of at most `MOST_VIEWS` photographs."""
    points, errors = [np.zeros(0, np.int64)], [np.zeros(0)]
    for look in evenly_spaced(subject.looks, MOST_VIEWS):
        y, x = look.cells()
        shown = subject.shown(look)
        drawn, alpha = (values.cpu().numpy()[y, x] for values in (shown.depths, shown.alphas))
        points.append(look.points[look.is_inside])
        error = np.abs(drawn / look.depths[look.is_inside] - 1)
        errors.append(np.where(alpha > OPAQUE, error, 1.0))
    return SurfaceDepths(np.concatenate(points), np.concatenate(errors))


def _medians(points: NDArray[np.int64], errors: Floats) -> Iterator[float]:
    """Yield the median error of each point that at least `LEAST_VIEWS` pictures show."""
    order = np.argsort(points, kind="stable")
    _, starts = np.unique(points[order], return_index=True)
    for group in np.split(errors[order], starts[1:]):
        if len(group) >= LEAST_VIEWS:
            yield float(np.median(group))


@torch.inference_mode()
def fronts(subject: InspectedSplat) -> FrontCounts:
    """Count, over all photographs, the Gaussians that stand in front of the photograph's points."""
    means = subject.own["means"]
    num_front, num_seen = means.new_zeros((2, len(means)), dtype=torch.int64)
    covers = {}
    for look in subject.looks:
        seen, front = standing_in_front(means, look)
        num_seen += seen
        num_front += front
        covers[look.photo.name] = _cover(subject, look, front)
    return FrontCounts(covers, num_front.cpu().numpy(), num_seen.cpu().numpy())


def floaters(subject: InspectedSplat, found: FrontCounts) -> float:
    """Return the share of floaters in the summed opacity of opaque Gaussians.

    A floater stands in front of the model's points in at least half of the pictures that show it.
    """
    opacities = subject.own["opacities"].double().sigmoid().cpu().numpy()
    opaque = opacities > FLOATING
    is_floater = opaque & (found.num_seen > 0) & (2 * found.num_front >= found.num_seen)
    return float(opacities[is_floater].sum() / max(opacities[opaque].sum(), 1e-9))


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
    known = look.depths[look.is_inside]
    if len(known) and bool(seen.any()):
        of_cell, places = _cells(pixels[seen])
        _, near = cKDTree(look.pixels[look.is_inside]).query(places, k=min(NEIGHBOURS, len(known)))
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
