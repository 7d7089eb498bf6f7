"""How PSNR falls with the distance of a held-out view to the nearest trained one."""

from __future__ import annotations

import pytest
from drawn import drawn

from splatbatch.report.inspection import falloff_curve, holdout_map
from splatbatch.training.inspection.coverage import falloff_db


def by_name(values: list[float]) -> dict[str, float]:
    return {f"v{place}": value for place, value in enumerate(values)}


def test_the_slope_is_that_of_most_pairs_and_one_odd_view_does_not_turn_it() -> None:
    far = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    psnrs = [30 - 2 * one for one in far]
    assert falloff_db(by_name(psnrs), by_name(far)) == pytest.approx(2.0)
    assert falloff_db(by_name([10.0, *psnrs[1:]]), by_name(far)) == pytest.approx(2.0, abs=0.3)


def test_views_that_become_better_further_away_lose_nothing() -> None:
    far = [0.5, 1.0, 1.5, 2.0, 2.5]
    assert falloff_db(by_name([20 + one for one in far]), by_name(far)) == 0.0


@pytest.mark.parametrize("far", [[1.0, 1.1, 1.2, 1.3, 1.4], [0.5, 2.0, 3.0]])
def test_alike_distances_and_few_views_say_nothing(far: list[float]) -> None:
    assert falloff_db(by_name([30.0] * len(far)), by_name(far)) is None


def test_the_curve_has_a_dot_for_each_view_and_its_name_as_text() -> None:
    views = {name: {"psnr": 20.0 + place, "distance": float(place)} for place, name in enumerate(("<b>", "c", "d"))}
    curve = falloff_curve(views)
    page = drawn("quality", "dotted", curve)
    assert page.count("<circle") == 3 and "&lt;b&gt;: 20.00 dB" in page
    assert falloff_curve({"c": views["c"]}) is None and falloff_curve({**views, "e": {}}) is not None


def test_the_map_shows_held_out_views_among_the_others() -> None:
    cameras = {name: {"x": float(place), "y": 0.0} for place, name in enumerate("abc")}
    page = drawn("quality", "dotted", holdout_map(cameras, {"b": {**cameras["b"], "psnr": 25.0}}))
    assert page.count("<circle") == 3 and "3 photographs from above, 1 of them held out" in page
    assert holdout_map({}, {}) is None and holdout_map({"a": {"x": 1.0, "y": 1.0}, "b": {}}, {}) is None
