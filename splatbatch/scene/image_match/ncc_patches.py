"""Compares two photographs by small squares in space about points: their correlation, and how far they are shifted.

A square faces both cameras and is projected into each photograph, so that pose, lens and scale are taken into account.
Normalised cross-correlation (NCC) does not depend on exposure. Photographs that do not belong to their poses correlate
by about 0. A square that is found a little aside measures the displacement of a photograph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from splatbatch.scene.colmap.types import Camera, Floats, Ints, finite
from splatbatch.scene.image_match.pairs import ImagePair
from splatbatch.scene.photos.pixels import Greys
from splatbatch.scene.reprojection import project

HALF = 5
"""Half of the side of a square, in pixels of the picture that shows it coarser; a side has 2 HALF + 1 samples."""
REACH = 6
"""Distance within which a shifted square is looked for, in pixels of the picture that shows the square coarser."""
_LEAST_STD = 0.5  # of 255: a square of less contrast shows nothing
Places = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class MatchView:
    """A picture (a photograph in grey, reduced) with the camera and pose that the model, or a hypothesis, gives it."""

    picture: Greys  # [H, W]
    camera: Camera
    rotation: Floats  # [3, 3], world to camera
    translation: Floats  # [3]
    place: Places | None = None
    """Map from places in the camera's image to places in the photograph, in shares of the sides; None: no change."""

    @np.errstate(all="ignore")
    def pixels(self, xyz: Floats) -> Floats:
        """Return the pixels [N, 2] at which the picture shows world points [N, 3]; NaN where `shown` gives it."""
        return self.shown(xyz @ self.rotation.T + self.translation)

    @np.errstate(all="ignore")
    def shown(self, local: Floats) -> Floats:
        """Return the pixels [N, 2] of points [N, 3] in camera coordinates.

        NaN behind the camera, and for cameras that cannot project; see `project`.
        """
        shares = project(self.camera, local) / self.camera.size
        shares[~(local[:, 2] > 0)] = np.nan
        height, width = self.picture.shape
        return (self.place(shares) if self.place else shares) * (width, height)

    @property
    def focal(self) -> float:
        """Focal length in pixels of the picture."""
        return focal_px(self.camera) * max(self.picture.shape) / max(self.camera.size)

    @cached_property
    def center(self) -> Floats:
        """Camera centre in world coordinates, [3]."""
        return -self.rotation.T @ self.translation


def focal_px(camera: Camera) -> float:
    """Return the focal length fx in pixels; where `Camera.has_center` is False (a panorama), width / 2 pi."""
    return camera.fx if camera.has_center else camera.width / (2 * np.pi)


@dataclass(frozen=True, eq=False)
class NccPatches:
    """n squares in space about points, given by their middle and a step along each side, in world coordinates."""

    xyz: Floats  # [n, 3]
    right: Floats  # [n, 3], one step
    down: Floats  # [n, 3]

    def seen(self, view: MatchView, half: int) -> Floats:
        """Return the greys (0 to 255) of the squares in a picture, [n, 2 half + 1, 2 half + 1]; NaN outside.

        `half` is half of the side of a square, in steps.
        """
        steps = np.arange(-half, half + 1)
        with np.errstate(all="ignore"):
            middle = self.xyz @ view.rotation.T + view.translation
            right, down = self.right @ view.rotation.T, self.down @ view.rotation.T
            # [3, n, s, s]: contiguous coordinates are faster than interleaved ones
            middle, right, down = (each.T[:, :, None, None] for each in (middle, right, down))
            local = middle + down * steps[:, None] + right * steps
        return _sampled(view.picture, view.shown(local.reshape(3, -1).T)).reshape(local.shape[1:])

    def slopes(self, view: MatchView) -> Floats:
        """Return by how many pixels of the picture a step to the right or down moves, [n, 2 (x, y), 2 (right, down)].

        NaN behind the camera.
        """
        moved = [(view.pixels(self.xyz + step) - view.pixels(self.xyz - step)) / 2 for step in (self.right, self.down)]
        return np.stack(moved, axis=2)


@np.errstate(all="ignore")
def ncc_patches(pair: ImagePair, one: MatchView, other: MatchView) -> NccPatches:
    """Return a square about each point of a pair that faces both cameras.

    A step of a square is as long as a pixel of the picture that shows the point coarser.
    """
    toward = [view.center - pair.xyz for view in (one, other)]
    far = [np.linalg.norm(each, axis=1, keepdims=True) for each in toward]
    normal = toward[0] / far[0] + toward[1] / far[1]
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    step = np.maximum(far[0] / one.focal, far[1] / other.focal)
    right = one.rotation[0] - (normal @ one.rotation[0])[:, None] * normal
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    return NccPatches(pair.xyz, right * step, np.cross(-normal, right) * step)


def _sampled(picture: Greys, pixels: Floats) -> Floats:
    """Return the greys [N] at fractional pixels of a picture, interpolated linearly; NaN outside."""
    height, width = picture.shape
    x, y = pixels[:, 0] - 0.5, pixels[:, 1] - 0.5
    with np.errstate(invalid="ignore"):
        inside = (x >= 0) & (y >= 0) & (x <= width - 1) & (y <= height - 1)
    x, y = np.where(inside, x, 0), np.where(inside, y, 0)
    left, top = np.minimum(x.astype(np.int64), width - 2), np.minimum(y.astype(np.int64), height - 2)
    dx, dy, flat, at = x - left, y - top, picture.ravel(), top * width + left
    above = flat[at] * (1 - dx) + flat[at + 1] * dx
    below = flat[at + width] * (1 - dx) + flat[at + width + 1] * dx
    return np.where(inside, above * (1 - dy) + below * dy, np.nan)


def correlated(one: Floats, other: Floats) -> Floats:
    """Return the correlation of each square [n, s, s] with its counterpart, [n], -1 to 1.

    NaN where either has no contrast, or lies partly outside its picture.
    """
    a, b = one.reshape(len(one), -1), other.reshape(len(other), -1)
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    spreads = [np.sqrt((each**2).mean(axis=1)) for each in (a, b)]
    with np.errstate(all="ignore"):
        found = (a * b).mean(axis=1) / (spreads[0] * spreads[1])
        return np.where(np.minimum(*spreads) >= _LEAST_STD, found, np.nan)


def image_match(pair: ImagePair, one: MatchView, other: MatchView) -> Floats:
    """Return the correlation of a pair's squares where the model puts them, [n]: 1 alike, 0 unrelated.

    NaN where a square has no contrast, or lies partly outside a picture.
    """
    found = ncc_patches(pair, one, other)
    return correlated(found.seen(one, HALF), found.seen(other, HALF))


def shifts(pair: ImagePair, one: MatchView, other: MatchView) -> tuple[NccPatches, Floats, Floats]:
    """Return the squares of a pair, the correlation [n] at which each is found in the other picture, and its shift.

    Shifts [n, 2] are in steps of the square, to the right and down, to a fraction of a step. Both are NaN for squares
    that match best at the edge of the search (`REACH` steps away), have no contrast, or lie outside a picture.
    """
    found = ncc_patches(pair, one, other)
    small, large = found.seen(one, HALF), found.seen(other, HALF + REACH)
    small = small - small.mean(axis=(1, 2), keepdims=True)
    side, count = 2 * HALF + 1, 2 * REACH + 1
    windows = sliding_window_view(large, (side, side), axis=(1, 2))
    cross = np.einsum("nijab,nab->nij", windows, small) / side**2
    spread = np.sqrt(np.maximum(_means(large**2, side) - _means(large, side) ** 2, 0))
    own = np.sqrt((small**2).mean(axis=(1, 2)))[:, None, None]
    with np.errstate(all="ignore"):
        table = np.where((spread >= _LEAST_STD) & (own >= _LEAST_STD), cross / (spread * own), -2.0)
    table[~np.isfinite(table)] = -2.0
    n, best = np.arange(len(table)), table.reshape(len(table), -1).argmax(axis=1)
    i, j = best // count, best % count
    inner = (np.minimum(i, j) > 0) & (np.maximum(i, j) < count - 1) & (table[n, i, j] > -2)
    steps = np.stack([_summit(table, n, i, j, (0, 1)), _summit(table, n, i, j, (1, 0))], axis=1)
    return found, np.where(inner, table[n, i, j], np.nan), np.where(inner[:, None], steps, np.nan)


def _means(tables: Floats, side: int) -> Floats:
    """Return the mean of each window of side x side of tables [n, s, s]. Rows first: a quarter of the sums."""
    rows = sliding_window_view(tables, side, axis=2).mean(axis=3)
    return sliding_window_view(rows, side, axis=1).mean(axis=3)


def _summit(table: Floats, n: Ints, i: Ints, j: Ints, along: tuple[int, int]) -> Floats:
    """Return the offset of the peak from the middle on one axis, by a parabola through three values."""
    last = table.shape[1] - 1
    a, b, c = (
        table[n, np.clip(i + side * along[0], 0, last), np.clip(j + side * along[1], 0, last)] for side in (-1, 0, 1)
    )
    with np.errstate(all="ignore"):
        off = np.nan_to_num(0.5 * (a - c) / (a - 2 * b + c))
    return (i * along[0] + j * along[1]) - last / 2 + np.clip(off, -0.5, 0.5)


def sharpness(pair: ImagePair, one: MatchView, other: MatchView) -> float:
    """Return the fine detail of the first picture of a pair relative to the other, a median over the squares.

    Below 1 the first picture is blurrier; NaN if no square can be compared.
    """
    found = ncc_patches(pair, one, other)
    fine = []
    for view in (one, other):
        seen = found.seen(view, HALF)
        steps = (np.diff(seen, axis=1) ** 2).mean(axis=(1, 2)) + (np.diff(seen, axis=2) ** 2).mean(axis=(1, 2))
        spread = seen.var(axis=(1, 2))
        fine.append(np.where(spread >= _LEAST_STD**2, steps, np.nan) / np.where(spread > 0, spread, np.nan))
    with np.errstate(all="ignore"):
        known = finite(fine[0] / fine[1])
    return float(np.median(known)) if len(known) else float("nan")
