"""Which patches are trained, skipped, refused or given up; pure, so a table says it all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from splatbatch.tasks.plan import (
    Decision,
    GivenUp,
    PatchState,
    Refuse,
    Skip,
    Train,
    changed_settings,
    decide,
    fresh,
    given_up,
    to_train,
)
from splatbatch.tasks.product import Damaged, Stale, UpToDate

FRESH = PatchState(UpToDate())


@pytest.mark.parametrize(
    ("condition", "decision"),
    [
        (FRESH, Skip("p0")),
        (PatchState(), Train("p0", "not trained yet")),
        (PatchState(Damaged("splat.ply", "missing")), Train("p0", "splat.ply missing")),
        (PatchState(Stale("settings have changed")), Train("p0", "settings have changed")),
        (PatchState(given_up="nan_loss twice"), GivenUp("p0", "nan_loss twice")),
        (replace(FRESH, given_up="nan_loss twice"), Skip("p0")),
        (PatchState(Stale("settings have changed"), given_up="nan_loss"), GivenUp("p0", "nan_loss")),
    ],
)
def test_a_patch_is_trained_unless_its_result_is_whole_and_fresh_or_it_was_given_up(
    condition: PatchState, decision: Decision
) -> None:
    assert decide("p0", condition) == decision


def test_a_fresh_patch_is_trained_again_when_forced() -> None:
    assert decide("p0", FRESH, force=True) == Train("p0", "forced")


def test_who_insists_trains_what_was_given_up() -> None:
    assert decide("p0", PatchState(given_up="nan_loss"), insist=True) == Train("p0", "not trained yet")


def test_a_refusal_matters_only_where_there_is_something_to_train() -> None:
    assert decide("p0", FRESH, "no images") == Skip("p0")
    assert decide("p0", PatchState(), "no images") == Refuse("p0", "no images")
    assert decide("p0", PatchState(given_up="nan_loss"), "no images") == Refuse("p0", "no images")
    assert decide("p0", FRESH, "no images", force=True) == Refuse("p0", "no images")


def test_decisions_are_sorted_by_what_they_mean() -> None:
    decisions = [Train("p0", "a"), Skip("p1"), Refuse("p2", "b"), Train("p3", "c"), GivenUp("p4", "d")]
    assert to_train(decisions) == ("p0", "p3")
    assert fresh(decisions) == ("p1",)
    assert given_up(decisions) == {"p4": "d"}


def test_a_changed_setting_has_a_name_and_both_values() -> None:
    then, now = {"training": {"max_steps": 7000, "seed": 1}}, {"training": {"max_steps": 1000, "seed": 1}}
    assert changed_settings(then, now, {}) == ("training.max_steps 7000 -> 1000",)


def test_settings_that_another_version_does_not_know_count_as_their_defaults() -> None:
    then, defaults = {"training": {"seed": 1, "gone": 3}}, {"training": {"new": "auto"}}
    assert changed_settings(then, {"training": {"seed": 1, "new": "auto"}}, defaults) == ()
    changed = changed_settings(then, {"training": {"seed": 1, "new": "other"}}, defaults)
    assert changed == ("training.new auto -> other",)
