"""The deadline of a batch is met, evenly, also on machines that are faster or slower than the forecast."""

from __future__ import annotations

import pytest
from fake_batch import FakeBatch
from timed_batch import TimedWorld, night

LONG = pytest.mark.long
NIGHTS = [
    # factor on the time that was expected, GPUs, patches, seconds until the deadline
    (1.0, 1, 8, 150),
    (0.5, 1, 8, 100),
    (2.0, 2, 12, 200),
    (1.1, 1, 4, 60),
    pytest.param((2.0, 1, 8, 250), marks=LONG),
    pytest.param((3.0, 1, 6, 300), marks=LONG),
    pytest.param((0.4, 1, 12, 140), marks=LONG),
    pytest.param((1.3, 2, 9, 120), marks=LONG),
    pytest.param((0.6, 3, 14, 80), marks=LONG),
    pytest.param((1.5, 4, 24, 150), marks=LONG),
]


@pytest.mark.all(but="shape0")
@pytest.mark.parametrize("shape", NIGHTS)
def test_the_deadline_is_met_within_5_percent_and_evenly(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, shape: tuple[float, int, int, float]
) -> None:
    factor, num_gpus, num_patches, deadline_s = shape
    world = TimedWorld(num_gpus=num_gpus, factor=factor, load_s=2.0 + 2 * factor)
    done = night(batch, monkeypatch, deadline_s, world, [f"p{number}" for number in range(num_patches)])
    steps = sorted(done.steps.values())
    print(*shape, "->", round(world.time, 1), steps)
    assert len(steps) == num_patches
    assert world.time <= 1.05 * deadline_s
    assert world.time >= (0.9 if factor >= 1 else 0.6) * deadline_s, "a faster machine may be done early: evenly first"
    assert steps[-1] < 1.6 * steps[0]
    assert max(steps) < 20_000
