"""How fast a training is, and when it will be done."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Iterable, Sequence

from splatbatch.fields import number
from splatbatch.output.records.attempt import ProgressLine

LINES_LOOKED_AT = 10
MOST_RESULTS = 200
"""As many tell a throughput as well as thousands do."""


def steps_per_s(lines: Sequence[ProgressLine]) -> float | None:
    """Return the throughput of the latest lines with a loss; None while it cannot be told."""
    latest = [line for line in lines if line.loss is not None][-LINES_LOOKED_AT:]
    marks = [(line.t, line.step) for line in latest]
    known = [(at, step) for at, step in marks if at is not None and step is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    return number(max(0.0, (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])))


def eta_s(step: int, max_steps: int, throughput: float | None) -> float | None:
    """Return the seconds until the last step; None while the throughput is unknown."""
    return number((max_steps - step) / throughput) if throughput and 0 < step <= max_steps else None


def seconds_per_step(finished: Iterable[tuple[float, int]]) -> float | None:
    """Return what a step has taken in patches that are trained, start and evaluation included; None without any."""
    paces = [seconds / steps for seconds, steps in finished if steps > 0 and seconds > 0]
    return statistics.median(paces) if paces else None


def makespan_s(seconds: Iterable[float], num_slots: int, busy: Sequence[float] = ()) -> float:
    """Return when the last patch ends if a slot that is free always takes the longest that is left.

    Args:
        seconds: that each patch takes.
        num_slots: on which they are trained.
        busy: when slots are free that are taken now; the others are free at once.
    """
    ends = [*busy, *[0.0] * (max(1, num_slots) - len(busy))]
    heapq.heapify(ends)
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + one)
    return max(ends)
