"""Coverage masks: the pixels of held-out photographs that show places seen by enough training photographs.

Only at these pixels can a splat be judged; elsewhere its surface is invented, and its quality is chance. The pixels
follow from poses and tracks alone, before anything is trained: they are the same for every attempt and trainer.

The depth of a pixel comes from the triangle of the photograph's own points around it (Delaunay; the inverse depth of a
plane is linear in the pixel), unless that triangle spans a step in depth. Where the points lie on a plane, that plane
is continued for a rim beyond them. Farther out nothing could be matched, as in trees that move. A patch that was cut
from a scene holds only a part of the scene's points. The scene's points are used where the config names the scene;
otherwise planes are continued over the whole photograph.

A place of the scene is covered if training photographs see it from three camera positions. These positions are at least
2 degrees apart as seen from the place, so that a stereo pair counts as one position. All photographs that a rig took at
one moment count as one position, too. A place behind a photograph's own points is hidden from that photograph.

Measured on the four patches of the scene caliterra, whose models hold no points outside the patch. With the points of
the whole scene 0.90, 0.89, 0.93 and 0.95 of the held-out pixels are covered; with continued planes 0.92, 0.90, 0.94 and
0.95. The planes are off by 0.1 to 2 % of the depth in the median of each photograph, compared with the points there.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splatbatch.errors import SceneError
from splatbatch.scene.colmap.reconstruction import Reconstruction
from splatbatch.scene.colmap.rigs import Rigs
from splatbatch.scene.colmap.types import Camera, Floats, Ints, Mask
from splatbatch.scene.partition.border import Border
from splatbatch.scene.photos.undistort import undistorted_camera
from splatbatch.scene.reprojection import in_picture, project

VERSION = 1
"""Version of the rule that chooses pixels, stored in covered.json; to be raised whenever the rule changes."""
MIN_VIEWS = 3
"""Fewest camera positions from which training photographs must see a place of the scene that counts as covered."""
MIN_BASELINE_DEG = 2.0
"""Smallest angle in degrees between two camera positions, as seen from a covered place, if both are to count."""
CELLS = 128
"""Number of cells along the longer side of a photograph; a cell is covered if the pixel in its middle is."""
MOST_POINTS = 2000
"""Most points of a photograph that are triangulated, evenly taken; more points change 0.1 % of caliterra's pixels."""
STEP, GRAZING_DEG = 0.03, 80.0
"""Limits above which a triangle of points is a step in depth, and not a surface, if both are exceeded.

`STEP` is a share: largest over smallest depth, minus 1. `GRAZING_DEG` is the angle in degrees between the line of sight
and the normal of the triangle.
"""
HIDDEN = 0.03
"""A place is hidden from a photograph if it lies behind the points there by more than this share of their depth."""
FLAT = 0.03
"""A plane is used only if half of a photograph's points lie within this share of their depth from the plane."""
BEYOND = 2.0
"""Factor that limits a continued plane, from the least depth of its points divided by this factor on.

The plane ends at the greatest depth of its points times this factor.
"""
RIM_CELLS = 4
"""Number of cells by which a plane is continued beyond its points, if the model is not taken for a cut one (`PART`)."""
PART = 0.7
"""Median share of a photograph inside the triangles of its points, below which a model is taken for a cut one.

Planes of a cut model are continued over the whole photograph, not for `RIM_CELLS` cells. Measured: 0.93 on the scene
caliterra, 0.4 to 0.5 on its patches, 0.9 on the scene copr.
"""
VIEWS = 20
"""Approximate number of photographs, evenly taken, whose median is compared with `PART`; at most twice as many."""
SAME_POSE = 1e-6
"""Largest difference of two poses that count as the same.

The limit holds for each entry of the rotation matrices, and for translations as a share of the largest translation.
"""
LEAST_POINTS = 10
"""Fewest points of a photograph to which a plane is fitted."""
LEAST_SHARE = 0.02
"""Smallest share of covered pixels with which a held-out photograph counts for the figures on covered pixels."""
SAMPLES = 64
"""Approximate number of places of a held-out photograph by which the training photographs that see it are found."""
FITS = 10
"""Number of rounds of reweighted least squares that fit a plane; by then absolute errors are near their least."""


@dataclass(frozen=True, eq=False)
class CoverageMask:
    """Which cells (square parts, see `CELLS`) of the held-out photographs are covered; kept as covered.json."""

    cells: Mapping[str, Mask] = field(default_factory=dict)
    """Covered cells, [rows, columns] of the undistorted photograph, by image name.

    Left out are images without a finite pose or a size, and those whose lens cannot be undistorted.
    """
    why: str = ""
    """Reason why no cell was covered when the mask was computed; empty if any was, or if no mask was computed."""

    def of(self, name: str, width: int, height: int) -> Mask | None:
        """Return which pixels of a photograph are covered, [height, width]; None if none is, or the name is unknown.

        Args:
            name: image name.
            width: width of the photograph in pixels, at any resolution.
            height: height of the photograph in pixels.
        """
        cells = self.cells.get(name)
        if cells is None or not cells.any():
            return None
        rows, columns = ((np.arange(size) + 0.5) / size for size in (height, width))
        at = np.ix_((rows * cells.shape[0]).astype(np.int64), (columns * cells.shape[1]).astype(np.int64))
        return np.asarray(cells[at], bool)

    @cached_property
    def hash(self) -> str:
        """Hash of image names and covered cells, 16 hexadecimal digits.

        Two figures may be compared if the hashes of their masks are equal: both were measured over the same pixels.
        """
        digest = hashlib.sha256()
        for name, cells in sorted(self.cells.items()):
            digest.update(f"{name}\0{cells.shape}\0".encode(errors="surrogateescape"))
            digest.update(np.packbits(cells).tobytes())
        return digest.hexdigest()[:16]

    def without(self, names: Collection[str]) -> CoverageMask:
        """Return a copy without the masks of the named photographs; unknown names are ignored.

        `why` stays, also if no mask is left.
        """
        return replace(self, cells={name: cells for name, cells in self.cells.items() if name not in names})

    def facts(self) -> dict[str, str]:
        """Return the record for metrics.json: `hash` and `why` of this mask, the cells left out."""
        return {"hash": self.hash, "why": self.why}

    def to_record(self) -> dict[str, Any]:
        """Return the record for covered.json, with the cells of each photograph by image name.

        Cells go row by row from the top left, one bit each, the first in the highest bit of a byte, in base64.
        """
        photos = {
            name: {
                "share": round(float(cells.mean()), 4),
                "rows": cells.shape[0],
                "columns": cells.shape[1],
                "cells": base64.b64encode(np.packbits(cells).tobytes()).decode(),
            }
            for name, cells in sorted(self.cells.items())
        }
        return {"version": VERSION, "hash": self.hash, "why": self.why, "photos": photos}


def coverage_mask(
    model: Reconstruction,
    holdout: Collection[str],
    border: Border | None = None,
    rigs: Rigs | None = None,
    source: Reconstruction | None = None,
) -> CoverageMask:
    """Return the covered cells of the held-out photographs of a model; `why` of the result says why none is covered.

    Raises nothing for a model without points, tracks or held-out photographs: the result then has no covered cell.

    Args:
        model: a model in the coordinates of its files, read with its tracks.
        holdout: names of the held-out photographs; all others are trained on.
        border: border of the patch; places outside its reach are never covered. None: there is no such limit.
        rigs: rigs of the model; None: each photograph is a camera position of its own.
        source: model that this model was cut from, read with tracks; its points count for photographs with the same
            poses in both. None: the points of `model` alone count.
    """
    views = views_of(model, _points_of(model) | ({} if source is None else _points_of(source, model)), rigs)
    looked_at = [float(np.isfinite(one.hides).mean()) for one in views[:: max(1, len(views) // VIEWS)]]
    rim = RIM_CELLS if looked_at and np.median(looked_at) >= PART else None
    held_out = [one for one in views if one.name in holdout]
    training = [one for one in views if one.name not in holdout]
    cells = {one.name: _covered_in(one, training, border, rim) for one in held_out}
    if any(one.any() for one in cells.values()):
        return CoverageMask(cells)
    return CoverageMask(cells, _why_none(model, len(held_out), len({one.place for one in training})))


def _why_none(model: Reconstruction, num_held_out: int, num_places: int) -> str:
    if not num_held_out:
        return "no photograph with a pose is held out"
    if model.points.tracks is None or not len(model.points.tracks.image_ids):
        return "the points of the model have no tracks, which list the photographs that show each point"
    if num_places < MIN_VIEWS:
        return f"training photographs were taken from {num_places} of the {MIN_VIEWS} positions that are needed"
    return f"held-out photographs show nothing that training photographs see from {MIN_VIEWS} positions"


@dataclass(frozen=True, eq=False)
class CoverageView:
    """A photograph as the undistorted pinhole that is trained, with the points that the photograph sees.

    `points` are in camera coordinates, in units of the model; there may be none.
    """

    name: str
    place: int
    """Number of the camera position; the same for all photographs that a rig took at one moment."""
    camera: Camera
    matrix: Floats  # [4, 4], world to camera
    points: Floats  # [n, 3]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns of cells; `CELLS` along the longer side of the photograph."""
        size = np.array([self.camera.height, self.camera.width])
        rows, columns = np.maximum(1, np.round(size * CELLS / size.max())).astype(int)
        return int(rows), int(columns)

    @property
    def center(self) -> Floats:
        """Camera centre in world coordinates, [3]."""
        return -self.matrix[:3, :3].T @ self.matrix[:3, 3]

    def rays(self) -> Floats:
        """Return the ray (x / z, y / z, 1) through the middle of each cell, row by row, [rows * columns, 3].

        Rays are in camera coordinates.
        """
        rows, columns = self.shape
        x = ((np.arange(columns) + 0.5) / columns * self.camera.width - self.camera.cx) / self.camera.fx
        y = ((np.arange(rows) + 0.5) / rows * self.camera.height - self.camera.cy) / self.camera.fy
        return np.stack([np.tile(x, rows), np.repeat(y, columns), np.ones(rows * columns)], axis=1)

    def in_cells(self, places: Floats) -> Floats:
        """Return the cell coordinates (column, row) of places, [n, 2]; fractions are kept, and may lie outside.

        NaN for places behind the camera.

        Args:
            places: places in camera coordinates, [n, 3].
        """
        rows, columns = self.shape
        return project(self.camera, places) * np.array([columns / self.camera.width, rows / self.camera.height])

    @cached_property
    def hides(self) -> NDArray[np.float32]:
        """Depth of each cell behind which all is hidden, in units of the model, row by row, [rows * columns].

        Infinite where no triangle of points covers the cell.
        """
        found = np.full(self.shape[0] * self.shape[1], np.inf, dtype=np.float32)
        if len(self.points):
            cell, depths, steps = self._triangulated()
            found[cell] = np.fmax(depths, steps)
        return found

    def depths(self, rim: int | None) -> Floats:
        """Return the depth of each cell in units of the model, row by row, [rows * columns]; NaN where it is unknown.

        Args:
            rim: number of cells that the plane of the points is continued beyond the points; None: over the whole
                photograph.
        """
        from scipy.ndimage import binary_dilation  # as below: who only counts places does without scipy

        cell, depths, _ = self._triangulated()
        found = self._plane()
        if rim is not None:
            inside = np.zeros(self.shape, dtype=bool)
            inside.reshape(-1)[cell] = True
            near = binary_dilation(inside, np.ones((3, 3), dtype=bool), iterations=rim)
            found[~near.reshape(-1)] = np.nan
        found[cell] = depths
        return found

    def _triangulated(self) -> tuple[Ints, Floats, Floats]:
        """Return the cells [n] inside triangles, the depth there [n], and the far end of a step in depth [n].

        One of the two depths is NaN: inside a triangle that spans a step no depth is known.
        """
        from scipy.spatial import Delaunay, QhullError

        places = self.in_cells(self.points)
        triangles = np.zeros((0, 3), np.int64)
        with suppress(QhullError, ValueError):  # all lie on a line
            triangles = np.asarray(Delaunay(places).simplices, dtype=np.int64)
        of, cell, weights = _filled(places[triangles], self.shape)
        corners = self.points[triangles]  # [t, 3, 3]
        z, middle = corners[..., 2], corners.mean(axis=1)
        normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        lengths = np.linalg.norm(normal, axis=1) * np.linalg.norm(middle, axis=1)
        facing = np.abs((normal * middle).sum(axis=1)) / np.maximum(lengths, np.finfo(float).tiny)
        is_deep, is_grazing = z.max(axis=1) > (1 + STEP) * z.min(axis=1), facing < np.cos(np.radians(GRAZING_DEG))
        is_step = (is_deep & is_grazing)[of]
        inner = 1 / (weights / z.T[:, of]).sum(axis=0)
        return cell, np.where(is_step, np.nan, inner), np.where(is_step, z.max(axis=1)[of], np.nan)

    def _plane(self) -> Floats:
        """Return the depth of each cell on the plane that fits its points; NaN where they do not lie on one."""
        unknown, z = np.full(self.shape[0] * self.shape[1], np.nan), self.points[:, 2]
        if len(z) < LEAST_POINTS:
            return unknown
        rays, weights = self.points / z[:, None], np.ones(len(z))
        for _ in range(FITS):
            weighted = rays * weights[:, None]
            normal = weighted.T @ rays
            try:
                plane = np.linalg.solve(normal + 1e-9 * np.trace(normal) * np.eye(3), weighted.T @ (1 / z))
            except np.linalg.LinAlgError:
                return unknown
            off = np.abs(rays @ plane - 1 / z)
            weights = 1 / np.maximum(off, np.median(off) + 1e-12 / np.median(z))
        if np.median(off * z) > FLAT:
            return unknown
        with np.errstate(all="ignore"):
            depths = 1 / (self.rays() @ plane)
        return np.where((depths > z.min() / BEYOND) & (depths < z.max() * BEYOND), depths, np.nan)


def views_of(
    model: Reconstruction, points: Mapping[str, Floats] | None = None, rigs: Rigs | None = None
) -> list[CoverageView]:
    """Return the photographs of a model in its order; left out are those without a finite pose or a size.

    Left out, without an error, are also those whose lens cannot be undistorted, which the audit reports.

    Args:
        model: a model in the coordinates of its files.
        points: world points [n, 3] that each photograph sees, by image name; at most `MOST_POINTS` of each are kept. A
            photograph without points hides nothing; None: none has points.
        rigs: rigs of the model; None: each photograph is a camera position of its own.
    """
    at_once = {number: -1 - frame.id for frame in (rigs.frames if rigs else ()) for number in frame.image_ids()}
    views = []
    for image in model.images:
        matrix = image.world_to_camera()
        try:
            camera = undistorted_camera(model.cameras[image.camera_id])
        except SceneError:  # the audit's to report, and nothing shows it as a pinhole would
            continue
        if image.has_pose() and min(camera.size) > 0:
            places = (points or {}).get(image.name, np.zeros((0, 3)))
            local = places @ matrix[:3, :3].T + matrix[:3, 3]
            seen = local[in_picture(camera, local)[0] & np.isfinite(local).all(axis=1)]
            seen = seen[:: max(1, -(-len(seen) // MOST_POINTS))]
            views.append(CoverageView(image.name, at_once.get(image.id, image.id), camera, matrix, seen))
    return views


def _points_of(source: Reconstruction, model: Reconstruction | None = None) -> dict[str, Floats]:
    """Return the points [n, 3] that each image sees, by name; with `model`, only of images with the same pose in it."""
    tracks = source.points.tracks
    if tracks is None:
        return {}
    point, seen = tracks.points, tracks.by_image()
    found = {image.name: source.points.xyz[point[seen[image.id]]] for image in source.images if image.id in seen}
    if model is None:
        return found
    theirs = {image.name: image.world_to_camera() for image in source.images}
    pairs = {image.name: (image.world_to_camera(), theirs[image.name]) for image in model.images if image.name in found}
    reach = max((float(np.abs(ours[:3, 3]).max()) for ours, _ in pairs.values()), default=1.0)
    allowed = np.array([SAME_POSE] * 3 + [SAME_POSE * max(reach, SAME_POSE)])
    return {name: found[name] for name, (ours, other) in pairs.items() if (np.abs(ours - other) <= allowed).all()}


def _filled(corners: Floats, shape: tuple[int, int]) -> tuple[Ints, Ints, Floats]:
    """Return the triangle [n] and the cell [n] of each covered cell middle, and barycentric coordinates there [3, n].

    All triangles at once: scipy's find_simplex solves a system for each, in threads that wait for one another.

    Args:
        corners: columns and rows of each triangle, [t, 3, 2].
        shape: rows and columns of the cells.
    """
    low = np.maximum(np.ceil(corners.min(axis=1) - 0.5), 0).astype(np.int64)
    high = np.minimum(np.floor(corners.max(axis=1) - 0.5), (shape[1] - 1, shape[0] - 1)).astype(np.int64)
    width, height = np.maximum(high - low + 1, 0).T
    of = np.repeat(np.arange(len(corners)), width * height)
    index = np.arange(len(of)) - np.repeat(np.cumsum(width * height) - width * height, width * height)
    x, y = low[of, 0] + index % width[of], low[of, 1] + index // width[of]
    (ax, ay), (bx, by), (cx, cy) = (corners[:, corner].T for corner in range(3))
    area = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
    with np.errstate(all="ignore"):
        away_x, away_y = x + 0.5 - ax[of], y + 0.5 - ay[of]
        second = (away_x * (cy - ay)[of] - away_y * (cx - ax)[of]) / area[of]
        third = (away_y * (bx - ax)[of] - away_x * (by - ay)[of]) / area[of]
    first = 1 - second - third
    inside = np.minimum(first, np.minimum(second, third)) >= -1e-9  # NaN of a triangle without area is not
    return of[inside], (y * shape[1] + x)[inside], np.stack([first, second, third])[:, inside]


def _covered_in(view: CoverageView, training: Sequence[CoverageView], border: Border | None, rim: int | None) -> Mask:
    """Return which cells of a held-out photograph are covered, [rows, columns]."""
    depths = view.depths(rim)
    known = np.flatnonzero(np.isfinite(depths))
    places = (view.rays()[known] * depths[known, None] - view.matrix[:3, 3]) @ view.matrix[:3, :3]  # world
    if border is not None:
        own = places @ np.array(border.axes).T
        within = ((own >= border.reach.lower) & (own < border.reach.upper)).all(axis=1)
        known, places = known[within], places[within]
    found = np.zeros(view.shape, dtype=bool)
    found.reshape(-1)[known] = is_seen(places, training)
    return found


def _looking_at(places: Floats, training: Sequence[CoverageView]) -> list[CoverageView]:
    """Return the photographs that show any of a sample of places [n, 3], those that show most of it first."""
    sample = places[:: max(1, -(-len(places) // SAMPLES))]
    num = np.array(
        [in_picture(one.camera, sample @ one.matrix[:3, :3].T + one.matrix[:3, 3])[0].sum() for one in training]
    )
    return [training[at] for at in np.argsort(-num, kind="stable") if num[at]]


def is_seen(places: Floats, training: Sequence[CoverageView]) -> Mask:
    """Return which places are covered, [n].

    A place is covered if training photographs see it from `MIN_VIEWS` positions at least `MIN_BASELINE_DEG` apart.
    Photographs that show none of `SAMPLES` places, evenly taken, are passed over.

    Args:
        places: places in world coordinates, [n, 3].
        training: photographs that are trained on; none: no place is covered.
    """
    num = np.zeros(len(places), np.int64)
    rays = np.zeros((len(places), MIN_VIEWS, 3))  # to those that were found first
    taken = np.zeros((len(places), MIN_VIEWS), np.int64)
    least = np.cos(np.radians(MIN_BASELINE_DEG))
    for one in _looking_at(places, training):
        left = np.flatnonzero(num < MIN_VIEWS)
        if not len(left):
            break
        seen = left[_sees(one, places[left])]
        toward = one.center - places[seen]
        toward /= np.maximum(np.linalg.norm(toward, axis=1, keepdims=True), np.finfo(float).tiny)
        before = np.arange(MIN_VIEWS) < num[seen, None]
        is_near = (np.einsum("nkj,nj->nk", rays[seen], toward) > least) | (taken[seen] == one.place)
        is_new = ~(is_near & before).any(axis=1)
        new = seen[is_new]
        rays[new, num[new]], taken[new, num[new]] = toward[is_new], one.place
        num[new] += 1
    return np.asarray(num >= MIN_VIEWS, bool)


def _sees(view: CoverageView, places: Floats) -> Mask:
    """Return which places [n, 3] project into a photograph and are not hidden there."""
    local = places @ view.matrix[:3, :3].T + view.matrix[:3, 3]
    x, y = view.in_cells(local).T
    seen = np.asarray((x >= 0) & (y >= 0) & (x < view.shape[1]) & (y < view.shape[0]), bool)
    inside = np.flatnonzero(seen)
    if len(inside):
        column, row = x[inside].astype(np.int64), y[inside].astype(np.int64)
        seen[inside] = local[inside, 2] <= (1 + HIDDEN) * view.hides[row * view.shape[1] + column]
    return seen
