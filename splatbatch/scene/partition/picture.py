"""Draws the plan of a split from above, as SVG: cores, overlaps, points, cameras and costs of the patches."""

from __future__ import annotations

import colorsys
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from splatbatch.files import write_text
from splatbatch.scene.colmap.types import Floats, finite
from splatbatch.scene.partition.boxes import Box
from splatbatch.scene.partition.plan import PartitionPlan
from splatbatch.text import plural

WIDTH_PX, MOST_HEIGHT_PX, EDGE_PX, HEAD_PX = 1400, 2400, 40, 80
POINTS_DRAWN, POINTS_ASKED = 6000, 200_000
TAILS = (0.5, 99.5)
GOLDEN = 0.618034
"""Turn of the colour wheel from patch to patch, a share of a full turn: successive patches get unlike colours."""
INK, FAINT = (40, 40, 40), (190, 190, 190)


@dataclass(frozen=True)
class _Sheet:
    """Map from the scene to the pixels of the picture."""

    low: Floats  # [2]
    high: Floats  # [2]
    scale: float
    """Pixels per unit of the model."""

    @property
    def size(self) -> tuple[int, int]:
        wide, high = np.ceil((self.high - self.low) * self.scale).astype(int)
        return int(wide) + 2 * EDGE_PX, int(high) + 2 * EDGE_PX + HEAD_PX

    def at(self, places: Floats) -> Floats:
        """Return the pixels [N, 2] of places [N, 2]; the second axis points upwards."""
        away = np.clip(places, self.low - 1e6 / self.scale, self.high + 1e6 / self.scale) - self.low
        pixels = np.stack([away[:, 0], (self.high - self.low)[1] - away[:, 1]], axis=1) * self.scale
        return np.round(pixels + np.array([EDGE_PX, EDGE_PX + HEAD_PX]), 1)

    def box(self, box: Box) -> tuple[float, float, float, float]:
        """Return left, top, right and bottom of a box in pixels."""
        (left, bottom), (right, top) = self.at(np.array([box.lower[:2], box.upper[:2]])).tolist()
        return left, top, right, bottom


def draw(plan: PartitionPlan, path: Path) -> None:
    """Write the picture of a planned split.

    Args:
        plan: the plan.
        path: SVG file to write, whole or not at all; an older file is replaced.

    Raises:
        OSError: the file cannot be written.
    """
    from jinja2 import Environment, PackageLoader

    filled = Environment(loader=PackageLoader(__package__ or ""), autoescape=True, trim_blocks=True)
    template = filled.get_template("partition.svg.j2")
    write_text(path, template.render(_shapes(plan), ink=INK, faint=FAINT) + "\n")


def _shapes(plan: PartitionPlan) -> dict[str, object]:
    """Return the variables of the SVG template, in pixels.

    Boxes have a colour and whether they are dashed; cameras a colour and whether they are held out. Words have the
    height of their letters; the bar is given by left, y and right.
    """
    partition, some = plan.partition, plan.observations.some(POINTS_ASKED)
    places = partition.in_axes(some.points.xyz)
    sound = np.isfinite(places).all(axis=1)
    cameras = partition.in_axes(plan.observations.centers())[:, :2]
    corners = np.array([corner[:2] for core in partition.cores for corner in (core.bounds.lower, core.bounds.upper)])
    posed = finite(cameras)
    drawn = np.concatenate([corners, np.percentile(posed, TAILS, axis=0)]) if len(posed) else corners
    low, high = drawn.min(axis=0), drawn.max(axis=0)
    wide, tall = np.maximum(high - low, 1e-12).tolist()
    scale = min((WIDTH_PX - 2 * EDGE_PX) / wide, (MOST_HEIGHT_PX - 2 * EDGE_PX - HEAD_PX) / tall)
    sheet = _Sheet(low, high, scale)
    colors = []
    for index in range(len(partition.cores)):
        red, green, blue = colorsys.hls_to_rgb((index * GOLDEN) % 1, 0.42, 0.6)
        colors.append((round(red * 255), round(green * 255), round(blue * 255)))
    step = max(1, int(sound.sum()) // POINTS_DRAWN)
    boxes = []
    for core, color in zip(partition.cores, colors, strict=True):
        # a grown core without an end is clipped to the edge of the picture
        edge = Box((*sheet.low.tolist(), core.bounds.lower[2]), (*sheet.high.tolist(), core.bounds.upper[2]))
        boxes.append((sheet.box(core.grown.clipped(edge)), color, True))
        boxes.append((sheet.box(core.bounds), color, False))
    held = partition.test | partition.contiguous
    shares = some.shares(partition.owner(places), len(partition.cores))
    dots = [
        (x, y, colors[int(share.argmax())] if share.any() else FAINT, image.name in held)
        for (x, y), share, image in zip(sheet.at(cameras).tolist(), shares.T, some.images, strict=True)
        if math.isfinite(x) and math.isfinite(y)
    ]
    return {
        "size": sheet.size,
        "points": sheet.at(places[sound][::step, :2]).tolist(),
        "boxes": boxes,
        "cameras": dots,
        "words": _words(plan, sheet),
        "bar": _bar(sheet),
    }


LETTER = 0.55
"""Width of a letter as a share of its height, by which texts too wide for their box are left out."""


def _words(plan: PartitionPlan, sheet: _Sheet) -> list[tuple[float, float, int, str]]:
    partition = plan.partition
    total = sum(core.cost for core in partition.cores)
    patches = plural(len(partition.cores), "patch", "es")
    words: list[tuple[float, float, int, str]] = [
        (EDGE_PX, 34.0, 20, f"{patches}, {plural(len(plan.observations.images), 'photograph')}"),
        (EDGE_PX, 60.0, 14, "solid: cores; dashed: cores with overlap; rings: held-out photographs; seen from above"),
    ]
    for core in partition.cores:
        left, top, right, bottom = sheet.box(core.bounds)
        about = f"{plural(core.num_images, 'photograph')}, {plural(core.num_core_points, 'point')}"
        share = f"{core.cost / total:.0%} of the cost" if total else ""
        for below, height, text in ((24, 18, core.name), (42, 12, about), (58, 12, share)):
            if LETTER * height * len(text) <= right - left - 12 and below + 4 <= bottom - top:  # else the table says it
                words.append((left + 8, top + below, height, text))
    left, y, right = _bar(sheet)
    return [*words, (right + 8, y + 4, 12, f"{float(f'{(right - left) / sheet.scale:.1g}'):g} units")]


def _bar(sheet: _Sheet) -> tuple[float, float, float]:
    longest = (sheet.size[0] - 2 * EDGE_PX) / 5 / sheet.scale
    power = 10.0 ** math.floor(math.log10(longest))
    length = next(step * power for step in (5, 2, 1) if step * power <= longest)
    y = sheet.size[1] - EDGE_PX / 2
    return EDGE_PX, y, round(EDGE_PX + length * sheet.scale, 1)
