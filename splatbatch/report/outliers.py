"""Finds patches whose PSNR, size or time is far from the median, in median absolute deviations."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from splatbatch.config import TaskId
from splatbatch.groups import grouped
from splatbatch.output.records.metrics import deciding
from splatbatch.tasks.status import PatchStatus

FEWEST = 4
"""Fewest trained patches with a figure among which outliers in that figure are looked for."""
FAR = 3.5
"""Number of standard deviations from the median beyond which a figure is an outlier.

Iglewicz and Hoaglin 1993, "How to detect and handle outliers".
"""
DEVIATION = 1.4826
"""Standard deviation of a normal distribution, as a multiple of its median absolute deviation."""
LEAST_DB = 1.0
"""Least distance of a PSNR below the median, in dB, that is reported; a PSNR above the median never is."""
LEAST_FACTOR = 1.5
"""Least factor that is reported between a patch's Gaussians or time and the median; time only if it is longer."""


def outliers(statuses: Iterable[PatchStatus]) -> dict[str, tuple[str, ...]]:
    """Return messages on each patch by name, such as "PSNR 6.0 dB under the median of the patches"; none if usual.

    Only trained patches are compared, and in a sweep only within their variant. PSNR is of covered pixels if known.
    """
    alike = grouped((TaskId.of_folder(status.patch).variant, status) for status in statuses)
    return {patch: found for group in alike.values() for patch, found in _outliers(group).items()}


def _outliers(statuses: Sequence[PatchStatus]) -> dict[str, tuple[str, ...]]:
    trained = [status for status in statuses if status.state == "trained"]
    marks: dict[str, list[str]] = {status.patch: [] for status in statuses}
    for patch, value, median in _far({status.patch: deciding(status) for status in trained}):
        if median - value >= LEAST_DB:
            marks[patch].append(f"PSNR {median - value:.1f} dB under the median of the patches")
    for patch, value, median in _far({status.patch: status.num_gaussians for status in trained}):
        if factor := _factor(value, median):
            marks[patch].append(f"number of Gaussians {factor} the median of the patches")
    for patch, value, median in _far({status.patch: status.seconds for status in trained}):
        if value > median and (factor := _factor(value, median)):
            marks[patch].append(f"training time {factor} the median of the patches")
    return {patch: tuple(found) for patch, found in marks.items()}


def _far(values: dict[str, float | None]) -> list[tuple[str, float, float]]:
    """Return the patches whose value is farther than FAR from the median, as name, value, median."""
    known = {patch: value for patch, value in values.items() if value is not None}
    if len(known) < FEWEST:
        return []
    median = statistics.median(known.values())
    spread = DEVIATION * statistics.median(abs(value - median) for value in known.values())
    return [(patch, value, median) for patch, value in known.items() if abs(value - median) > FAR * spread]


def _factor(value: float, median: float) -> str:
    """Return the factor from the median as "0.2 times" or "3.1 times"; empty below LEAST_FACTOR."""
    if min(value, median) <= 0 or max(value, median) / min(value, median) < LEAST_FACTOR:
        return ""
    return f"{value / median:.2g} times"
