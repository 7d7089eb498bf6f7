"""What photographs there are of the cells of a scene: how many see each, from where; and which way is up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import Delaunay, QhullError

from splatbatch.scene.colmap.types import Camera, Image

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
FEW = 3
"""Photographs below which a place is badly known: as the inspection has it."""
NARROW_DEG = 20.0
"""Between the two directions that are furthest apart: below that depth is hardly known."""
COARSE = 0.5
"""Of the usual resolution: what is seen from twice as far."""
MOST_EMPTY = 400
"""Cells without any surface that are looked for."""
VERTICAL = 0.9


@dataclass(frozen=True)
class Shot:
    """A camera in the world: where it stands, how it looks, how large its photographs are."""

    matrix: Floats  # [4, 4], world to camera
    focal: tuple[float, float]
    size: tuple[int, int]

    @cached_property
    def center(self) -> Floats:
        """Return where it stands, [3]."""
        center: Floats = -self.matrix[:3, :3].T @ self.matrix[:3, 3]
        return center

    def sees(self, places: Floats, margin: float = 0.0) -> Mask:
        """Return which places, [n, 3], lie in its photograph, and not within a margin of its edge (a share)."""
        local = places @ self.matrix[:3, :3].T + self.matrix[:3, 3]
        with np.errstate(all="ignore"):
            off = np.abs(local[:, :2] / local[:, 2:] * self.focal) / self.size
        seen: Mask = (local[:, 2] > 0) & (off <= 0.5 - margin).all(axis=1)
        return seen


def shots_of(images: Iterable[Image], cameras: Mapping[int, Camera]) -> list[Shot]:
    """Return the cameras of a model; lenses are taken to be free of distortion, and centred."""
    pairs = ((image, cameras.get(image.camera_id)) for image in images)
    found = [
        Shot(image.world_to_camera(), (camera.fx, camera.fy), (camera.width, camera.height))
        for image, camera in pairs
        if camera is not None
    ]
    return [shot for shot in found if np.isfinite(shot.matrix).all()]


@dataclass(frozen=True)
class Cell:
    """A piece of the scene that is badly known, or not at all."""

    place: Floats  # [3], world
    size: float
    num_photos: int
    angle_deg: float
    why: str
    """few photographs, narrow, coarse, or nothing there."""
    is_nadir: bool
    """All that see it look straight down."""
    patch: str = ""


@dataclass(frozen=True)
class Survey:
    """All cells of a scene, and all that photographs it."""

    places: Floats  # [c, 3], world: the middles of the surface in each cell
    sizes: Floats  # [c]
    shots: Sequence[Shot]
    up: Floats  # [3]
    patches: Sequence[str] = ()
    """Of each cell."""

    @cached_property
    def seen(self) -> Mask:
        """Return which cells, [c, s], which cameras see."""
        return np.stack([shot.sees(self.places) for shot in self.shots], axis=1)

    @cached_property
    def rays(self) -> Floats:
        """Return the directions from cells to cameras, [c, s, 3], of length 1."""
        rays = np.array([shot.center for shot in self.shots])[None] - self.places[:, None]
        unit: Floats = rays / np.maximum(np.linalg.norm(rays, axis=2, keepdims=True), 1e-12)
        return unit

    @cached_property
    def distances(self) -> Floats:
        """Return how far each cell is from each camera, [c, s]; NaN where that does not see it."""
        centers = np.array([shot.center for shot in self.shots])
        far = np.linalg.norm(centers[None] - self.places[:, None], axis=2)
        return np.where(self.seen, far, np.nan)

    def angle_deg(self, cell: int) -> float:
        """Return the angle between those directions from which a cell is seen that are furthest apart."""
        rays = self.rays[cell][self.seen[cell]]
        return float(np.degrees(np.arccos(np.clip((rays @ rays.T).min(), -1, 1)))) if len(rays) else 0.0

    def usual_distance(self) -> float:
        """Return from how far cells that are well seen are photographed, in the median."""
        good = self.seen.sum(axis=1) >= FEW
        known = self.distances[good if good.any() else slice(None)]
        if np.isfinite(known).any():
            return float(np.nanmedian(known))
        centers = np.array([shot.center for shot in self.shots])
        return float(np.median(np.linalg.norm(centers - self.places.mean(axis=0), axis=1)))

    def weak(self) -> list[Cell]:
        """Return the cells that more photographs would help, those without any surface included."""
        usual = self.usual_distance()
        nearest = np.nanmin(np.where(self.seen, self.distances, np.inf), axis=1, initial=np.inf)
        found = [self._cell(index, float(nearest[index]), usual) for index in range(len(self.places))]
        return [cell for cell in found if cell] + self._empty()

    def _cell(self, index: int, nearest: float, usual: float) -> Cell | None:
        num, angle = int(self.seen[index].sum()), self.angle_deg(index)
        why = "few photographs" if num < FEW else "narrow" if angle < NARROW_DEG else ""
        why = why or ("coarse" if nearest > usual / COARSE else "")
        rays = self.rays[index][self.seen[index]]
        is_nadir = bool(len(rays) and (rays @ self.up > np.cos(np.radians(20))).all())
        patch = self.patches[index] if self.patches else ""
        return Cell(self.places[index], float(self.sizes[index]), num, angle, why, is_nadir, patch) if why else None

    def _empty(self) -> list[Cell]:
        """Return the cells between others in which there is no surface at all, as high as their neighbours."""
        east, north, up = axes_of(self.up)
        flat = self.places @ np.stack([east, north]).T
        side = float(np.median(self.sizes))
        try:
            hull = Delaunay(flat)
        except (QhullError, ValueError):  # fewer than four cells, or all in a line
            return []
        low, high = flat.min(axis=0), flat.max(axis=0)
        axes = [np.arange(start + side / 2, end, side) for start, end in zip(low, high, strict=True)]
        grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
        far = np.linalg.norm(grid[:, None] - flat[None], axis=2)
        empty = grid[(hull.find_simplex(grid) >= 0) & (far.min(axis=1) > side)][:MOST_EMPTY]
        heights = self.places @ up
        order = np.argsort(np.linalg.norm(empty[:, None] - flat[None], axis=2), axis=1)[:, :4]
        places = empty @ np.stack([east, north]) + np.median(heights[order], axis=1)[:, None] * up if len(empty) else []
        return [self._seen_anew(np.asarray(place), side) for place in places]

    def _seen_anew(self, place: Floats, side: float) -> Cell:
        alone = Survey(place[None], np.array([side]), self.shots, self.up)
        rays = alone.rays[0][alone.seen[0]]
        is_nadir = bool(len(rays) and (rays @ self.up > np.cos(np.radians(20))).all())
        return Cell(place, side, int(alone.seen.sum()), alone.angle_deg(0), "nothing there", is_nadir)


def up_of(places: Floats, shots: Sequence[Shot], *, is_mapped: bool = False) -> Floats:
    """Return which way is up: z where the model is in a CRS, or close to it; else away from the ground, to the cameras.

    Args:
        places: of the surface, [n, 3].
        shots: that photograph it.
        is_mapped: the coordinates are those of a CRS.
    """
    z = np.array([0.0, 0.0, 1.0])
    if is_mapped or len(places) < 3:
        return z
    normal = np.linalg.svd(places - places.mean(axis=0), full_matrices=False)[2][2]
    above = np.median([shot.center for shot in shots], axis=0) - np.median(places, axis=0)
    up: Floats = normal if normal @ above > 0 else -normal
    return z if up @ z > VERTICAL else up


def axes_of(up: Floats) -> tuple[Floats, Floats, Floats]:
    """Return east, north and up: north is the model's y axis, laid level; where that stands upright, its x axis."""
    y = np.array([0.0, 1.0, 0.0]) if abs(up[1]) < VERTICAL else np.array([1.0, 0.0, 0.0])
    north = y - (y @ up) * up
    north /= np.linalg.norm(north)
    return np.cross(north, up), north, up
