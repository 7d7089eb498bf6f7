"""Observations of a flat field from the air, made up: what gains and light are is known, and no file is written."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from splatbatch.scene.colors.solve import ColorObservations

HALF_TAN = (0.6, 0.45)
"""Of a photograph: tangents of half its angles of view."""
UNIT = float(np.hypot(*HALF_TAN))


@dataclass(frozen=True)
class Flight:
    """Photographs straight down in strips that are flown to and fro, all at height 1."""

    strips: int = 5
    length: int = 8
    spacing: float = 0.3
    seed: int = 0

    def centers(self) -> np.ndarray:  # [N, 2]
        places = np.mgrid[: self.length, : self.strips].reshape(2, -1).T
        return places * self.spacing

    def seen(self, gains: np.ndarray, sun: tuple[float, float] = (0.0, 0.0), noise: float = 0.02) -> ColorObservations:
        """Return what is seen with gains [N], logarithms, in light that rises by `sun` per unit of height."""
        random, centers = np.random.default_rng(self.seed), self.centers()
        low, high = centers.min(axis=0) - 0.4, centers.max(axis=0) + 0.4
        points, colors = random.uniform(low, high, (4000, 2)), random.normal(-1, 0.3, 4000)
        headings = np.where(np.arange(len(centers)) % self.strips % 2, -1.0, 1.0)
        axes = np.tile([0.0, 0.0, -1.0], (len(centers), 1))
        turns = np.array([[1.0, 0, 0], [0, -1, 0]])  # x to the right, y down, as one looks down with north up
        slopes = UNIT * headings[:, None, None] * turns
        rows = []
        for number, center in enumerate(centers):
            way = (points - center) * headings[number] * [1, -1]
            inside = np.flatnonzero((np.abs(way) < HALF_TAN).all(axis=1))
            light = (points[inside] - center) @ np.array(sun)
            logs = colors[inside] + gains[number] + light + random.normal(0, noise, len(inside))
            rows.append((np.full(len(inside), number), inside, logs, way[inside] / UNIT))
        photo, point, color, place = (np.concatenate(column) for column in zip(*rows, strict=True))
        nothing = np.full(len(centers), np.nan)
        color3 = np.repeat(color[:, None], 3, axis=1)
        lenses = np.zeros(len(centers), np.int64)
        return ColorObservations(photo, point, color3, place, (place**2).sum(axis=1), lenses, axes, slopes, nothing)


def exposed(seen: ColorObservations, exposures: np.ndarray) -> ColorObservations:
    """Return observations whose photographs tell their exposures [N], logarithms."""
    return replace(seen, exposures=exposures)
