"""The frame: local models stay as they are, far ones keep their millimetres."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from fake_batch import QUARRY
from far_away import UTM, move

from splatbatch.config import NO_OFFSET
from splatbatch.scene.colmap.reconstruction import Reconstruction, read_reconstruction
from splatbatch.scene.frame import Span, offset_for, read_shifted, shifted, span_between, span_of, write_shifted

MODEL = QUARRY / "sparse/0"


@pytest.fixture
def far(tmp_path: Path) -> Path:
    shutil.copytree(MODEL, tmp_path / "far")
    move(tmp_path / "far")
    return tmp_path / "far"


def span(model: Reconstruction) -> Span:
    found = span_of(model)
    assert found
    return found


def cube(middle: float, num: int = 1000) -> Span:
    found = span_between(np.random.default_rng(1).uniform(-1, 1, (num, 3)) + middle, np.zeros((0, 3)))
    assert found
    return found


def test_a_model_around_its_origin_needs_no_offset() -> None:
    assert offset_for([span(read_reconstruction(MODEL))]) == NO_OFFSET


def test_without_an_offset_the_very_same_model_is_returned() -> None:
    model = read_reconstruction(MODEL)
    assert shifted(model, NO_OFFSET) is model


def test_a_model_in_utm_gets_an_offset_of_whole_units_in_its_middle(far: Path) -> None:
    offset = offset_for([span(read_reconstruction(far))])
    assert all(value == round(value) for value in offset)
    assert np.abs(np.subtract(offset, UTM)).max() < 20


def test_with_its_offset_a_far_model_is_the_near_one_again(far: Path) -> None:
    near, back = read_reconstruction(MODEL), read_shifted(far, UTM)
    assert np.abs(back.points.xyz - near.points.xyz).max() < 2e-9  # float64 at 4.5e6 has steps of 9e-10
    centers = [[image.center() for image in model.images] for model in (near, back)]
    assert np.abs(np.subtract(*centers)).max() < 1e-8


def test_all_patches_have_one_offset_between_them() -> None:
    offset = offset_for([cube(500_000), cube(500_100)])
    assert offset == (500_050, 500_050, 500_050)


def test_one_far_patch_is_enough_for_an_offset() -> None:
    assert offset_for([cube(0), cube(500_000)]) != NO_OFFSET


@pytest.mark.parametrize("middle", [0.0, 3.0, 100.0, 1000.0])
def test_as_long_as_float32_is_fine_enough_there_is_none(middle: float) -> None:
    assert offset_for([cube(middle)]) == NO_OFFSET


def test_a_lone_mismatched_point_does_not_make_a_scene_far() -> None:
    points = np.random.default_rng(1).uniform(-1, 1, (5000, 3))
    points[7] = 4e6
    found = span_between(points, np.zeros((1, 3)))
    assert found and not found.loses()


def test_a_point_at_the_origin_does_not_make_a_far_scene_near() -> None:
    points = np.random.default_rng(1).uniform(-1, 1, (5000, 3)) + 4e6
    points[7] = 0
    found = span_between(points, points[:3])
    assert found and found.loses()


def test_points_in_one_place_and_no_points_have_no_offset() -> None:
    assert offset_for([Span(NO_OFFSET, NO_OFFSET)]) == NO_OFFSET
    everything_in_one = span_between(np.full((9, 3), 4e6), np.full((1, 3), 4e6))
    assert everything_in_one and not everything_in_one.loses()
    assert span_between(np.zeros((0, 3)), np.zeros((0, 3))) is None


def test_points_and_poses_that_are_no_numbers_are_left_out(far: Path) -> None:
    model = read_reconstruction(far)
    model.points.xyz[:5] = np.nan
    assert span(model).loses()


def test_a_copy_for_other_programs_lies_where_the_offset_puts_it(far: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    write_shifted(far, UTM, tmp_path / "copy")
    copy, near = read_reconstruction(tmp_path / "copy"), read_reconstruction(MODEL)
    order = [np.argsort(model.points.ids) for model in (copy, near)]
    assert np.abs(copy.points.xyz[order[0]] - near.points.xyz[order[1]]).max() < 2e-9
    assert [image.name for image in copy.images] == [image.name for image in near.images]
