"""What is worth drawing of a patch's attempts: figures of the training over steps, of the GPU over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.records.attempt import GpuSample, Progress
from splatbatch.store.records.metrics import Metrics

MOST_POINTS = 160
MOST_ATTEMPTS = 4
TRAINING = (("loss", "loss", ""), ("psnr", "hold-out PSNR", "dB"), ("num_gaussians", "Gaussians", ""))
MACHINE = (
    ("used_mib", "GPU memory", "MiB"),
    ("temperature_c", "GPU temperature", "°C"),
    ("utilisation_percent", "GPU utilisation", "%"),
)
Lines = Sequence[Progress] | Sequence[GpuSample]
Points = tuple[tuple[float, float], ...]


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


def _measured(psnr: Chart, folders: Sequence[AttemptFolder], progress: Mapping[int, Sequence[Progress]]) -> Chart:
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
