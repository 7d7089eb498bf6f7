"""The map in the corner of the page: patches by name, as SVG; a north arrow and a scale bar where these are known."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from splatbatch.report.page.html import Html, tag
from splatbatch.scene.colmap.types import Floats

SIZE, MARGIN = 200.0, 8.0
NICE = (1, 2, 5, 10)
LEAST_LABEL = 26.0
"""Of a box's width: what is narrower says its name under the cursor."""


def draw_plan(boxes: Mapping[str, Floats], metres_per_unit: float | None) -> Html:
    """Return the map of patches, each a box [2, 2]; with metres for a unit it has an arrow to the north and a scale.

    The script moves its marker `.here`, by the attributes: units of the scene at the left and at the bottom, and the
    size of a unit.
    """
    corners = np.concatenate([*boxes.values()])
    low, high = corners.min(axis=0), corners.max(axis=0)
    unit = (SIZE - 2 * MARGIN) / max(float((high - low).max()), 1e-12)
    width, height = (2 * MARGIN + unit * (high - low)).tolist()
    corner = np.array([low[0], high[1]])
    on_sheet = {name: MARGIN + unit * np.abs(np.array([box[0, 0], box[1, 1]]) - corner) for name, box in boxes.items()}
    patches = [
        _patch(name, index, on_sheet[name], unit * (box[1] - box[0])) for index, (name, box) in enumerate(boxes.items())
    ]
    here = tag("path", class_="here", d="M0 -7L4.5 5L0 2L-4.5 5Z")
    foot = 24.0 if metres_per_unit else 0.0
    known = [_scale_bar(unit / metres_per_unit, width, height), _north(width)] if metres_per_unit else []
    return tag(
        "svg",
        *patches,
        here,
        *known,
        id="plan",
        viewBox=f"0 0 {width:.1f} {height + foot:.1f}",
        role="group",
        aria_label="Map of the patches",
        data_left=f"{float(low[0]) - MARGIN / unit:.9g}",
        data_top=f"{float(high[1]) + MARGIN / unit:.9g}",
        data_unit=f"{unit:.9g}",
    )


def _patch(name: str, index: int, at_px: Floats, size_px: Floats) -> Html:
    (x, y), (wide, tall) = at_px.tolist(), size_px.tolist()
    rect = tag("rect", x=round(x, 1), y=round(y, 1), width=round(wide, 1), height=round(tall, 1))
    at = {"x": round(x + wide / 2, 1), "y": round(y + tall / 2 + 4, 1)}
    label = tag("text", name, text_anchor="middle", **at) if wide >= LEAST_LABEL else Html("")
    return tag("g", tag("title", name), rect, label, class_="patch", role="button", tabindex="0", data_patch=str(index))


def _scale_bar(px_per_metre: float, width: float, height: float) -> Html:
    """Return a bar of a round number of metres, at most half of the map long."""
    longest = width / 2 / px_per_metre
    power = 10.0 ** math.floor(math.log10(longest))
    metres = max(step * power for step in NICE if step * power <= longest)
    length, y = metres * px_per_metre, height + 8
    line = tag("path", d=f"M{MARGIN} {y - 4:.1f}v4h{length:.1f}v-4")
    words = f"{metres / 1000:g} km" if metres >= 1000 else f"{metres:g} m"
    return tag("g", line, tag("text", words, x=round(MARGIN + length + 5, 1), y=round(y + 2, 1)), class_="scale")


def _north(width: float) -> Html:
    x = width - MARGIN - 8
    return tag("g", tag("path", d=f"M{x:.1f} 34V12m-5 8l5 -9l5 9"), tag("text", "N", x=x - 4, y=46), class_="north")
