"""What a training is expected to need, and the size its photographs are trained at; pure, so tables say it all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_batch import write_model
from hypothesis import given
from hypothesis import strategies as st

from splatbatch.config import Recipe, Training
from splatbatch.scene.colmap.reconstruction import count_observations, read_reconstruction
from splatbatch.scene.memory_estimate import (
    PatchSize,
    bytes_per_gaussian,
    estimate,
    expected_gaussians,
    measure,
    why_tight,
)
from splatbatch.scene.patches import Patch
from splatbatch.scene.photos.folders import divisor_of

QUARRY = Path(__file__).parents[2] / "examples/quarry/sparse/0"
BIG = PatchSize(200_000, ((1548, 1357),) * 375)


def recipe(**training: Any) -> Recipe:
    return Recipe.model_validate({"training": training})


def test_a_million_gaussians_take_what_gsplat_documents_with_its_kernels_and_less_with_ours() -> None:
    assert bytes_per_gaussian(Training(kernels="gsplat")) == 1464
    assert bytes_per_gaussian(Training()) == 1080
    need = estimate(recipe(images="host", kernels="gsplat"), PatchSize(1_000_000, ((1548, 1357),)))
    # gsplat's documentation: 1.75 GB for 1 M, to which the context comes
    assert 1.6e9 / 2**20 < need.gpu_mib - 512 < 2.1e9 / 2**20


@pytest.mark.parametrize(("images", "card_mib", "home"), [
    ("auto", None, "gpu"), ("auto", 8_192, "gpu"), ("auto", 4_096, "host"),
    ("gpu", 2_048, "gpu"), ("host", None, "host"),
])  # fmt: skip
def test_photographs_lie_on_the_gpu_where_everything_fits(images: str, card_mib: int | None, home: str) -> None:
    need = estimate(recipe(images=images), BIG, card_mib)
    assert (need.photos, need.photos_mib) == (home, -(-375 * 3 * 1548 * 1357 // 2**20))


def test_half_resolution_needs_a_quarter_for_photographs() -> None:
    full, half = (estimate(recipe(resolution=name), BIG) for name in ("full", "1/2"))
    assert half.photos_mib == pytest.approx(full.photos_mib / 4, rel=0.01)
    assert half.gpu_mib < full.gpu_mib - 1_500


@pytest.mark.parametrize(("training", "num_points", "num"), [
    ({"strategy": "default", "cap_max": 400_000}, 8_000, 400_000),
    ({"strategy": "default", "cap_max": "2x"}, 8_000, 16_000),
    ({"strategy": "default", "cap_max": 5_000}, 8_000, 5_000),
    ({"strategy": "mcmc", "cap_max": 400_000}, 8_000, 400_000),
    ({"strategy": "mcmc", "cap_max": 400_000, "max_steps": 300}, 1_000, 1_276),
    ({"strategy": "mcmc", "cap_max": 400_000}, 0, 0),
])  # fmt: skip
def test_no_more_gaussians_are_expected_than_can_come(training: dict[str, Any], num_points: int, num: int) -> None:
    assert expected_gaussians(recipe(**training), num_points) == num


@pytest.mark.parametrize(("cap_max", "cap"), [(7, 7), ("2x", 200), ("0.5x", 50), ("0.001x", 1), ("1.25x", 125)])
def test_a_cap_is_a_number_or_a_multiple_of_the_points(cap_max: int | str, cap: int) -> None:
    assert Training.model_validate({"cap_max": cap_max}).cap(100) == cap


@pytest.mark.parametrize(("kernels", "per_pixel"), [("auto", 24), ("gsplat", 75)])
def test_photographs_that_may_be_evened_take_more_of_each_pixel(kernels: str, per_pixel: int) -> None:
    even, as_is = (estimate(recipe(colors=colors, kernels=kernels), BIG).gpu_mib for colors in ("auto", "as_is"))
    assert even - as_is == pytest.approx(per_pixel * max(w * h for w, h in BIG.sizes) / 2**20, abs=1)


def test_on_the_cpu_no_gpu_memory_is_needed() -> None:
    need = estimate(recipe(device="cpu"), BIG)
    assert (need.gpu_mib, need.photos) == (0, "host")
    assert need.host_mib > 3_000


def test_a_card_that_is_too_small_is_said_with_a_remedy() -> None:
    need = estimate(recipe(images="gpu"), BIG)
    assert "lower training.cap_max" in why_tight(need, 4_096)
    assert not why_tight(need, 81_920)


@given(num_points=st.integers(0, 10**7), side=st.integers(1, 20_000), num=st.integers(0, 50), cap=st.integers(1, 10**8))
def test_every_need_is_whole_and_grows_with_the_patch(num_points: int, side: int, num: int, cap: int) -> None:
    settings = recipe(cap_max=cap)
    small = estimate(settings, PatchSize(num_points, ((side, side),) * num))
    large = estimate(settings, PatchSize(num_points + 1000, ((side, side),) * (num + 1)))
    assert 0 < small.gpu_mib <= large.gpu_mib
    assert 0 < small.host_mib <= large.host_mib


@pytest.mark.parametrize(("resolution", "side", "divisor"), [
    ("full", 8_000, 1), ("1/2", 100, 2), ("1/8", 100, 8),
    ("auto", 1_600, 1), ("auto", 1_601, 2), ("auto", 4_000, 4), ("auto", 6_400, 4), ("auto", 60_000, 8),
])  # fmt: skip
def test_auto_leaves_no_side_longer_than_1600_px(resolution: str, side: int, divisor: int) -> None:
    assert divisor_of(resolution, [(640, 480), (side, side // 2)]) == divisor


def test_a_patch_is_measured_without_its_points_and_photographs(tmp_path: Path) -> None:
    write_model(tmp_path / "sparse/0", ["a.png", "b.png", "c.png"], size=(32, 24))
    assert measure(Patch("p0", tmp_path / "sparse/0", tmp_path / "images")) == replace(
        PatchSize(36, ((32, 24),) * 3), track_length=3.0
    )


@pytest.mark.parametrize(("num", "side", "track_length", "cap"), [
    (40, 1000, 10.0, 500_000),  # 4 million pixels of surface
    (40, 1000, 5.0, 1_000_000),
    (400, 2000, 8.0, 1_000_000),
    (24, 300, 6.0, 400_000),
    (24, 300, 0.0, 1_000_000),  # a model without tracks
])  # fmt: skip
def test_as_many_gaussians_as_pixels_and_overlap_ask_for(num: int, side: int, track_length: float, cap: int) -> None:
    extent = replace(PatchSize(9_000, ((side, side),) * num), track_length=track_length)
    assert extent.settle(recipe()).training.cap_max == cap
    assert extent.settle(recipe(cap_max=700)).training.cap_max == 700


def test_photographs_of_half_the_size_ask_for_fewer() -> None:
    extent = replace(PatchSize(9_000, ((2000, 2000),) * 40), track_length=10.0)
    assert [extent.settle(recipe(resolution=one)).training.cap_max for one in ("full", "1/2")] == [1_000_000, 500_000]


def test_observations_are_counted_alike_in_both_formats(tmp_path: Path) -> None:
    write_model(tmp_path / "sparse/0", ["a.png", "b.png", "c.png"], size=(32, 24))
    for sparse in (tmp_path / "sparse/0", QUARRY):
        assert count_observations(sparse) == read_reconstruction(sparse).points.track_lengths.sum() > 0


def test_kernels_were_once_said_to_be_plain() -> None:
    assert Training.model_validate({"kernels": "plain"}).kernels == "gsplat"
