"""The deadline of a batch is met, evenly, also on machines that are faster or slower than the forecast."""

from __future__ import annotations

import pytest
from fake_batch import FakeBatch
from timed_batch import Night, TimedWorld, night

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
FAR_OFF = [(3.0, 4, 8, 44), pytest.param((5.0, 1, 4, 88), marks=LONG), pytest.param((2.0, 4, 8, 44), marks=LONG)]
FEWEST = 20_000 // 30


def played(
    batch: FakeBatch, patch: pytest.MonkeyPatch, shape: tuple[float, int, int, float]
) -> tuple[TimedWorld, Night]:
    """Train by a deadline on a machine that is faster or slower than expected."""
    factor, num_gpus, num_patches, deadline_s = shape
    world = TimedWorld(num_gpus=num_gpus, factor=factor, load_s=2.0 + 2 * factor)
    return world, night(batch, patch, deadline_s, world, [f"p{number}" for number in range(num_patches)])


@pytest.mark.all(but="shape0")
@pytest.mark.parametrize("shape", NIGHTS)
def test_the_deadline_is_met_within_5_percent_and_evenly(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, shape: tuple[float, int, int, float]
) -> None:
    factor, num_gpus, _, deadline_s = shape
    world, done = played(batch, monkeypatch, shape)
    order = world.order("begins")
    first, later = ([done.steps[name] for name in names] for names in (order[:num_gpus], order[num_gpus:]))
    print(*shape, "->", round(world.time / deadline_s, 3), round(max(first) / min(later), 2), first, later)
    assert sorted(order) == sorted(done.steps), "what runs is never begun again"
    assert world.time <= 1.05 * deadline_s
    assert world.time >= (0.9 if factor >= 1 else 0.5) * deadline_s, "a faster machine may be done early: evenly first"
    assert max(later) < 1.6 * min(done.steps.values())
    assert max(first) < (1.05 + factor) * min(later), "those begin before any speed is known"
    assert max(done.steps.values()) < 20_000


@pytest.mark.all(but="shape0")
@pytest.mark.parametrize("shape", FAR_OFF)
def test_on_a_machine_that_is_far_slower_what_begins_first_is_late_and_the_others_get_the_fewest_steps(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, shape: tuple[float, int, int, float]
) -> None:
    _, _, num_patches, deadline_s = shape
    world, done = played(batch, monkeypatch, shape)
    print(*shape, "->", round(world.time / deadline_s, 3), sorted(done.steps.values()))
    assert len(done.steps) == num_patches
    assert min(done.steps.values()) >= FEWEST
    longest_s = max(world.at("ends", name) - world.at("begins", name) for name in done.steps)
    assert world.time <= deadline_s + longest_s, "late by one patch at most"
