"""Maps of the scene from above: patches by state and PSNR, seams by grade, cameras by error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from splatbatch.output.records.metrics import deciding
from splatbatch.reconstruction.facts import ReconstructionRecord, RegisteredImage
from splatbatch.report.facts import CameraPosition, ReportedPatch, ReportedSeam, SceneMap
from splatbatch.scene.colmap.types import Floats
from splatbatch.text import plural

WIDTH_PX = 600
MOST_HEIGHT_PX, LEAST_HEIGHT_PX = 460, 120
MARGIN_PX = 14
FAINTEST, STRONGEST = 0.10, 0.42
"""Opacity, 0 to 1, of patches without a PSNR and with the highest PSNR on a map; text on them stays legible."""
LEAST_RANGE_DB = 3.0
"""Least range of PSNR in dB that the scale of opacity covers, so that similar patches look similar."""
TINY = 1e-30
MOST_DOTS = 1500
"""Most dots of held-out cameras on the map of a scene, and of cameras in a drawing of an inspection."""
MOST_CAMERAS = 4000
"""Most cameras on a map of a reconstruction; of more, every n-th is drawn."""
COLORS = ("#2c7bb6", "#5aa3c4", "#c9b25b", "#e0823d", "#d7191c")
"""Colours of cameras on a map of a reconstruction: a fifth of them each, from the smallest errors to the largest."""
Point = tuple[float, float]
Dot = tuple[float, float, float, str, Mapping[str, str]]
"""A dot of a drawing: x and y of its middle and its radius, all in pixels, then tooltip and further SVG attributes."""


class Area(NamedTuple):
    """A patch on the map: a rectangle with upper left corner x0, y0 and lower right corner x1, y1, in pixels.

    `place` is the name of the patch without variant; `opacity` is 0 to 1, the higher the better the PSNR.
    """

    place: str
    state: str
    said: str
    """Text on the rectangle below the name: PSNR in dB, or the state where PSNR is unknown."""
    words: str
    """Text of the tooltip: name of the task, state, and PSNR if known."""
    link: str
    """Id of the patch's section in the page; empty: the page has no section for it."""
    x0: float
    y0: float
    x1: float
    y1: float
    opacity: float


@dataclass(frozen=True)
class Drawing:
    """A map or chart to draw as SVG, in pixels, with the origin at the top left."""

    width: float
    height: float
    words: str
    """Description of the drawing in words, for people who cannot see it."""
    dots: tuple[Dot, ...] = ()
    axis: str = ""
    """SVG path of the axes; empty: the drawing has no axes."""
    areas: tuple[Area, ...] = ()
    cameras: tuple[Point, ...] = ()
    """Positions of cameras that are trained on, in pixels."""
    seams: tuple[tuple[ReportedSeam, Point, Point], ...] = ()
    """Seams with both ends in pixels; horizontal seams, which lie above each other, are left out."""
    grades: frozenset[str] = frozenset()
    """Grades that occur among all seams, for the legend; empty: there are no seams."""


def draw_map(scene: SceneMap | None, patches: Sequence[ReportedPatch], links: Mapping[str, str]) -> Drawing | None:
    """Return the map of a scene, WIDTH_PX wide, as a drawing; None if there is no scene or it has no cores.

    Cameras far outside the cores are drawn at the edge of the map.

    Args:
        scene: cores, cameras and seams; None: there is no map.
        patches: patches of the report, for state and PSNR; of a sweep the variant with the best PSNR is shown.
        links: id of each patch's section in the page; a patch without one has no link.
    """
    if not scene or not scene.cores:
        return None
    low, high = _extent(scene)
    span = [max(end - start, TINY) for start, end in zip(low, high, strict=True)]
    px = _pixels_per_unit(span)
    height = max(LEAST_HEIGHT_PX, 2 * MARGIN_PX + px * (high[1] - low[1]))
    left = (WIDTH_PX - px * (high[0] - low[0])) / 2

    def place(at: Sequence[float]) -> Point:
        x, y = left + px * (at[0] - low[0]), height - MARGIN_PX - px * (at[1] - low[1])
        return round(min(max(x, 3.0), WIDTH_PX - 3.0), 1), round(min(max(y, 3.0), height - 3.0), 1)

    by_place = _of_places(patches)
    shades = _shades([deciding(one) for one in by_place.values()])
    held_out = [one for one in scene.cameras if one.name]
    chosen = held_out[:: max(1, math.ceil(len(held_out) / MOST_DOTS))]
    of_dots = _shades([one.psnr for one in chosen])
    return Drawing(
        WIDTH_PX,
        height,
        f"{plural(len(scene.cores), 'patch', 'es')} from above, {plural(len(scene.seams), 'seam')}",
        dots=tuple(_ring(one, place(one.at), of_dots) for one in chosen),
        areas=tuple(
            _area(one.patch, by_place.get(one.patch), links, (place(one.lower), place(one.upper)), shades)
            for one in scene.cores
        ),
        cameras=tuple(place(one.at) for one in scene.cameras if not one.name),
        seams=tuple((one, place(one.line[0]), place(one.line[1])) for one in scene.seams if one.line),
        grades=frozenset(one.grade for one in scene.seams),
    )


def _pixels_per_unit(span: Sequence[float] | Floats) -> float:
    """Return the pixels per unit for a scene with these two side lengths, so that it fits the drawing."""
    return float(min((WIDTH_PX - 2 * MARGIN_PX) / span[0], (MOST_HEIGHT_PX - 2 * MARGIN_PX) / span[1]))


def _extent(scene: SceneMap) -> tuple[list[float], list[float]]:
    """Return the corners of the map: all cores, extended to cameras by at most half their extent on each side."""
    lower, upper = [core.lower for core in scene.cores], [core.upper for core in scene.cores]
    low, high = ([pick(one[axis] for one in ends) for axis in range(2)] for pick, ends in ((min, lower), (max, upper)))
    for axis in range(2):
        room = (high[axis] - low[axis]) / 2
        seen = [one.at[axis] for one in scene.cameras]
        low[axis] = max(low[axis] - room, min([low[axis], *seen]))
        high[axis] = min(high[axis] + room, max([high[axis], *seen]))
    return low, high


def _of_places(patches: Sequence[ReportedPatch]) -> dict[str, ReportedPatch]:
    """Return the patch to show for each name; in a sweep the variant with the best PSNR, or the first without any."""
    found: dict[str, ReportedPatch] = {}
    for patch in patches:
        place = patch.of_patch or patch.patch
        if place not in found or (deciding(patch) or 0.0) > (deciding(found[place]) or 0.0):
            found[place] = patch
    return found


def _shades(psnrs: Sequence[float | None]) -> tuple[float, float]:
    known = [psnr for psnr in psnrs if psnr is not None]
    return (min(*known, max(known) - LEAST_RANGE_DB), max(known)) if known else (0.0, 0.0)


def _area(
    place: str,
    patch: ReportedPatch | None,
    links: Mapping[str, str],
    box: tuple[Point, Point],
    shades: tuple[float, float],
) -> Area:
    name, state = (patch.patch, patch.state) if patch else (place, "waiting")
    psnr = deciding(patch) if patch else None
    (x0, y1), (x1, y0) = box
    said = f"{psnr:.2f} dB" if psnr is not None else state
    words = f"{name}: {state}{f', {said}' if psnr is not None else ''}"
    return Area(place, state, said, words, links.get(name, ""), x0, y0, x1, y1, _opacity(psnr, shades))


def _opacity(psnr: float | None, shades: tuple[float, float]) -> float:
    low, high = shades
    if psnr is None:
        return FAINTEST
    share = (psnr - low) / (high - low) if high > low else 1.0
    return round(FAINTEST + share * (STRONGEST - FAINTEST), 3)


def _ring(camera: CameraPosition, at: Point, shades: tuple[float, float]) -> Dot:
    """Return the dot of a held-out camera; its radius grows as its PSNR falls."""
    (low, high), psnr = shades, camera.psnr
    radius = 3.5 if psnr is None or high <= low else round(3 + 4 * (high - psnr) / (high - low), 1)
    return *at, radius, f"{camera.name}, held out" + (f": PSNR {psnr:.2f} dB" if psnr is not None else ""), {}


def camera_map(told: ReconstructionRecord) -> Drawing | None:
    """Return a map of a reconstruction's cameras, WIDTH_PX wide; None for fewer than two cameras.

    Cameras are seen from above if the model is georeferenced, otherwise in the plane that fits them best. Colour shows
    the distance from GPS in m, or where that is unknown the reprojection error in px.
    """
    cameras = told.placed[:: max(1, -(-len(told.placed) // MOST_CAMERAS))]
    if len(cameras) < 2:
        return None
    places = np.array([one.at for one in cameras])
    if told.gps is None:
        centered = places - places.mean(axis=0)
        places = centered @ np.linalg.svd(centered, full_matrices=False)[2].T
    flat = places[:, :2]
    low, span = flat.min(axis=0), np.maximum(np.ptp(flat, axis=0), 1e-9)
    px = _pixels_per_unit(span)
    height = max(LEAST_HEIGHT_PX, 2 * MARGIN_PX + px * span[1])
    values = [(one.error_px if one.gps_m is None else one.gps_m) or 0.0 for one in cameras]
    limits = np.quantile(values, [0.2, 0.4, 0.6, 0.8])
    fifths = np.searchsorted(limits, values, side="right") if limits[-1] > limits[0] else np.zeros(len(values), int)
    places = np.column_stack([MARGIN_PX + px * (flat[:, 0] - low[0]), height - MARGIN_PX - px * (flat[:, 1] - low[1])])
    dots: list[Dot] = [
        (float(x), float(y), 4, f"{one.name}: {_in_words(one)}", {"fill": COLORS[fifth]})
        for one, (x, y), fifth in zip(cameras, places, fifths, strict=True)
    ]
    label = f"{plural(len(told.placed), 'camera')} from above"
    what = "distance from the GPS position, m" if told.gps else "reprojection error, px"
    words = (
        f"{label}; a fifth of them in each colour, blue to red by {what}, with limits at "
        f"{', '.join(f'{limit:.2g}' for limit in limits)}. Point at a dot for the name of its photograph."
    )
    return Drawing(WIDTH_PX, height, words, tuple(dots))


def _in_words(one: RegisteredImage) -> str:
    gps = "" if one.gps_m is None else f"{one.gps_m:g} m from GPS, "
    return f"{gps}{one.error_px or 0:g} px reprojection error"
