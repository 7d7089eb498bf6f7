"""Charts of attempts for the page: curves of training and GPU as points and ticks; its script adds zoom and values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from operator import itemgetter

from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.attempt import GpuSample, ProgressLine
from splatbatch.output.records.metrics import Metrics
from splatbatch.report.units import figure

MOST_POINTS = 160
"""Most points of a curve; a longer curve keeps the lowest and the highest point of every stretch.

The curve of hold-out PSNR is not shortened.
"""
MOST_ATTEMPTS = 4
"""Most attempts that have a curve in a chart, the latest ones of a patch."""
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
"""Distances between ticks on an axis of time, in seconds; longer distances are multiples of a day."""
Curve = tuple[int, Points]
"""Number of an attempt, and the points of its curve."""
Ticks = list[tuple[float, str]]
"""Labels of an axis, each as its position, from 0 (start) to 1 (end), and its text."""


@dataclass(frozen=True)
class Chart:
    """Chart of one figure of a patch's attempts over steps or seconds; its methods need at least one curve.

    `unit` is that of the y axis, empty for a figure without one; `curves` are those of the attempts, first to last.
    """

    title: str
    unit: str
    along: str
    """Unit of the x axis: "step" or "s"."""
    curves: tuple[Curve, ...]
    wants_log: bool = False
    """Whether the y axis is logarithmic if all values are positive."""

    @cached_property
    def latest(self) -> Points:
        """Return the curve of the latest attempt, which is drawn on top and strongest."""
        return self.curves[-1][1]

    @cached_property
    def end(self) -> float:
        """Return the end of the x axis, in steps or seconds; the axis starts at 0."""
        return max(*(x for _, points in self.curves for x, _ in points), 1e-9)

    @cached_property
    def range(self) -> tuple[float, float]:
        """Return both ends of the y axis: 0 and 100 for percent, 0 and the most for memory, else least and most.

        A constant figure gets a margin on both sides, so that the ends always differ.
        """
        ys = [y for _, points in self.curves for _, y in points]
        low, high = min(ys), max(ys)
        if self.unit == "%":
            return 0.0, 100.0
        if self.unit == "MiB":
            return 0.0, max(high, 1.0)
        if high - low > 1e-9 * max(abs(low), abs(high)):
            return low, high
        margin = abs(low) / 10 or 1.0
        return low - margin, high + margin

    @cached_property
    def is_log(self) -> bool:
        """Return whether the y axis is logarithmic: if that is wanted and all values are positive."""
        return self.wants_log and min(y for _, points in self.curves for _, y in points) > 0

    def height(self, value: float) -> float:
        """Return the position of a value on the y axis: 0 at its lower end, 1 at its upper end, beyond outside them."""
        low, high = self.range
        return math.log(value / low) / math.log(high / low) if self.is_log else (value - low) / (high - low)

    @property
    def heading(self) -> str:
        """Return the heading of the chart: title, unit if there is one, and "logarithmic" if the y axis is."""
        return f"{self.title}{f', {self.unit}' if self.unit else ''}{', logarithmic' if self.is_log else ''}"

    def y_ticks(self) -> Ticks:
        """Return the labels of the y axis, from low to high, with as many digits as make them different."""
        ticks = log_ticks(*self.range) if self.is_log else round_ticks(*self.range, 4)
        digits = next((most for most in range(3, 8) if len({figure(one, most) for one in ticks}) == len(ticks)), 8)
        return [(self.height(one), figure(one, digits)) for one in ticks]

    def x_ticks(self) -> Ticks:
        """Return the labels of the x axis at round values, ascending; the page's script makes others when zoomed."""
        ticks = round_ticks(0, self.end) if self.along == "step" else time_ticks(0, self.end)
        return [(one / self.end, axis_label(one, self.end, self.along)) for one in ticks]

    def lines(self) -> list[tuple[int, str, str | None]]:
        """Return the curves as text for SVG: for each attempt its number, its points and its values.

        Points are "x,y" with x in steps or seconds and y in percent from the top. Values are None for all attempts but
        the latest, whose values the page shows under the cursor.
        """
        drawn = []
        for attempt, points in self.curves:
            line = " ".join(f"{x:.6g},{100 * (1 - self.height(y)):.2f}" for x, y in points)
            values = " ".join(f"{y:.4g}" if abs(y) < 1e4 else f"{y:.0f}" for _, y in points)
            drawn.append((attempt, line, values if points is self.latest else None))
        return drawn


def charts_of(folders: Sequence[AttemptFolder]) -> tuple[Chart, ...]:
    """Return the charts of the latest attempts at a patch: figures of training first, then those of the GPU.

    A figure that no attempt recorded at least twice has no chart; empty if there is none at all. Never fails: files
    that are missing or damaged count as not recorded.

    Args:
        folders: folders of all attempts at the patch, first to last; only the last MOST_ATTEMPTS are read.
    """
    latest = folders[-MOST_ATTEMPTS:]
    progress = {folder.number: folder.read_progress() for folder in latest}
    samples = {folder.number: folder.read_gpu_samples() for folder in latest}
    charts = [_chart(Chart(title, unit, "step", (), key == "loss"), key, progress) for key, title, unit in TRAINING]
    charts[1:2] = [_measured(charts[1], latest, progress)]
    charts += [_chart(Chart(title, unit, "s", ()), key, samples) for key, title, unit in MACHINE]
    return tuple(chart for chart in charts if chart.curves)


def _chart(empty: Chart, key: str, records: Mapping[int, Lines]) -> Chart:
    along = "step" if empty.along == "step" else "t"
    curves = [(attempt, _points(found, along, key)) for attempt, found in records.items()]
    return replace(empty, curves=tuple((attempt, points) for attempt, points in curves if len(points) > 1))


def _measured(psnr: Chart, folders: Sequence[AttemptFolder], progress: Mapping[int, Sequence[ProgressLine]]) -> Chart:
    """Return the chart of hold-out PSNR, with the measurements before the first step and after the last one added."""
    curves = []
    for folder in folders:
        metrics, lines = folder.read_metrics() or Metrics(), progress[folder.number]
        points = {line.step: line.psnr for line in lines if line.step is not None and line.psnr is not None}
        if metrics.initial.psnr is not None:
            points[0] = metrics.initial.psnr
        if metrics.final.psnr is not None and (last := max((line.step or 0 for line in lines), default=0)):
            points[last] = metrics.final.psnr
        if len(points) > 1:
            curves.append((folder.number, tuple(sorted((float(step), psnr) for step, psnr in points.items()))))
    return replace(psnr, curves=tuple(curves))


def _points(lines: Lines, along: str, key: str) -> Points:
    """Return pairs of two fields where the first rises, at most MOST_POINTS; times count from the first line."""
    pairs = ((getattr(line, along), getattr(line, key)) for line in lines)
    points: list[tuple[float, float]] = [(x, y) for x, y in pairs if x is not None and y is not None]
    points = points[:1] + [after for before, after in pairwise(points) if after[0] > before[0]]
    start = points[0][0] if points and along == "t" else 0.0
    return tuple((x - start, y) for x, y in thin(points))


def thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most MOST_POINTS of the points, in order; the first and the last are kept.

    Of every stretch between them the points with the lowest and the highest y are kept, so that peaks stay.
    """
    if len(points) <= MOST_POINTS:
        return list(points)
    size = math.ceil(2 * len(points) / (MOST_POINTS - 2))
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        kept += sorted({min(stretch, key=itemgetter(1)), max(stretch, key=itemgetter(1))})
    return list(dict.fromkeys((points[0], *kept, points[-1])))


def round_ticks(low: float, high: float, most: int = MOST_TICKS) -> list[float]:
    """Return about `most` round values from low to high for an axis, ascending; low alone if high is not above low."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * one for one in STEPS if power * one >= rough * (1 - 1e-9))
    return _multiples(low, high, step)


def time_ticks(low: float, high: float) -> list[float]:
    """Return round times from low to high for an axis, ascending, about MOST_TICKS of them; all in seconds.

    Times are whole seconds, minutes, hours or days; fractions of a second only for short axes, below MOST_TICKS s.
    """
    rough, day = (high - low) / MOST_TICKS, TIMES_S[-1]
    if rough > day:
        return [day * number for number in round_ticks(low / day, high / day)]
    if rough < TIMES_S[0]:
        return round_ticks(low, high)
    return _multiples(low, high, next(step for step in TIMES_S if step >= rough))


def log_ticks(low: float, high: float) -> list[float]:
    """Return round values for a logarithmic axis, ascending, at most about MOST_LOG_TICKS of them.

    Args:
        low: lower end of the axis, above 0.
        high: upper end of the axis, above `low`.

    Raises:
        ValueError: an end is not above 0.
    """
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
    """Return the values, in order, whose logarithms differ by at least `least` from the value kept before."""
    kept: list[float] = []
    for value in values:
        if not kept or math.log(value / kept[-1]) >= least:
            kept.append(value)
    return kept


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def axis_label(value: float, span: float, along: str) -> str:
    """Return a label of the x axis: "7000" or "30k" for steps, else a time in s, min or h by the span of the axis.

    Args:
        value: the labelled step, or time in seconds.
        span: length of the axis, in steps or seconds.
        along: unit of the axis: "step" or "s".
    """
    # templates/page.js has the same rules
    if along == "step":
        return f"{value:.0f}" if value < 1e3 or span < 5e3 else f"{value / 1e3:g}k"
    if span < 120:
        return f"{round(value, 1 if span < 8 else 0):g} s"
    return f"{round(value / 60, 1 if span < 480 else 0):g} min" if span < 7200 else f"{round(value / 3600, 1):g} h"
