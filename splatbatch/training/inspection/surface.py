"""The surface of a splat: its depth at the model's sparse points, Gaussians in front of these, holes, and coverage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from splatbatch.training.inspection.subject import Floats, InspectedSplat, Ints, SmallPhotograph, medians_of
from splatbatch.training.photos.dataset import evenly_spaced
from splatbatch.training.rendering.rasterize import rasterize
from splatbatch.training.rendering.view import RenderCamera

MOST_VIEWS = 16  # whose depths are compared with the model's points
OPAQUE = 0.5  # opacity of a pixel above which its depth counts
OFF = 0.05  # relative error of the depth, in the median over its pictures, above which a point counts as wrong
IN_FRONT = 0.85  # share of the smallest depth of the points around: a nearer Gaussian stands in front of them
NEIGHBOURS = 8  # number of those points
CELL_PX = 4.0  # side of the squares of a picture in which all Gaussians are compared with the same points
BESIDE = 0.5  # share of the picture by which a Gaussian's centre may be outside of it, since large ones reach in
FLOATING = 0.1  # opacity above which a Gaussian can be a floater
MOST_BETWEEN = 10  # training views that are moved sideways to look for holes
NEAREST = 3  # cameras whose median distance is the baseline of a camera
HOLE = 0.3  # opacity below which a pixel at a point is a hole; after short runs solid ground has about 0.5
SOLID = 0.3  # opacity above which a Gaussian counts as surface that photographs cover
TAILS = (5.0, 95.0)  # percentiles of that surface's positions that bound the scene
CELLS = 12  # along the longer side of the scene
LEAST_GAUSSIANS = 5  # in a cell that is reported
FEW = 3  # photographs below which a cell is weakly covered


def depth_error(subject: InspectedSplat) -> float | None:
    """Return the share of points, 0 to 1, with a wrong depth, in 16 photographs at most; None if no two share one."""
    looks = evenly_spaced(subject.looks, MOST_VIEWS)
    points, errors = zip(*((look.points, depth_errors(subject, look)) for look in looks), strict=True)
    return share_off(np.concatenate(points), np.concatenate(errors))


def depth_errors(subject: InspectedSplat, look: SmallPhotograph) -> Floats:
    """Return the relative error of the rendered depth at each point of a photograph, [n]; 1 where it is transparent."""
    shown = subject.shown(look)
    drawn, alpha = (values.cpu().numpy()[look.cells()] for values in (shown.depths, shown.alphas))
    return np.where(alpha > OPAQUE, np.abs(drawn / look.depths - 1), 1.0)


def share_off(points: Ints, errors: Floats) -> float | None:
    """Return the share of points, 0 to 1, whose median error exceeds `OFF` (0.05); None if none has two errors.

    `errors` are relative, [n]; `points` are the indices of their points, [n]. Points with a single error are left out.
    """
    medians = medians_of(points, errors)
    known = medians[np.isfinite(medians)]
    return float(np.mean(known > OFF)) if len(known) else None


@torch.inference_mode()
def fronts(subject: InspectedSplat) -> tuple[dict[str, float], float]:
    """Measure, in all photographs, the Gaussians that stand in front of the model's points.

    Returns:
        By photograph, the mean opacity, at its points, of a rendering of only these Gaussians; 0 without points.
        The share of floaters, in front in at least half of their pictures, in the opacity of all above `FLOATING`.
    """
    means, covers = subject.own["means"], dict[str, float]()
    num_front, num_seen = means.new_zeros((2, len(means)), dtype=torch.int64)
    for look in subject.looks:
        seen, front = standing_in_front(subject, look)
        num_seen += seen
        num_front += front
        covers[look.photo.name] = 0.0
        if len(look.points) and bool(front.any()):
            rendering = rasterize(subject.part(front), look.small.view, replace(subject.options, sh_degree=0))
            covers[look.photo.name] = float(rendering.alphas[..., 0].cpu().numpy()[look.cells()].mean())
    opacities = subject.own["opacities"].double().sigmoid().cpu().numpy()
    opaque = opacities > FLOATING
    is_floater = opaque & ((num_seen > 0) & (2 * num_front >= num_seen)).cpu().numpy()
    return covers, float(opacities[is_floater].sum() / max(opacities[opaque].sum(), 1e-9))


def standing_in_front(subject: InspectedSplat, look: SmallPhotograph) -> tuple[Tensor, Tensor]:
    """Return two masks [N] of the splat's own Gaussians: with a centre in or beside a picture, and in front of points.

    One in front is clearly nearer (`IN_FRONT`) than the `NEIGHBOURS` points around it; without points none is.
    """
    points, num, found = cKDTree(look.pixels), min(NEIGHBOURS, len(look.depths)), []
    for part in subject.in_parts(subject.own["means"]):
        pixels, depths, seen = look.small.view.sees(part.double(), BESIDE)
        front = torch.zeros_like(seen)
        if num and bool(seen.any()):
            of_cell, places = _cells(pixels[seen])
            near = points.query(places, k=num)[1].reshape(len(places), -1)
            nearest = torch.from_numpy(look.depths[near].min(axis=1)).to(depths)
            front[seen] = depths[seen] < IN_FRONT * nearest[of_cell]
        found.append((seen, front))
    seen, front = (torch.cat(parts).to(subject.own["means"].device) for parts in zip(*found, strict=True))
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


@torch.inference_mode()
def holes(subject: InspectedSplat) -> float | None:
    """Return the share of a view's points, 0 to 1, with an opacity below `HOLE`, in the mean over moved cameras.

    Training cameras are moved half a baseline to both sides (see `beside`). None with fewer than two of them.
    """
    looks, shares = subject.training, list[float]()
    if len(looks) < 2:
        return None
    for look in evenly_spaced(looks, MOST_BETWEEN):
        for view in (beside(subject, look, -0.5), beside(subject, look, 0.5)):
            alphas = subject.shown_from(view).alphas
            pixels, _, seen = view.sees(torch.from_numpy(subject.points[look.points]).to(alphas))
            x, y = pixels[seen].long().unbind(1)
            shares.append(float((alphas[y, x] < HOLE).float().mean()) if len(x) else 0.0)
    return float(np.mean(shares))


def beside(subject: InspectedSplat, look: SmallPhotograph, baselines: float) -> RenderCamera:
    """Return a small copy's camera, moved right by `baselines`, median distances to the 3 nearest; negative: left."""
    return look.small.view.moved(baselines * float(np.median(subject.away_from(look)[:NEAREST])))


def coverage(subject: InspectedSplat) -> tuple[tuple[dict[str, float], ...], float | None]:
    """Measure how training photographs cover opaque Gaussians, hidden ones included, but not the outermost (`TAILS`).

    Returns:
        The cells with at least `LEAST_GAUSSIANS` of these, as inspection.json has them: square columns of the scene.
        The share of these, 0 to 1, that fewer than `FEW` (3) photographs see; None without any.
    """
    places = subject.own["means"][subject.own["opacities"].sigmoid() > SOLID].double().cpu().numpy()
    low, high = np.percentile(places, TAILS, axis=0) if len(places) else (0.0, 0.0)
    places = places[((places >= low) & (places <= high)).all(axis=1)]
    if not len(places):
        return (), None
    views, parts = [look.photo.view for look in subject.training], subject.in_parts(torch.from_numpy(places))
    in_picture = torch.cat([torch.stack([view.sees(part)[2] for view in views], dim=1).cpu() for part in parts])
    seen: NDArray[np.bool_] = in_picture.numpy()  # [n, I], also what is hidden behind something else
    axes = np.linalg.svd(places - places.mean(axis=0), full_matrices=False)[2][:2]  # principal, [2, 3]
    flat = places @ axes.T
    low, high = np.percentile(flat, TAILS, axis=0)
    side = max(float((high - low).max()) / CELLS, 1e-9)
    squares = np.floor((flat - low) / side).astype(np.int64)
    _, of_cell, counts = np.unique(squares, axis=0, return_inverse=True, return_counts=True)
    groups = np.split(np.argsort(of_cell.reshape(-1), kind="stable"), np.cumsum(counts)[:-1])
    cells = tuple(_cell(subject, side, places[one], seen[one]) for one in groups if len(one) >= LEAST_GAUSSIANS)
    return cells, float((seen.sum(axis=1) < FEW).mean())


def _cell(subject: InspectedSplat, side: float, places: Floats, seen: NDArray[np.bool_]) -> dict[str, float]:
    """Return a cell in the coordinates of the splat file, from the opaque Gaussians in it."""
    middle, scale = places.mean(axis=0), subject.frame.scale
    by = np.flatnonzero(seen.mean(axis=0) >= 0.5)
    rays = subject.centers[by] - middle
    away = np.maximum(np.linalg.norm(rays, axis=1), 1e-9)
    cosines = (rays / away[:, None]) @ (rays / away[:, None]).T
    fine = [float(subject.training[at].photo.view.K[0, 0]) / far for at, far in zip(by, away, strict=True)]
    num_photos = float(np.median(seen.sum(axis=1)))
    found = {
        **dict(zip("xyz", subject.frame.to_model(middle).tolist(), strict=True)),
        "size": side * scale,
        "photos": num_photos,
        "angle": float(np.degrees(np.arccos(np.clip(cosines.min(), -1, 1)))) if len(by) else 0.0,
        "resolution": max(fine, default=0.0) / scale,
        "weak": float(num_photos < FEW),
    }
    return {name: float(f"{value:.9g}") for name, value in found.items()}
