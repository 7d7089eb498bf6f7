"""When a training may end early, on made-up series of PSNR: what still rises goes on, what has settled ends."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from splatbatch.config import Recipe
from splatbatch.training.evaluation.early_stopping import FEWEST_CHECKS, Series, StoppingRule, gain_left_db, is_plateau

RULE = StoppingRule(max_steps=30_000, in_a_row=2, least_gain_db=0.05)


def series(psnr: Callable[[int], float], first: int, noise_db: float = 0.0, seed: int = 0) -> list[tuple[int, float]]:
    random = np.random.default_rng(seed)
    steps = range(first + RULE.every, RULE.max_steps, RULE.every)
    return [(step, psnr(step) + noise_db * float(random.normal())) for step in steps]


def tail_begins(checks: Series) -> int | None:
    """Return the first step after which the tail begins; None: never."""
    return next((checks[num - 1][0] for num in range(1, len(checks) + 1) if is_plateau(checks[:num], RULE)), None)


def loss_db(psnr: Callable[[int], float], begins: int | None) -> float:
    return 0.0 if begins is None else psnr(RULE.max_steps) - psnr(begins + RULE.tail)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise_db", [0.0, 0.02, 0.1])
def test_a_noisy_plateau_ends_soon(noise_db: float, seed: int) -> None:
    begins = tail_begins(series(lambda _: 36.0, 12_000, noise_db, seed))
    assert begins is not None
    assert begins <= 16_000


@pytest.mark.parametrize("seed", range(5))
def test_a_recovery_from_pruning_that_is_over_ends_within_three_fifths_of_the_run(seed: int) -> None:
    def recovers(step: int) -> float:
        return 36.5 - 2.0 * math.exp(-(step - 15_000) / 300)

    begins = tail_begins(series(recovers, 15_000, 0.02, seed))
    assert begins is not None
    assert begins + RULE.tail <= 0.6 * RULE.max_steps
    assert loss_db(recovers, begins) < 0.01


@pytest.mark.parametrize("noise_db", [0.0, 0.02])
@pytest.mark.parametrize("gain_db", [1.5, 3.0])
def test_slow_growth_without_an_end_goes_on(gain_db: float, noise_db: float) -> None:
    def grows(step: int) -> float:
        return 34.0 + gain_db * step / RULE.max_steps

    begins = tail_begins(series(grows, 10_000, noise_db))
    assert loss_db(grows, begins) <= 0.1


@pytest.mark.parametrize("seed", range(5))
def test_growth_that_slackens_ends_when_little_is_left(seed: int) -> None:
    def slackens(step: int) -> float:
        return 36.0 - math.exp(-(step - 10_000) / 3_000)

    begins = tail_begins(series(slackens, 10_000, 0.02, seed))
    assert begins is not None
    assert loss_db(slackens, begins) < 0.1


def test_overfitting_ends() -> None:
    begins = tail_begins(series(lambda step: 36.0 - 0.5 * step / RULE.max_steps, 12_000, 0.02))
    assert begins is not None
    assert begins <= 14_000


def test_a_drop_after_an_opacity_reset_is_no_plateau() -> None:
    def reset(step: int) -> float:
        return 36.0 if step < 13_000 else 36.0 - 3.0 * math.exp(-(step - 13_000) / 2_000)

    checks = series(reset, 12_400)
    assert not any(is_plateau(checks[:num], RULE) for num in range(1, len(checks)) if checks[num][0] < 17_000)
    assert (gain_left_db([one for one in checks if one[0] <= 15_000], RULE) or 0) > 0.1


def test_what_was_before_a_drop_counts_no_more() -> None:
    flat = [(step, 36.0) for step in range(12_000, 15_000, RULE.every)]
    after = [(15_000 + RULE.every * num, 35.0) for num in range(FEWEST_CHECKS)]
    assert gain_left_db(flat, RULE) == 0
    assert gain_left_db(flat + after[:-1], RULE) is None
    assert gain_left_db(flat + after, RULE) == 0


def test_one_check_by_which_nothing_is_left_is_not_enough() -> None:
    flat = [(12_000 + RULE.every * num, 36.0) for num in range(FEWEST_CHECKS + 1)]
    assert not is_plateau(flat[:-1], RULE)
    assert is_plateau(flat, RULE)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_after_a_figure_that_is_not_finite_nothing_ends_and_it_does_not_count_later(value: float) -> None:
    flat = [(12_000 + RULE.every * num, 36.0) for num in range(12)]
    assert not is_plateau([*flat, (flat[-1][0] + RULE.every, value)], RULE)
    assert is_plateau([flat[0], (12_075, value), *flat[1:]], RULE)


def test_nothing_ends_in_the_first_third_nor_where_the_tail_would_save_nothing() -> None:
    def flat_until(last: int) -> list[tuple[int, float]]:
        return [(last - RULE.every * num, 36.0) for num in reversed(range(20))]

    assert not is_plateau(flat_until(9_900), RULE)
    assert is_plateau(flat_until(10_050), RULE)
    assert not is_plateau(flat_until(RULE.max_steps - RULE.tail), RULE)
    assert not is_plateau([], RULE)


@pytest.mark.parametrize(
    ("max_steps", "asked", "in_a_row"),
    [(7_000, "auto", 0), (10_000, "auto", 0), (10_001, "auto", 2), (30_000, 0, 0), (600, 3, 3)],
)
def test_long_runs_end_early_unless_told_otherwise(max_steps: int, asked: str | int, in_a_row: int) -> None:
    tree = {"training": {"max_steps": max_steps}, "evaluation": {"stop_after": asked}}
    assert StoppingRule.of(Recipe.model_validate(tree)).in_a_row == in_a_row


def test_a_run_that_never_ends_early_is_never_looked_at() -> None:
    off = StoppingRule(30_000, 0, 0.05)
    assert not any(off.is_check(step) for step in range(30_000))
    assert not is_plateau([(12_000 + 150 * num, 36.0) for num in range(40)], off)
