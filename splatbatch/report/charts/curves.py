"""Curves as SVG, drawn here: what is worth drawing of attempts; the page's script reads values and zooms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.attempt import GpuSample, ProgressLine
from splatbatch.output.records.metrics import Metrics
from splatbatch.report.page.html import Html, join, tag
from splatbatch.report.units import figure

MOST_POINTS = 160
MOST_ATTEMPTS = 4
TRAINING = (
    ("loss", "loss", ""),
    ("psnr", "hold-out PSNR", "dB"),
    ("psnr_covered", "PSNR on covered pixels", "dB"),
    ("num_gaussians", "Gaussians", ""),
)
MACHINE = (
    ("used_mib", "GPU memory", "MiB"),
    ("temperature_c", "GPU temperature", "°C"),
    ("utilisation_percent", "GPU utilisation", "%"),
)
Lines = Sequence[ProgressLine] | Sequence[GpuSample]
Points = tuple[tuple[float, float], ...]
MOST_TICKS = 6
MOST_LOG_TICKS = 7
STEPS = (1.0, 2.0, 5.0, 10.0)
TIMES_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Between the ticks of a time; more than a day is counted in days."""
# px, of the drawing; it scales with the page
WIDTH, HEIGHT = 360, 156
LEFT, TOP, RIGHT, BOTTOM = 46, 24, 8, 20
INNER_WIDTH, INNER_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM


@dataclass(frozen=True)
class Curve:
    """A figure of one attempt."""

    attempt: int
    points: Points


@dataclass(frozen=True)
class Chart:
    """One figure of all attempts over `along`, "step" or "s"."""

    title: str
    unit: str
    along: str
    curves: tuple[Curve, ...]
    is_log: bool = False


def charts_of(folders: Sequence[AttemptFolder]) -> tuple[Chart, ...]:
    """Return the charts of a patch's latest attempts; a figure that nobody wrote down has none."""
    latest = folders[-MOST_ATTEMPTS:]
    progress = {folder.number: folder.read_progress() for folder in latest}
    samples = {folder.number: folder.read_gpu_samples() for folder in latest}
    charts = [_chart(Chart(title, unit, "step", (), key == "loss"), key, progress) for key, title, unit in TRAINING]
    charts[1:2] = [_measured(charts[1], latest, progress)]
    charts += [_chart(Chart(title, unit, "s", ()), key, samples) for key, title, unit in MACHINE]
    return tuple(chart for chart in charts if chart.curves)


def _chart(empty: Chart, key: str, records: Mapping[int, Lines]) -> Chart:
    along = "step" if empty.along == "step" else "t"
    curves = [Curve(attempt, _points(found, along, key)) for attempt, found in records.items()]
    return replace(empty, curves=tuple(curve for curve in curves if len(curve.points) > 1))


def _measured(psnr: Chart, folders: Sequence[AttemptFolder], progress: Mapping[int, Sequence[ProgressLine]]) -> Chart:
    """Return the chart of PSNR with what was measured before the first step, and at the end."""
    curves = []
    for folder in folders:
        metrics, lines = folder.read_metrics() or Metrics(), progress[folder.number]
        points = {line.step: line.psnr for line in lines if line.step is not None and line.psnr is not None}
        if metrics.initial.psnr is not None:
            points[0] = metrics.initial.psnr
        if metrics.final.psnr is not None and (last := max((line.step or 0 for line in lines), default=0)):
            points[last] = metrics.final.psnr
        if len(points) > 1:
            curves.append(Curve(folder.number, tuple(sorted((float(step), psnr) for step, psnr in points.items()))))
    return replace(psnr, curves=tuple(curves))


def _points(lines: Lines, along: str, key: str) -> Points:
    """Return the pairs of two figures in order; times count from the first."""
    pairs = ((getattr(line, along), getattr(line, key)) for line in lines)
    points: list[tuple[float, float]] = [(x, y) for x, y in pairs if x is not None and y is not None]
    points = points[:1] + [after for before, after in pairwise(points) if after[0] > before[0]]
    start = points[0][0] if points and along == "t" else 0.0
    return tuple((x - start, y) for x, y in thin(points))


def thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most MOST_POINTS points, with the lowest and the highest of every stretch: peaks stay."""
    if len(points) <= MOST_POINTS:
        return list(points)
    size = math.ceil(2 * len(points) / MOST_POINTS)
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        extremes = {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
        kept += sorted(extremes)
    return [points[0], *kept[1:-1], points[-1]]


def round_ticks(low: float, high: float, most: int = MOST_TICKS) -> list[float]:
    """Return at most so many round values from low to high; a few at least, where they differ."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * one for one in STEPS if power * one >= rough * (1 - 1e-9))
    return _multiples(low, high, step)


def time_ticks(low: float, high: float, most: int = MOST_TICKS) -> list[float]:
    """Return at most so many times of a stretch in seconds: whole minutes, quarters, hours."""
    rough, day = (high - low) / most, TIMES_S[-1]
    if rough > day:
        return [day * number for number in round_ticks(low / day, high / day, most)]
    if rough < TIMES_S[0]:
        return round_ticks(low, high, most)
    return _multiples(low, high, next(step for step in TIMES_S if step >= rough))


def log_ticks(low: float, high: float) -> list[float]:
    """Return round values of a logarithmic axis, both ends above 0."""
    for mantissas in ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10))):
        found = [
            float(f"{mantissa}e{power}")
            for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for mantissa in mantissas
        ]
        inside = [value for value in found if low <= value <= high]
        if len(apart := _apart(inside, math.log(high / low) / MOST_LOG_TICKS)) >= 3:
            return apart
    return apart if len(apart) == 2 else round_ticks(low, high, 3)


def _apart(values: Sequence[float], least: float) -> list[float]:
    """Return those values that have room for their labels, by the least difference of two logarithms."""
    kept: list[float] = []
    for value in values:
        if not kept or math.log(value / kept[-1]) >= least:
            kept.append(value)
    return kept


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


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
