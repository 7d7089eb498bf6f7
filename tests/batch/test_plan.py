"""Which patches are trained, skipped or refused; pure, so a table says it all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from splatbatch.batch.plan import Decision, Fingerprint, Found, Refuse, Skip, Train, decide, refused, to_train
from splatbatch.outcome import Splat, Unfit

NOW = Fingerprint("recipe", "inputs")
RESULT = {"recipe": "recipe", "inputs": "inputs"}
WHOLE = Splat(Path("splat.ply"), 10, 3, 20)


@pytest.mark.parametrize(
    ("result", "splat", "decision"),
    [
        (RESULT, WHOLE, Skip("p0")),
        (None, WHOLE, Train("p0", "not trained yet")),
        (None, Unfit("missing"), Train("p0", "not trained yet")),
        ({}, WHOLE, Train("p0", "settings have changed")),
        (RESULT, Unfit("missing"), Train("p0", "splat.ply missing")),
        (RESULT, Unfit("cut: 3 of 4 bytes"), Train("p0", "splat.ply cut: 3 of 4 bytes")),
        (RESULT | {"recipe": "other"}, WHOLE, Train("p0", "settings have changed")),
        (RESULT | {"inputs": "other"}, WHOLE, Train("p0", "model or photographs have changed")),
    ],
)
def test_a_patch_is_trained_unless_its_result_is_whole_and_fresh(
    result: dict[str, Any] | None, splat: Splat | Unfit, decision: Decision
) -> None:
    assert decide("p0", NOW, Found(result, splat)) == decision


def test_a_fresh_patch_is_trained_again_when_forced() -> None:
    assert decide("p0", NOW, Found(RESULT, WHOLE), force=True) == Train("p0", "forced")


def test_a_refusal_matters_only_where_there_is_something_to_train() -> None:
    assert decide("p0", NOW, Found(RESULT, WHOLE), "no images") == Skip("p0")
    assert decide("p0", NOW, Found(None, WHOLE), "no images") == Refuse("p0", "no images")
    assert decide("p0", NOW, Found(RESULT, WHOLE), "no images", force=True) == Refuse("p0", "no images")


def test_decisions_are_sorted_by_what_they_mean() -> None:
    decisions = [Train("p0", "a"), Skip("p1"), Refuse("p2", "b"), Train("p3", "c")]
    assert to_train(decisions) == ("p0", "p3")
    assert refused(decisions) == {"p2": "b"}
