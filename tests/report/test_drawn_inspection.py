"""Drawings of held-out views: their PSNR over their distance to the nearest trained one, and where they stand."""

from __future__ import annotations

from drawn import drawn

from splatbatch.report.inspection import falloff_curve, holdout_map


def test_the_curve_has_a_dot_for_each_view_and_its_name_as_text() -> None:
    views = {name: {"psnr": 20.0 + place, "distance": float(place)} for place, name in enumerate(("<b>", "c", "d"))}
    curve = falloff_curve(views)
    page = drawn("quality", "dotted", curve)
    assert page.count("<circle") == 3 and "&lt;b&gt;: PSNR 20.00 dB" in page
    assert falloff_curve({"c": views["c"]}) is None and falloff_curve({**views, "e": {}}) is not None


def test_the_map_shows_held_out_views_among_the_others() -> None:
    cameras = {name: {"x": float(place), "y": 0.0} for place, name in enumerate("abc")}
    page = drawn("quality", "dotted", holdout_map(cameras, {"b": {**cameras["b"], "psnr": 25.0}}))
    assert page.count("<circle") == 3 and "3 photographs from above, 1 of them held out" in page
    assert holdout_map({}, {}) is None and holdout_map({"a": {"x": 1.0, "y": 1.0}, "b": {}}, {}) is None
