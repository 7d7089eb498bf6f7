"""Curves as SVG, drawn here; the page's script only reads values under the cursor and zooms."""

from __future__ import annotations

import math
from dataclasses import dataclass

from splatbatch.report.charts.curves import Chart, Curve
from splatbatch.report.charts.ticks import log_ticks, round_ticks, time_ticks
from splatbatch.report.page.html import Html, join, tag
from splatbatch.report.units import figure

# px, of the drawing; it scales with the page
WIDTH, HEIGHT = 360, 156
LEFT, TOP, RIGHT, BOTTOM = 46, 24, 8, 20
INNER_WIDTH, INNER_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM


def draw(chart: Chart) -> Html:
    """Return a chart; the curve of the latest attempt is drawn last and strongest. Arrow keys move its cursor."""
    ys = [y for curve in chart.curves for _, y in curve.points]
    x1 = max(*(x for curve in chart.curves for x, _ in curve.points), 1e-9)
    is_log = chart.is_log and min(ys) > 0
    axis = _Axis(*_range(chart.unit, min(ys), max(ys)), is_log)
    latest = chart.curves[-1]
    title = f"{chart.title}{f', {chart.unit}' if chart.unit else ''}{', logarithmic' if is_log else ''}"
    drawing = tag(
        "svg",
        tag("text", title, class_="title", x=LEFT, y=14),
        tag("text", figure(latest.points[-1][1]), class_="now", x=WIDTH - RIGHT, y=14),
        _frame(axis, x1, chart.along),
        tag(
            "svg",
            *(_line(curve, axis, is_latest=curve is latest) for curve in chart.curves),
            tag("line", class_="cursor", y1=-3, y2=103),
            x=LEFT,
            y=TOP - 0.03 * INNER_HEIGHT,  # room above and below for half their stroke
            width=INNER_WIDTH,
            height=1.06 * INNER_HEIGHT,
            class_="plot",
            viewBox=f"0 -3 {x1:.6g} 106",
            preserveAspectRatio="none",
        ),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        aria_hidden="true",
    )
    words = f"{title} over {'steps' if chart.along == 'step' else 'time'}, {figure(latest.points[0][1])} to "
    words += f"{figure(latest.points[-1][1])}; arrow keys read it"
    return tag(
        "figure",
        drawing,
        class_="chart",
        tabindex=0,
        role="img",
        aria_label=words,
        data_along=chart.along,
        data_x1=f"{x1:.6g}",
    )


@dataclass(frozen=True)
class _Axis:
    """The y axis: from `low` at the bottom to `high` at the top."""

    low: float
    high: float
    is_log: bool

    def share(self, value: float) -> float:
        """Return how far up a value lies, of 1."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        return log_ticks(self.low, self.high) if self.is_log else round_ticks(self.low, self.high, 4)


def _frame(axis: _Axis, x1: float, along: str) -> Html:
    """Return grid lines and their labels; the script writes others when zoomed."""
    parts = []
    ticks = axis.ticks()
    digits = next((most for most in range(3, 8) if len({figure(one, most) for one in ticks}) == len(ticks)), 8)
    for value in ticks:
        y = round(TOP + INNER_HEIGHT * (1 - axis.share(value)), 1)
        parts.append(tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y))
        parts.append(tag("text", figure(value, digits), class_="tick y", x=LEFT - 5, y=y + 3.5))
    parts.append(tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM))
    return join(
        [*parts, x_ticks(x1, along), tag("text", along_in_words(along), class_="axis", x=LEFT - 5, y=HEIGHT - 6)]
    )


def x_ticks(x1: float, along: str) -> Html:
    """Return the labels of the x axis at round places."""
    values = round_ticks(0, x1) if along == "step" else time_ticks(0, x1)
    labels = []
    for value in values:
        share = value / x1
        anchor = "start" if share < 0.02 else "end" if share > 0.94 else "middle"
        label = axis_label(value, x1, along)
        x = round(LEFT + share * INNER_WIDTH, 1)
        labels.append(tag("text", label, class_="tick x", text_anchor=anchor, x=x, y=HEIGHT - 6))
    return tag("g", *labels, class_="x-ticks", data_left=LEFT, data_width=INNER_WIDTH, data_y=HEIGHT - 6)


def along_in_words(along: str) -> str:
    """Return what the x axis is of."""
    return "step" if along == "step" else "time"


def axis_label(value: float, span: float, along: str) -> str:
    """Return a label of the x axis: steps, or time as fits the span."""
    # the same in page.js
    if along == "step":
        return f"{value:.0f}" if value < 1e3 or span < 5e3 else f"{value / 1e3:g}k"
    if span < 120:
        return f"{round(value, 1 if span < 8 else 0):g} s"
    return f"{round(value / 60, 1 if span < 480 else 0):g} min" if span < 7200 else f"{round(value / 3600, 1):g} h"


def _line(curve: Curve, axis: _Axis, *, is_latest: bool) -> Html:
    points = " ".join(f"{x:.6g},{100 * (1 - axis.share(y)):.2f}" for x, y in curve.points)
    values = " ".join(f"{y:.4g}" if abs(y) < 1e4 else f"{y:.0f}" for _, y in curve.points) if is_latest else None
    kind = "latest" if is_latest else "earlier"
    title = tag("title", f"attempt {curve.attempt}")
    return tag("polyline", title, class_=kind, points=points, data_values=values, vector_effect="non-scaling-stroke")


def _range(unit: str, low: float, high: float) -> tuple[float, float]:
    """Return the range of the y axis; shares and memory start at zero, a constant gets room on both sides."""
    if unit == "%":
        return 0.0, 100.0
    if unit == "MiB":
        return 0.0, max(high, 1.0)
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    margin = abs(low) / 10 or 1.0
    return low - margin, high + margin
