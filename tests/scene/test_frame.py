"""The frame: local models stay as they are, far ones keep their millimetres."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from fake_batch import QUARRY
from far_away import UTM, move

from splatbatch.config import NO_OFFSET
from splatbatch.scene.colmap.copies import write_shifted
from splatbatch.scene.colmap.reconstruction import Reconstruction, read_reconstruction
from splatbatch.scene.frame import ModelExtent, offset_for, shared_offset, shifted, span_between, span_of

MODEL = QUARRY / "sparse/0"


@pytest.fixture
def far(tmp_path: Path) -> Path:
    shutil.copytree(MODEL, tmp_path / "far")
    move(tmp_path / "far")
    return tmp_path / "far"


def span(model: Reconstruction) -> ModelExtent:
    found = span_of(model)
    assert found
    return found


def cube(middle: float, num: int = 1000) -> ModelExtent:
    found = span_between(np.random.default_rng(1).uniform(-1, 1, (num, 3)) + middle, np.zeros((0, 3)))
    assert found
    return found


def test_a_model_around_its_origin_needs_no_offset() -> None:
    assert offset_for([span(read_reconstruction(MODEL))]) == NO_OFFSET


def test_without_an_offset_the_very_same_model_is_returned() -> None:
    model = read_reconstruction(MODEL)
    assert shifted(model, NO_OFFSET) is model


def test_a_model_in_utm_gets_an_offset_of_whole_units_in_its_middle(far: Path) -> None:
    model = read_reconstruction(far)
    offset = offset_for([span(model)])
    assert all(value == round(value) for value in offset)
    assert np.abs(np.subtract(offset, UTM)).max() < 20
    trained = shifted(model, offset).points.xyz.astype(np.float32)
    assert np.abs(trained + np.array(offset) - model.points.xyz).max() < 0.001


def test_with_its_offset_a_far_model_is_the_near_one_again(far: Path) -> None:
    near, back = read_reconstruction(MODEL), shifted(read_reconstruction(far), UTM)
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
    assert offset_for([ModelExtent(NO_OFFSET, NO_OFFSET)]) == NO_OFFSET
    everything_in_one = span_between(np.full((9, 3), 4e6), np.full((1, 3), 4e6))
    assert everything_in_one and not everything_in_one.loses()
    assert span_between(np.zeros((0, 3)), np.zeros((0, 3))) is None


def test_points_and_poses_that_are_no_numbers_are_left_out(far: Path) -> None:
    model = read_reconstruction(far)
    model.points.xyz[:5] = np.nan
    assert span(model).loses()


def test_a_copy_for_other_programs_lies_where_the_offset_puts_it(far: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/cameras.bin").write_bytes(b"of another model")
    write_shifted(far, UTM, tmp_path / "copy")
    copy, near = read_reconstruction(tmp_path / "copy"), read_reconstruction(MODEL)
    order = [np.argsort(model.points.ids) for model in (copy, near)]
    assert np.abs(copy.points.xyz[order[0]] - near.points.xyz[order[1]]).max() < 2e-9
    assert [image.name for image in copy.images] == [image.name for image in near.images]
    assert copy.cameras == near.cameras


def test_patches_that_lie_together_share_one_offset_and_none_is_too_far() -> None:
    spans = {"p0": cube(500_000), "p1": cube(500_100)}
    assert shared_offset(spans) == (offset_for(spans.values()), ())


@pytest.mark.parametrize(
    ("middles", "apart"),
    [((0, 500_000), ("p1",)), ((500_000, 0, 500_100), ("p1",)), ((0, 5, 90, 4e6), ("p3",)), ((0, 100_000), ("p1",))],
)
def test_patches_that_would_lose_the_millimetre_are_too_far_apart(middles: list[float], apart: tuple[str]) -> None:
    spans = {f"p{number}": cube(middle) for number, middle in enumerate(middles)}
    offset, found = shared_offset(spans)
    assert found == apart
    assert not any(span.is_coarse(offset) for name, span in spans.items() if name not in apart)


def test_a_patch_that_is_added_far_away_does_not_move_the_others() -> None:
    spans = {"p0": cube(500_000), "p1": cube(0), "p2": cube(10)}
    assert shared_offset(spans, (500_000.0,) * 3) == ((500_000,) * 3, ("p1", "p2"))


def test_a_long_scene_keeps_the_millimetre_with_one_offset() -> None:
    spans = {f"p{number}": cube(500_000 + 3_000 * number) for number in range(10)}
    assert shared_offset(spans)[1] == ()


def test_coarse_points_have_coarse_steps() -> None:
    country = span_between(np.random.default_rng(1).uniform(-3e3, 3e3, (1000, 3)) + 4e4, np.zeros((0, 3)))
    assert country and country.step(NO_OFFSET) > 0.001 and not country.is_coarse(NO_OFFSET)
