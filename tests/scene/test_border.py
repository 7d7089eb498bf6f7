"""Borders: how far a patch reaches, and who has a place."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from cut_scene import halves
from hypothesis import given, settings
from hypothesis import strategies as st

from splatbatch.scene.partition.border import Border, border_of, reach_of
from splatbatch.scene.partition.boxes import EVERYWHERE, Box
from splatbatch.scene.partition.record import Core

CONTENT = Box((0.0, 0.0, 0.0), (30.0, 30.0, 2.0))


def core(box: Box) -> Core:
    return Core("p0", box, box, box.clipped(CONTENT))


def test_three_quarters_of_a_patch_survive_its_crop_though_it_has_neighbours_on_all_sides() -> None:
    inner = Box((10.0, 10.0, -math.inf), (20.0, 20.0, math.inf))
    reach = reach_of(core(inner))
    kept = reach.clipped(inner)
    area = [(box.upper[0] - box.lower[0]) * (box.upper[1] - box.lower[1]) for box in (kept, reach)]
    assert area[0] / area[1] >= 0.75


def test_a_patch_reaches_beyond_the_scene_where_no_other_core_is() -> None:
    left, _ = EVERYWHERE.cut(0, 10.0)
    reach = reach_of(core(left))
    assert reach.is_finite()
    assert reach.upper[0] == pytest.approx(10.5)  # 5 % of 10 over the side that another core shares
    assert (reach.lower[0], reach.upper[2]) == pytest.approx((-7.5, 9.5))  # a quarter of 30


def test_the_margin_is_that_of_the_narrowest_shared_side() -> None:
    left, _ = EVERYWHERE.cut(0, 10.0)
    assert Border(((1, 0, 0), (0, 1, 0), (0, 0, 1)), left, reach_of(core(left))).margin == pytest.approx(0.5)


def test_a_border_survives_its_way_through_json(tmp_path: Path) -> None:
    border = border_of(halves(tmp_path), "p0")
    assert border is not None
    assert Border.from_record(json.loads(json.dumps(border.to_record(), allow_nan=False))) == border
    assert Border.from_record({}) is None
    assert border_of(halves(tmp_path), "p7") is None


@given(st.lists(st.tuples(*[st.floats(-5, 5)] * 3), min_size=1))
@settings(max_examples=60)
def test_each_place_is_drawn_by_one_patch_or_by_the_backdrop(places: list[tuple[float, float, float]]) -> None:
    partition = halves(Path())
    asked = np.array(places)
    owner = partition.owner(asked)
    reaches = [border.reach for one in partition.cores if (border := border_of(partition, one.name))]
    own = [(owner == index) & reach.holds(asked) for index, reach in enumerate(reaches)]
    behind = ~np.any(own, axis=0)
    assert (np.sum([*own, behind], axis=0) == 1).all()
