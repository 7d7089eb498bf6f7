"""What came of photographs, on the page: in words, and the cameras from above, coloured by what speaks against them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from splatbatch.reconstruction.facts import ReconstructionRecord, RegisteredImage
from splatbatch.report.page.html import Html, join, rows_of, table, tag
from splatbatch.report.page.scene_section import LEAST_HEIGHT_PX, MARGIN_PX, MOST_HEIGHT_PX, WIDTH_PX
from splatbatch.text import plural

MOST_DOTS = 4000
MOST_MISSING = 200
COLORS = ("#2c7bb6", "#5aa3c4", "#c9b25b", "#e0823d", "#d7191c")
"""From the fifth that fits best to the fifth that fits worst."""


def reconstruction_section(told: ReconstructionRecord | None) -> Html:
    """Return the section; nothing of a batch that reconstructs nothing."""
    if told is None:
        return join(())
    lines = [tag("p", line) for line in told.in_words()]
    return join([*lines, *camera_map(told), *_missing(told)])


def camera_map(told: ReconstructionRecord) -> Iterator[Html]:
    """Yield the map: from above where GPS tells what that is, else in the plane in which the cameras lie."""
    cameras = told.placed[:: max(1, -(-len(told.placed) // MOST_DOTS))]
    if len(cameras) < 2:
        return
    places = np.array([one.at for one in cameras])
    if told.gps is None:
        centered = places - places.mean(axis=0)
        places = centered @ np.linalg.svd(centered, full_matrices=False)[2].T
    flat = places[:, :2]
    low, span = flat.min(axis=0), np.maximum(np.ptp(flat, axis=0), 1e-9)
    px = min((WIDTH_PX - 2 * MARGIN_PX) / span[0], (MOST_HEIGHT_PX - 2 * MARGIN_PX) / span[1])
    height = max(LEAST_HEIGHT_PX, 2 * MARGIN_PX + px * span[1])
    values = [_residual(one) for one in cameras]
    limits = np.quantile(values, [0.2, 0.4, 0.6, 0.8])
    dots = []
    for one, value, place in zip(cameras, values, flat, strict=True):
        x, y = MARGIN_PX + px * (place[0] - low[0]), height - MARGIN_PX - px * (place[1] - low[1])
        color = COLORS[int(np.searchsorted(limits, value, side="right"))] if limits[-1] > limits[0] else COLORS[0]
        title = tag("title", f"{one.name}: {_in_words(one)}")
        dots.append(tag("circle", title, cx=f"{x:.1f}", cy=f"{y:.1f}", r="4", fill=color))
    label = f"{plural(len(told.placed), 'camera')} from above"
    drawing = tag("svg", *dots, viewBox=f"0 0 {WIDTH_PX:g} {height:.1f}", role="img", aria_label=label)
    unit = "m from GPS" if told.gps else "px of reprojection"
    steps = ", ".join(f"{limit:.2g}" for limit in limits)
    legend = f"{label}; blue to red: {unit}, in fifths at {steps}. The name stands under the cursor."
    yield tag("figure", drawing, tag("figcaption", legend), class_="map")


def _residual(one: RegisteredImage) -> float:
    return (one.error_px if one.gps_m is None else one.gps_m) or 0.0


def _in_words(one: RegisteredImage) -> str:
    gps = "" if one.gps_m is None else f"{one.gps_m:g} m from GPS, "
    return f"{gps}{one.error_px or 0:g} px"


def _missing(told: ReconstructionRecord) -> Iterator[Html]:
    if told.missing:
        rows = rows_of([*told.missing.items()][:MOST_MISSING])
        yield table(("photograph", "why it did not register"), rows, ("photograph", "why it did not register"))
