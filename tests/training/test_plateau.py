"""When a training may end early, on made-up series of PSNR: what still rises goes on, what has settled ends."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import numpy as np
import pytest

from splatbatch.config import Recipe
from splatbatch.training.evaluation.early_stopping import Series, StoppingRule, is_plateau, slope_db

RULE = StoppingRule(max_steps=30_000, in_a_row=2, least_gain_db=0.05)
BETWEEN_CHECKS = 0.45 / math.sqrt(2)
"""Noise of a check, in dB, where one differs from the next by 0.45 dB, as was measured."""


def series(psnr: Callable[[int], float], first: int, noise_db: float = 0.0, seed: int = 0) -> list[tuple[int, float]]:
    random = np.random.default_rng(seed)
    steps = [step for step in range(first + 1, RULE.max_steps) if RULE.is_check(step)]
    return [(step, psnr(step) + noise_db * float(random.normal())) for step in steps]


def tail_begins(checks: Series) -> int | None:
    """Return the first step after which the tail begins; None: never."""
    return next((checks[num - 1][0] for num in range(1, len(checks) + 1) if is_plateau(checks[:num], RULE)), None)


def loss_db(psnr: Callable[[int], float], begins: int | None) -> float:
    return 0.0 if begins is None else psnr(RULE.max_steps) - psnr(begins + RULE.tail)


def rises(db: float) -> Callable[[int], float]:
    """Return a PSNR that rises by so many dB per factor e of the steps, without an end."""
    return lambda step: 36.0 + db * math.log(step / RULE.max_steps)


def settles(step: int) -> float:
    return 36.0 - math.exp(-(step - 10_000) / 3_000)


def test_by_default_five_percent_more_time_must_gain_two_hundredths_of_a_decibel() -> None:
    assert RULE.least_slope_db == pytest.approx(0.41, abs=0.002)
    assert RULE.least_slope_db * math.log(1.05) == pytest.approx(0.02, abs=1e-4)


def test_the_slope_is_that_of_the_last_fifth_of_the_run_alone() -> None:
    checks = series(lambda step: rises(3.0)(step) if step < 12_000 else rises(1.5)(step), 9_000)
    assert slope_db([one for one in checks if one[0] <= 11_880]) == pytest.approx(3.0)
    assert slope_db([one for one in checks if one[0] <= 15_000]) == pytest.approx(1.5)
    assert slope_db(checks[:12]) is None  # they do not reach back over a fifth of the run


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise_db", [0.0, 0.02, 0.1, BETWEEN_CHECKS])
def test_a_noisy_plateau_ends_soon(noise_db: float, seed: int) -> None:
    begins = tail_begins(series(lambda _: 36.0, 12_000, noise_db, seed))
    assert begins is not None
    assert begins <= 18_000


@pytest.mark.parametrize("noise_db", [0.0, 0.02])
@pytest.mark.parametrize(("db", "goes_on"), [(3.0, True), (1.0, True), (0.5, True), (0.3, False), (-0.5, False)])
def test_a_steady_rise_ends_the_run_where_it_is_below_the_least(db: float, goes_on: bool, noise_db: float) -> None:
    assert (tail_begins(series(rises(db), 10_000, noise_db)) is None) == goes_on


@pytest.mark.parametrize("seed", range(5))
def test_a_recovery_from_pruning_that_is_over_ends_within_three_quarters_of_the_run(seed: int) -> None:
    def recovers(step: int) -> float:
        return 36.5 - 2.0 * math.exp(-(step - 15_000) / 300)

    begins = tail_begins(series(recovers, 15_000, 0.02, seed))
    assert begins is not None
    assert begins + RULE.tail <= 0.75 * RULE.max_steps
    assert loss_db(recovers, begins) < 0.01


@pytest.mark.parametrize("seed", range(5))
def test_growth_that_slackens_ends_when_little_is_left(seed: int) -> None:
    begins = tail_begins(series(settles, 9_000, 0.02, seed))
    assert begins is not None
    assert loss_db(settles, begins) < 0.05


def test_noise_between_checks_ends_no_run_much_too_early() -> None:
    settled, steep = (
        [loss_db(psnr, tail_begins(series(psnr, 9_000, BETWEEN_CHECKS, seed))) for seed in range(20)]
        for psnr in (settles, rises(3.0))
    )
    assert statistics.fmean(settled) < 0.2
    assert max(settled) < 0.5
    assert statistics.median(steep) == 0


def test_one_check_by_which_nothing_is_gained_is_not_enough() -> None:
    flat = series(lambda _: 36.0, 12_000)
    first = next(num for num in range(len(flat)) if slope_db(flat[:num]) is not None)
    assert not is_plateau(flat[:first], RULE)
    assert is_plateau(flat[: first + 1], RULE)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_after_a_figure_that_is_not_finite_nothing_ends_and_it_does_not_count_later(value: float) -> None:
    flat = series(lambda _: 36.0, 12_000)[:40]
    assert is_plateau(flat, RULE)
    assert not is_plateau([*flat, (flat[-1][0] + RULE.every, value)], RULE)
    assert is_plateau([*flat[:30], (flat[30][0], value), *flat[31:]], RULE)


def test_nothing_ends_in_the_first_third_nor_where_the_tail_would_save_nothing() -> None:
    def flat_until(last: int) -> list[tuple[int, float]]:
        return [(last - RULE.every * num, 36.0) for num in reversed(range(40))]

    assert not is_plateau(flat_until(9_900), RULE)
    assert is_plateau(flat_until(10_080), RULE)
    assert not RULE.is_check(RULE.max_steps - RULE.tail)
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
