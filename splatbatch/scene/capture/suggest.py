"""Where to photograph from: few views, so that every weak cell is seen often enough, and from directions it lacks.

Views look at weak cells from as far as the well-known ones are seen from, so that they are as fine: straight down, and
obliquely (30 and 50 degrees from the vertical) from eight sides. Of those from which nothing is in the way, a greedy
set cover takes the one that helps most cells, until all have what they need: within ln(n) of the fewest possible
(Chvatal 1979, "A greedy heuristic for the set-covering problem").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from splatbatch.scene.capture.survey import FEW, Cell, Floats, Mask, Shot, Survey, axes_of

TILTS_DEG = (0.0, 30.0, 50.0)
SIDES = 8
MARGIN = 0.08
"""Share of a photograph at its edge that does not count: nobody flies to the centimetre."""
APART_DEG = 8.0
"""A direction that is closer to one that is there already tells little."""
REACH = (0.5, 1.5)
"""Of the usual distance: nearer is not sharp, farther not fine enough."""
FREE = 0.25
"""Of the usual distance: so far from anything a camera stays."""
MOST_CELLS = 300
"""That are aimed at; all are covered."""
MOST_VIEWS = 500


@dataclass(frozen=True)
class Suggested:
    """A photograph to be taken."""

    shot: Shot
    target: Floats  # [3]
    covers: tuple[int, ...]
    """Indices of the weak cells that it helps."""

    @property
    def direction(self) -> Floats:
        """Return where it looks, [3], of length 1."""
        direction: Floats = self.shot.matrix[2, :3]
        return direction


@dataclass(frozen=True)
class Plan:
    """Views for the weak cells of a scene."""

    cells: Sequence[Cell]
    views: Sequence[Suggested]
    left: tuple[int, ...]
    """Indices of cells that still lack something: nothing is free from where they could be seen."""
    up: Floats
    distance: float


@dataclass
class _Candidates:
    """Views that could be taken, and what each would do."""

    shots: list[Shot]
    targets: list[Floats]
    sees: Mask  # [v, c]
    rays: Floats  # [v, c, 3], from cells to views
    taken: list[list[int]] = field(default_factory=list)
    """For each cell the views that were chosen for it."""


def suggest(survey: Survey, obstacles: Floats) -> Plan:
    """Return which views to take.

    Args:
        survey: what there is.
        obstacles: places of points and Gaussians, [n, 3]: no camera stands in or under them.
    """
    cells, distance = survey.weak(), survey.usual_distance()
    found = _candidates(survey, cells, distance, np.vstack([obstacles, survey.places]))
    if not cells or not found.shots:
        return Plan(cells, (), tuple(range(len(cells))), survey.up, distance)
    chosen, needs = _cover(found, cells, _directions(survey, cells))
    views = [
        Suggested(found.shots[one], found.targets[one], tuple(at for at, by in enumerate(found.taken) if one in by))
        for one in chosen
    ]
    return Plan(cells, views, tuple(np.flatnonzero(needs > 0).tolist()), survey.up, distance)


def _candidates(survey: Survey, cells: Sequence[Cell], distance: float, obstacles: Floats) -> _Candidates:
    focal, size = _usual_camera(survey.shots)
    aims = cells if len(cells) <= MOST_CELLS else cells[:: math.ceil(len(cells) / MOST_CELLS)]
    shots, targets = [], []
    for cell in aims:
        for direction in _around(survey.up):
            shots.append(Shot(_looking_at(cell.place, distance * direction, survey.up), focal, size))
            targets.append(cell.place)
    free = _free(np.array([shot.center for shot in shots]), np.array(targets), obstacles, (survey.up, distance))
    shots = [shot for shot, is_free in zip(shots, free, strict=True) if is_free]
    targets = [target for target, is_free in zip(targets, free, strict=True) if is_free]
    places = np.array([cell.place for cell in cells]).reshape(-1, 3)
    if not shots:
        return _Candidates([], [], np.zeros((0, len(cells)), bool), np.zeros((0, len(cells), 3)))
    rays = np.array([shot.center for shot in shots])[:, None] - places[None]
    far = np.linalg.norm(rays, axis=2)
    sees = np.stack([shot.sees(places, MARGIN) for shot in shots])
    sees &= (far >= REACH[0] * distance) & (far <= REACH[1] * distance)
    return _Candidates(shots, targets, sees, rays / np.maximum(far[..., None], 1e-12), [[] for _ in cells])


def _cover(found: _Candidates, cells: Sequence[Cell], known: Sequence[Floats]) -> tuple[list[int], NDArray[np.int64]]:
    """Take the view that helps most cells, again and again; return the views, and what cells lack after that."""
    needs = np.array([max(FEW - cell.num_photos, 1) for cell in cells], np.int64)
    helps, gaps = found.sees.copy(), np.full(found.sees.shape, 180.0)
    for at, rays in enumerate(known):
        _see(found, (helps, gaps), at, rays)
    chosen: list[int] = []
    while len(chosen) < MOST_VIEWS:
        wanted = helps & (needs > 0)
        # of views that help as many cells, the one whose directions lie furthest from those that there are
        score = wanted.sum(axis=1) + (wanted * gaps).sum(axis=1) / (181.0 * len(cells))
        best = int(score.argmax())
        if not wanted[best].any():
            break
        chosen.append(best)
        for at in map(int, np.flatnonzero(wanted[best])):
            needs[at] -= 1
            found.taken[at].append(best)
            _see(found, (helps, gaps), at, found.rays[best, at][None])
    return chosen, needs


def _see(found: _Candidates, held: tuple[Mask, Floats], cell: int, rays: Floats) -> None:
    """Note directions from which a cell is seen: views close to them help it no more."""
    helps, gaps = held
    if len(rays):
        apart = np.degrees(np.arccos(np.clip(found.rays[:, cell] @ rays.T, -1, 1))).min(axis=1)
        gaps[:, cell] = np.minimum(gaps[:, cell], apart)
        helps[:, cell] &= gaps[:, cell] >= APART_DEG


def _directions(survey: Survey, cells: Sequence[Cell]) -> list[Floats]:
    """Return from where each weak cell is seen already."""
    if not cells:
        return []
    again = Survey(np.array([cell.place for cell in cells]), np.ones(len(cells)), survey.shots, survey.up)
    return [again.rays[at][again.seen[at]] for at in range(len(cells))]


def _around(up: Floats) -> list[Floats]:
    """Return the directions in which views lie of what they look at."""
    east, north, up = axes_of(up)
    found = [up]
    for tilt in np.radians(TILTS_DEG[1:]):
        for side in range(SIDES):
            azimuth = 2 * math.pi * side / SIDES
            level = math.sin(azimuth) * east + math.cos(azimuth) * north
            found.append(math.cos(tilt) * up + math.sin(tilt) * level)
    return found


def _looking_at(target: Floats, offset: Floats, up: Floats) -> Floats:
    """Return the matrix, world to camera, of one that stands at an offset from its target, level to the horizon."""
    forward = -offset / np.linalg.norm(offset)
    above = up if abs(forward @ up) < math.cos(math.radians(1)) else axes_of(up)[1]
    right = np.cross(forward, above)
    right /= np.linalg.norm(right)
    matrix = np.eye(4)
    matrix[:3, :3] = np.stack([right, np.cross(forward, right), forward])
    matrix[:3, 3] = -matrix[:3, :3] @ (target + offset)
    return matrix


def _free(centers: Floats, targets: Floats, obstacles: Floats, lie: tuple[Floats, float]) -> Mask:
    """Return which cameras stand clear of everything, above the ground, and see their target past what lies between."""
    up, distance = lie
    if not len(centers):
        return np.zeros(0, bool)
    far, _ = cKDTree(obstacles).query(centers)
    east, north, _ = axes_of(up)
    level = np.stack([east, north]).T
    ground = cKDTree(obstacles @ level)
    heights = obstacles @ up
    free: Mask = far >= FREE * distance
    near = ground.query_ball_point(centers @ level, FREE * distance)
    tops = np.array([np.percentile(heights[one], 98) if len(one) else -np.inf for one in near])
    free &= centers @ up > tops
    for share in (0.35, 0.6, 0.85):
        between = targets + share * (centers - targets)
        _, nearest = ground.query(between @ level)
        free &= between @ up >= heights[nearest] - 0.02 * distance
    return free


def _usual_camera(shots: Sequence[Shot]) -> tuple[tuple[float, float], tuple[int, int]]:
    """Return the lens and the size of most photographs."""
    kinds = [(shot.focal, shot.size) for shot in shots]
    return max(set(kinds), key=kinds.count)
