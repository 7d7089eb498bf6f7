"""Ticks of axes: round, few enough to be read, at least two where there is something to tell apart."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from splatbatch.report.curves import MOST_TICKS, log_ticks, round_ticks, time_ticks

POSITIVE = st.floats(1e-9, 1e12)


def test_ticks_of_a_training_are_round_steps() -> None:
    assert round_ticks(0, 30_000) == [0, 5000, 10_000, 15_000, 20_000, 25_000, 30_000]
    assert round_ticks(0, 7000) == [0, 2000, 4000, 6000]
    assert round_ticks(0, 20) == [0, 5, 10, 15, 20]


def test_ticks_of_a_loss_are_round_where_the_axis_is_logarithmic() -> None:
    assert log_ticks(0.004, 0.9) == [0.01, 0.03, 0.1, 0.3]
    assert log_ticks(0.055, 0.36) == [0.06, 0.08, 0.2, 0.3]
    assert log_ticks(0.31, 0.34) == [0.31, 0.32, 0.33, 0.34]


def test_ticks_of_a_night_are_quarters_and_hours() -> None:
    assert time_ticks(0, 3000) == [0, 600, 1200, 1800, 2400, 3000]
    assert time_ticks(0, 36_000) == [0, 7200, 14_400, 21_600, 28_800, 36_000]
    assert time_ticks(0, 0.4) == [0, 0.1, 0.2, 0.3, 0.4]


@given(POSITIVE, POSITIVE)
def test_ticks_lie_on_their_axis_and_are_few(one: float, other: float) -> None:
    low, high = sorted((one, other))
    for found in (round_ticks(low, high), time_ticks(low, high)):
        assert len(found) <= MOST_TICKS + 1 and all(low - 1e-6 * high <= tick <= high * (1 + 1e-6) for tick in found)
    if high > low * (1 + 1e-6):
        ticks = log_ticks(low, high)
        assert len(ticks) <= max(9, math.log10(high / low) + 2)
