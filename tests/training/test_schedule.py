"""When things happen: the field's steps at 30,000, scaled so that a short run is a whole run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splatbatch.config import Recipe
from splatbatch.config.schedule import Schedule, schedule


def plan(max_steps: int, strategy: str, **refinement: Any) -> Schedule:
    recipe = {"training": {"max_steps": max_steps, "strategy": strategy}, "refinement": refinement}
    return schedule(Recipe.model_validate(recipe))


@pytest.mark.parametrize(("strategy", "refine_stop", "reset_every"), [("default", 15_000, 3_000), ("mcmc", 25_000, 0)])
def test_a_run_of_30000_steps_has_the_fields_own_schedule(strategy: str, refine_stop: int, reset_every: int) -> None:
    assert plan(30_000, strategy) == Schedule(
        max_steps=30_000,
        refine_start=500,
        refine_stop=refine_stop,
        refine_every=100,
        full_size_at=15_000,
        reset_every=reset_every,
        prune_at=15_000 if strategy == "default" else 0,
        sh_every=1_000,
        means_gain=1.0,
        gain=1.0,
    )


@pytest.mark.parametrize(
    ("max_steps", "field", "value"),
    [
        (7_000, "refine_start", 500),
        (7_000, "refine_stop", 3_500),
        (7_000, "refine_every", 100),
        (7_000, "sh_every", 2_000),
        (15_000, "refine_every", 100),
        (300, "refine_every", 50),
        (300, "means_gain", 10.0),
        (1_000, "means_gain", 3.0),
        (3_000, "gain", 1.0),
        (750, "gain", 2.0),
        (30, "means_gain", 10.0),
        (1, "sh_every", 1),
    ],
)
def test_a_shorter_run_is_scaled(max_steps: int, field: str, value: float) -> None:
    assert getattr(plan(max_steps, "default"), field) == value


@pytest.mark.parametrize(
    ("field", "value"), [("refine_start", 117), ("refine_stop", 5_833), ("refine_every", 48), ("sh_every", 233)]
)
def test_a_shorter_run_of_mcmc_is_scaled_as_a_whole(field: str, value: int) -> None:
    expected = max(50, value) if field == "refine_every" else value
    assert getattr(plan(7_000, "mcmc"), field) == expected


def test_only_runs_long_enough_to_recover_reset_opacities() -> None:
    assert [plan(steps, "default").reset_every for steps in (300, 7_000, 15_000, 60_000)] == [0, 0, 3_000, 6_000]


def test_no_opacity_reset_comes_in_the_last_sixth_of_the_run() -> None:
    assert plan(30_000, "default", refine_stop_iter=30_000).reset_stop == 25_000


def test_refining_more_often_than_every_50_steps_is_as_the_config_says() -> None:
    assert plan(30_000, "mcmc", refine_every=20).refine_every == 20


@given(max_steps=st.integers(1, 10**6), strategy=st.sampled_from(["default", "mcmc"]))
def test_every_schedule_fits_its_run(max_steps: int, strategy: str) -> None:
    steps = plan(max_steps, strategy)
    assert 0 <= steps.refine_start <= steps.refine_stop <= max_steps
    assert steps.reset_every == 0 or steps.reset_every >= 10 * steps.refine_every
    assert 1 <= steps.gain <= steps.means_gain**0.5 * max(1, (300 / max_steps) ** 0.5) + 1e-9
    assert 1 <= steps.means_gain <= 10
    assert steps.sh_every >= 1
    # the last degree comes well before the end
    assert 3 * steps.sh_every <= max(3, max_steps)
