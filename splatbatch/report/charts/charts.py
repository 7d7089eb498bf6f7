"""Curves as SVG, drawn here; the page's script only reads values under the cursor and zooms."""

from __future__ import annotations

from splatbatch.report.charts.curves import Chart, Curve
from splatbatch.report.page.html import Html, join, tag
from splatbatch.report.units import figure

# px, of the drawing; it scales with the page
WIDTH, HEIGHT = 360, 156
LEFT, TOP, RIGHT, BOTTOM = 46, 24, 8, 20
INNER_WIDTH, INNER_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
FRACTIONS = (0.0, 0.25, 0.5, 0.75, 1.0)


def draw(chart: Chart) -> Html:
    """Return a chart; the curve of the latest attempt is drawn last and strongest."""
    xs = [x for curve in chart.curves for x, _ in curve.points]
    ys = [y for curve in chart.curves for _, y in curve.points]
    x1, (y0, y1) = max(*xs, 1e-9), _range(chart.unit, min(ys), max(ys))
    latest = chart.curves[-1]
    title = f"{chart.title}{f', {chart.unit}' if chart.unit else ''}"
    drawing = tag(
        "svg",
        tag("text", title, class_="title", x=LEFT, y=14),
        tag("text", figure(latest.points[-1][1]), class_="now", x=WIDTH - RIGHT, y=14),
        _frame(y0, y1, x1, chart.along),
        tag(
            "svg",
            *(_line(curve, y0, y1, is_latest=curve is latest) for curve in chart.curves),
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
        role="img",
        aria_label=f"{title} over {chart.along}, {figure(ys[0])} to {figure(latest.points[-1][1])}",
    )
    return tag("figure", drawing, class_="chart", data_along=chart.along, data_x1=f"{x1:.6g}")


def _frame(y0: float, y1: float, x1: float, along: str) -> Html:
    """Return grid lines and their labels; the script writes other labels when zoomed."""
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = TOP + INNER_HEIGHT * (1 - share)
        parts.append(tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y))
        parts.append(tag("text", figure(y0 + share * (y1 - y0), 3), class_="tick y", x=LEFT - 5, y=y + 3.5))
    for share in FRACTIONS:
        label = axis_label(share * x1, x1, along)
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        place = {"x": LEFT + share * INNER_WIDTH, "y": HEIGHT - 6}
        parts.append(tag("text", label, class_="tick x", text_anchor=anchor, data_share=share, **place))
    return join(parts)


def axis_label(value: float, span: float, along: str) -> str:
    """Return a label of the x axis: steps, or time as fits the span."""
    if along == "step":
        return f"{value:.0f}"
    # the same in page.js
    if span < 120:
        return f"{round(value, 1 if span < 8 else 0):g} s"
    return f"{round(value / 60, 1 if span < 480 else 0):g} min" if span < 7200 else f"{round(value / 3600, 1):g} h"


def _line(curve: Curve, y0: float, y1: float, *, is_latest: bool) -> Html:
    points = " ".join(f"{x:.6g},{100 * (y1 - y) / (y1 - y0):.2f}" for x, y in curve.points)
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
