"""A figure against a setting, one line per combination of the other settings; as SVG, drawn here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from splatbatch.report.comparison import spelt
from splatbatch.report.facts import Sweep, VariantRow
from splatbatch.report.page.html import Html, tag
from splatbatch.report.units import figure

FIGURES = {"psnr": "hold-out PSNR, dB", "num_gaussians": "Gaussians", "seconds": "time, s"}
WIDTH, HEIGHT = 360, 176
LEFT, TOP, RIGHT, BOTTOM = 46, 26, 14, 24
INNER_WIDTH, INNER_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
MARGIN = 0.08
"""Share of the height left free above and below the values."""
COLOURS = 6
LONGEST_LABEL = 14


@dataclass(frozen=True)
class Line:
    """The variants that differ in one setting only."""

    others: str
    """What they have in common, in words; empty if nothing else is compared."""
    points: tuple[tuple[str, float, str], ...]
    """Value of the setting, figure, name of the variant."""


def setting_charts(sweep: Sweep) -> Iterator[tuple[str, list[Html]]]:
    """Yield every setting with at least two values, with a chart per figure that is known."""
    rows = [row for row in sweep.variants if row.is_comparable]
    for key in sweep.settings:
        known = list(dict.fromkeys(row.settings[key] for row in rows))
        if all(isinstance(value, int | float) for value in known):
            known.sort()  # the rest stand as they came
        values = [spelt(value) for value in known]
        if len(values) < 2:
            continue
        drawn = [_chart(title, values, lines) for name, title in FIGURES.items() if (lines := _lines(rows, key, name))]
        if drawn:
            yield key, drawn


def _lines(rows: Sequence[VariantRow], key: str, name: str) -> list[Line]:
    lines: dict[str, list[tuple[str, float, str]]] = {}
    for row in rows:
        others = ", ".join(f"{other}={spelt(value)}" for other, value in row.settings.items() if other != key)
        if (mean := row.mean.of(name)) is not None:
            lines.setdefault(others, []).append((spelt(row.settings[key]), mean, row.variant))
    return [Line(others, tuple(points)) for others, points in lines.items()]


def _chart(title: str, values: Sequence[str], lines: Sequence[Line]) -> Html:
    figures = [value for line in lines for _, value, _ in line.points]
    low, high = min(figures), max(figures)
    drawn = [_draw(line, values, (low, high), f"s{number % COLOURS}") for number, line in enumerate(lines)]
    words = tag("text", title, class_="title", x=LEFT, y=14)
    label = f"{title} for {', '.join(values)}: {figure(low)} to {figure(high)}"
    box = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "aria_label": label}
    svg = tag("svg", words, *_frame(values, low, high), *drawn, **box)
    legend = [tag("li", line.others, class_=f"s{number % COLOURS}") for number, line in enumerate(lines) if line.others]
    return tag("figure", svg, tag("ul", *legend, class_="legend") if legend else "", class_="against")


def _frame(values: Sequence[str], low: float, high: float) -> Iterator[Html]:
    for value in (low, high):
        y = _y(value, low, high)
        yield tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)
        yield tag("text", figure(value), class_="tick y", x=LEFT - 5, y=y + 3.5)
    for index, name in enumerate(values):
        label = name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"
        yield tag("text", label, class_="tick x", text_anchor="middle", x=f"{_x(index, len(values)):.1f}", y=HEIGHT - 6)


def _draw(line: Line, values: Sequence[str], span: tuple[float, float], colour: str) -> Html:
    placed = sorted((values.index(value), number, name) for value, number, name in line.points)
    places = [(_x(index, len(values)), _y(number, *span)) for index, number, _ in placed]
    path = tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places))
    dots = [
        tag("circle", tag("title", f"{name}: {figure(number)}"), cx=f"{x:.1f}", cy=f"{y:.1f}", r=3.5)
        for (x, y), (_, number, name) in zip(places, placed, strict=True)
    ]
    return tag("g", path, *dots, class_=colour)


def _x(index: int, count: int) -> float:
    """Return where a value lies: all at the same distance, as they are settings and no measurements."""
    return LEFT + INNER_WIDTH * (index + 0.5) / count


def _y(value: float, low: float, high: float) -> float:
    share = (value - low) / (high - low) if high > low else 0.5
    return round(TOP + INNER_HEIGHT * (1 - MARGIN - (1 - 2 * MARGIN) * share), 1)
