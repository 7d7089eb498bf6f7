"""Cleaning: each rule takes what it says, nothing else, and says how many."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import pinhole
from tiled import partition_of_boxes, write_parts

from splatbatch.scene.colmap.types import Camera, Image
from splatbatch.scene.partition.boxes import EVERYWHERE
from splatbatch.scene.reprojection import project
from splatbatch.splats import Gaussians, read_splat
from splatbatch.splats import clean as looking
from splatbatch.splats.clean import IN_WORDS, CleaningViews, PatchRules, PointProximity, faint, views_of
from splatbatch.splats.merge import merge_splats

NONE = (0.0, 0.0, 0.0)
LOOKING_DOWN = (0.0, 1.0, 0.0, 0.0)
"""About x by 180 degrees: a camera above looks at the ground."""


def above(places: list[tuple[float, float]], height: float = 10.0) -> list[Image]:
    """Return cameras over a ground at z = 0 that look straight down."""
    return [Image(i, f"{i}.jpg", 1, LOOKING_DOWN, (-x, y, height)) for i, (x, y) in enumerate(places)]


def views(images: list[Image], offset=NONE) -> CleaningViews:
    return views_of(images, {1: pinhole()}, offset)


GRID = [(float(x), float(y)) for x in range(-4, 5, 2) for y in range(-4, 5, 2)]


def gaussians(means: list[tuple[float, float, float]], opacity: float = 0.9, scale: float = 0.05) -> Gaussians:
    num = len(means)
    logits = np.full(num, np.log(opacity / (1 - opacity)))
    quats = np.tile([1.0, 0, 0, 0], (num, 1))
    parts = (
        np.array(means),
        np.full((num, 3), np.log(scale)),
        quats,
        logits,
        np.zeros((num, 3)),
        np.zeros((num, 3, 3)),
    )
    return Gaussians(*(part.astype(np.float32) for part in parts))


def cleaned(splat: Gaussians, folder: Path, removed) -> tuple[dict[str, int], np.ndarray]:
    """Return what cleaning removes, by rule, and the means it leaves."""
    part = replace(write_parts(partition_of_boxes(folder, [EVERYWHERE]), splat)[0], removed=removed)
    found = dict(merge_splats(folder / "scene.ply", [part], NONE).parts[0].removed)
    return {rule: num for rule, num in found.items() if num}, read_splat(folder / "scene.ply").means


@pytest.fixture
def rules() -> PatchRules:
    ground = np.array([(x, y, 0.0) for x in np.linspace(-4, 4, 20) for y in np.linspace(-4, 4, 20)])
    return PatchRules(views(above(GRID)), views(above(GRID)), ground)


KEPT = (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("splat", "rule"),
    [
        (gaussians([(1, 1, 0)], opacity=0.004), "faint"),
        (gaussians([(1, 1, 0)], opacity=0.006), ""),
        (gaussians([(0, 0, 0)], scale=3.0), "oversized"),
        (gaussians([(0, 0, 0)], scale=0.5), ""),
        (gaussians([(0, 0, -100)], scale=3.0), ""),  # far out it may be large
        (gaussians([(30, 0, 0)]), "unseen"),
        (gaussians([(30, 0, 0)], opacity=0.09), ""),
        (gaussians([(0, 0, 20)]), "unseen"),  # behind all cameras
        (gaussians([(0, 0, 6)]), "astray"),  # hangs among the cameras
        (gaussians([(0, 0, 4)]), ""),
        (gaussians([(0, 0, -60)]), ""),  # far behind the ground, as a sky is
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_rule_takes_what_it_says(splat: Gaussians, rule: str, rules: PatchRules, tmp_path: Path) -> None:
    both = Gaussians(*(np.concatenate(pair) for pair in zip(vars(splat).values(), vars(gaussians([KEPT])).values())))  # noqa: B905
    removed, left = cleaned(both, tmp_path, rules.removed)
    assert removed == ({rule: 1} if rule else {})
    assert len(left) == (1 if rule else 2)
    assert np.array_equal(left[-1], KEPT)


def test_what_a_camera_of_another_patch_sees_is_no_floater(tmp_path: Path, rules: PatchRules) -> None:
    ground = np.array([(x, 0.0, 0.0) for x in np.linspace(-4, 34, 200)])
    both = views(above(GRID) + above([(x, 0) for x in (28, 29, 30)]))
    assert cleaned(gaussians([KEPT, (30, 0, 0)]), tmp_path, rules.removed)[0] == {"unseen": 1}
    assert (
        cleaned(gaussians([KEPT, (30, 0, 0)]), tmp_path, PatchRules(both, views(above(GRID)), ground).removed)[0] == {}
    )


@pytest.mark.all
def test_cleaning_takes_no_more_memory_than_the_merge_may(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    splat = gaussians([tuple(place) for place in rng.uniform(-5, 5, (200_000, 3)).tolist()])
    ground = rng.uniform(-5, 5, (20_000, 3)) * (1, 1, 0.01)
    images = above([(float(x), float(y)) for x, y in rng.uniform(-5, 5, (60, 2))])
    part = write_parts(partition_of_boxes(tmp_path, [EVERYWHERE]), splat)[0]
    tracemalloc.start()
    merge_splats(
        tmp_path / "scene.ply", [replace(part, removed=PatchRules(views(images), views(images), ground).removed)], NONE
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 1.5 * part.source.path.stat().st_size


def test_of_a_backdrop_only_the_faint_go(tmp_path: Path) -> None:
    splat = gaussians([(900.0, 0, 0)], scale=99)
    assert cleaned(splat, tmp_path, faint)[0] == {}
    assert set(IN_WORDS) == {"faint", "oversized", "unseen", "astray"}


def test_an_offset_moves_cameras_and_points_alike(tmp_path: Path) -> None:
    utm = np.array([500_000.0, 4_500_000.0, 100.0])
    images = [replace(i, translation=tuple(np.array(i.translation) - i.rotation() @ utm)) for i in above(GRID)]
    assert np.allclose(views(images, tuple(utm)).centers, views(above(GRID)).centers, atol=1e-6)


@given(seed=st.integers(0, 999), num=st.integers(1, 60), least=st.integers(1, 4))
def test_who_is_seen_by_how_many_is_as_each_camera_says_by_itself(seed: int, num: int, least: int) -> None:
    rng = np.random.default_rng(seed)
    images = []
    for i in range(int(rng.integers(1, 40))):
        quat = rng.normal(size=4)
        images.append(Image(i, f"{i}.jpg", 1, tuple(quat / np.linalg.norm(quat)), tuple(rng.normal(size=3))))
    places, camera = rng.normal(size=(num, 3)) * 3, pinhole()
    counts = np.zeros(num, dtype=int)
    for image in images:
        x, y = project(camera, places @ image.rotation().T + np.array(image.translation)).T
        wide, high = camera.width / 10, camera.height / 10
        with np.errstate(invalid="ignore"):
            counts += (x >= -wide) & (x <= camera.width + wide) & (y >= -high) & (y <= camera.height + high)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(looking, "PAIRS_AT_ONCE", int(rng.integers(1, 200)))
        patch.setattr(looking, "MOST_NEIGHBOURS", int(rng.integers(1, 40)))
        assert np.array_equal(views(images).seen_by_fewer(places, least), counts < least)


@given(seed=st.integers(0, 999), within=st.floats(0.01, 3))
def test_who_is_far_from_all_points_is_as_their_distances_say(seed: int, within: float) -> None:
    rng = np.random.default_rng(seed)
    points, places = rng.normal(size=(int(rng.integers(1, 50)), 3)), rng.normal(size=(80, 3)) * 2
    distances = np.linalg.norm(places[:, None] - points, axis=2).min(axis=1)
    assert np.array_equal(PointProximity(points, within).are_far(places), distances > within)


def test_a_camera_that_no_pinhole_stands_for_sees_all_before_it() -> None:
    fisheye = Camera(1, "OPENCV_FISHEYE", 96, 72, (40.0, 40.0, 48.0, 36.0, 0.1, 0.0, 0.0, 0.0))
    seen = views_of(above([(0.0, 0.0)]), {1: fisheye}, NONE)
    assert seen.seen_by_fewer(np.array([(99.0, 0.0, 0.0), (0.0, 0.0, 11.0)]), 1).tolist() == [False, True]


def test_a_camera_without_a_sound_pose_or_focal_length_sees_nothing() -> None:
    broken = replace(above([(0.0, 0.0)])[0], quat=(0.0, 0.0, 0.0, 0.0))
    assert len(views([broken])) == 0
    assert len(views_of(above([(0.0, 0.0)]), {1: replace(pinhole(), params=(0.0, 1.0, 1.0, 1.0))}, NONE)) == 0
