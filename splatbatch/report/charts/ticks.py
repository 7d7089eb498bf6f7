"""Round places on an axis: 0, 10k, 20k; 0.05, 0.1, 0.2 where it is logarithmic; 15 min, 30 min, 45 min."""

from __future__ import annotations

import math
from collections.abc import Sequence

MOST_TICKS = 6
MOST_LOG_TICKS = 7
STEPS = (1.0, 2.0, 5.0, 10.0)
TIMES_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Between the ticks of a time; more than a day is counted in days."""


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
