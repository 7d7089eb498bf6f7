"""Which tasks are due, and why; pure, so a table says it all."""

from __future__ import annotations

import pytest

from splatbatch.output.records.result import Result
from splatbatch.tasks.fingerprint import changed_settings
from splatbatch.tasks.patch_state import (
    Damaged,
    GivenUp,
    Missing,
    PatchState,
    RejectedByAudit,
    Stale,
    UpToDate,
    assess,
    due,
    is_due,
)

KEPT = Result("p0", "attempt-01")
CHANGED = Stale("settings have changed", KEPT)
LOST = Damaged("splat.ply missing", KEPT)


@pytest.mark.parametrize(
    ("product", "given_up", "state", "reason", "is_made"),
    [
        (UpToDate(), "", UpToDate, "trained", False),
        (Missing(), "", Missing, "not trained yet", True),
        (LOST, "", Damaged, "splat.ply missing", True),
        (CHANGED, "", Stale, "settings have changed", True),
        (Missing(), "nan_loss twice", GivenUp, "nan_loss twice", False),
        (UpToDate(), "nan_loss twice", UpToDate, "trained", False),
        (CHANGED, "nan_loss", GivenUp, "nan_loss", False),
    ],
)
def test_a_task_is_due_unless_its_product_is_whole_and_up_to_date_or_it_was_given_up(
    product: PatchState, given_up: str, state: type[PatchState], reason: str, is_made: bool
) -> None:
    found = assess(product, given_up=given_up)
    assert (type(found), found.reason, is_due(found)) == (state, reason, is_made)
    assert found.result == product.result


def test_what_was_given_up_tells_what_it_is_due_for() -> None:
    assert assess(CHANGED, given_up="nan_loss") == GivenUp("nan_loss", KEPT, "settings have changed")


def test_a_product_that_is_up_to_date_is_made_again_when_forced() -> None:
    assert is_due(UpToDate(), force=True)
    assert is_due(GivenUp("nan_loss"), force=True)


def test_who_insists_trains_what_was_given_up_and_nothing_that_is_up_to_date() -> None:
    assert is_due(GivenUp("nan_loss"), insist=True)
    assert not is_due(UpToDate(), insist=True)


def test_a_rejection_matters_only_where_there_is_something_to_train() -> None:
    assert assess(UpToDate(), "no images") == UpToDate()
    assert assess(CHANGED, "no images") == RejectedByAudit("no images", KEPT)
    assert assess(Missing(), "no images", given_up="nan_loss") == RejectedByAudit("no images")
    assert not is_due(RejectedByAudit("no images"), force=True, insist=True)


def test_due_are_those_that_are_neither_up_to_date_nor_rejected_nor_given_up() -> None:
    states = {"p0": Missing(), "p1": UpToDate(), "p2": RejectedByAudit("b"), "p3": CHANGED, "p4": GivenUp("d")}
    assert due(states) == ("p0", "p3")


def test_a_changed_setting_has_a_name_and_both_values() -> None:
    then, now = {"training": {"max_steps": 7000, "seed": 1}}, {"training": {"max_steps": 1000, "seed": 1}}
    assert changed_settings(then, now, {}) == ("training.max_steps 7000 -> 1000",)


def test_settings_that_another_version_does_not_know_count_as_their_defaults() -> None:
    then, defaults = {"training": {"seed": 1, "gone": 3}}, {"training": {"new": "auto"}}
    assert changed_settings(then, {"training": {"seed": 1, "new": "auto"}}, defaults) == ()
    changed = changed_settings(then, {"training": {"seed": 1, "new": "other"}}, defaults)
    assert changed == ("training.new auto -> other",)
