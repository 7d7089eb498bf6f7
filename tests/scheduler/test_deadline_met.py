"""The deadline of a batch is met, evenly, also on machines that are faster or slower than the forecast."""

from __future__ import annotations

import pytest
from fake_batch import FakeBatch
from timed_batch import TimedWorld, night


@pytest.mark.parametrize(
    ("factor", "num_gpus", "num_patches", "deadline_s"),
    [
        (1.0, 1, 8, 150),
        (0.5, 1, 8, 100),
        (2.0, 1, 8, 250),
        (3.0, 1, 6, 300),
        (0.3, 1, 12, 90),
        (1.3, 2, 9, 120),
        (2.0, 2, 12, 200),
        (0.6, 3, 14, 80),
        (1.5, 4, 24, 150),
        (1.1, 1, 4, 60),
    ],
)
def test_the_deadline_is_met_within_5_percent(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, factor: float, num_gpus: int, num_patches: int, deadline_s: float
) -> None:
    names = [f"p{number}" for number in range(num_patches)]
    seed = round(factor * 10) + num_patches
    world = TimedWorld(num_gpus=num_gpus, factor=factor, load_s=2.0 + 2 * factor)
    done = night(batch, monkeypatch, deadline_s, world, names, seed)
    print(
        factor,
        num_gpus,
        num_patches,
        deadline_s,
        "->",
        round(world.time, 1),
        sorted(done.steps.values()),
        done.choice.now.divisor,
        [(c.pace.steps, c.pace.divisor) for c in (done.choice, *done.choice.corrections)],
    )
    assert len(done.steps) == num_patches
    assert world.time == pytest.approx(deadline_s, rel=0.05)
    assert max(done.steps.values()) < 1.3 * min(done.steps.values())
