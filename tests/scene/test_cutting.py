"""Where cuts lie: the cameras' frame, even costs, photographs by what they see; and wishes that cannot be met."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import vast_scene
from fake_batch import ROOT, SHARED

from splatbatch.errors import ConfigError, SceneError
from splatbatch.scene.partition.boxes import owners
from splatbatch.scene.partition.cuts import SHARE, UncuttableBox, evenness, halves, principal_axes
from splatbatch.scene.partition.plan import PartitionPlan, SplitOptions, parse_axis, parse_grid, plan_split, read_boxes

QUARRY = ROOT / "examples" / "quarry" / "sparse" / "0"
CALITERRA = SHARED / "data" / "caliterra" / "sparse" / "0"
NOWHERE = Path("no-such-split")


@functools.cache
def planned(source: Path, wish: SplitOptions) -> PartitionPlan:
    if not source.is_dir():
        pytest.skip(f"{source} is not here")
    return plan_split(source, NOWHERE, wish)


CASES = pytest.mark.parametrize(
    ("source", "wish", "num_patches"),
    [
        (CALITERRA, SplitOptions(max_images=40), 4),
        (QUARRY, SplitOptions(grid=(2, 1)), 2),
        (CALITERRA, SplitOptions(grid=(2, 2)), 4),
    ],
    ids=["caliterra", "quarry", "caliterra-grid"],
)


@CASES
def test_real_scenes_are_cut_in_as_many_even_patches_as_asked(source: Path, wish: SplitOptions, num_patches: int):
    plan = planned(source, wish)
    assert len(plan.partition.cores) == num_patches
    assert evenness([core.cost for core in plan.partition.cores]) <= 1.6
    assert all(core.num_images <= (wish.max_images or 75) for core in plan.partition.cores)


@CASES
def test_who_sees_a_seventh_of_a_core_is_in_its_patch(source: Path, wish: SplitOptions, num_patches: int):
    plan = planned(source, wish)
    owner = plan.partition.owner(plan.partition.in_axes(plan.observations.points.xyz))
    for index, core in enumerate(plan.partition.cores):
        for photo in range(len(plan.observations.images)):
            seen = owner[plan.observations.point[plan.observations.photo == photo]]
            assert np.mean(seen == index) < SHARE or plan.parts[core.name].photos[photo]


@CASES
def test_every_point_lies_in_one_core_and_most_are_in_its_patch(source: Path, wish: SplitOptions, num_patches: int):
    plan = planned(source, wish)
    places = plan.partition.in_axes(plan.observations.points.xyz)
    holding = np.sum([core.core.holds(places) for core in plan.partition.cores], axis=0)
    assert (holding == 1).all()
    for core in plan.partition.cores:
        inside = core.core.holds(places)
        assert (plan.parts[core.name].points & inside).sum() >= 0.97 * inside.sum()
        assert core.bounds.within(core.core)
        assert core.core.within(core.grown)


def test_a_photograph_is_in_some_patch_even_if_it_sees_little_of_each():
    plan = planned(CALITERRA, SplitOptions(grid=(4, 4)))
    assert np.any([part.photos for part in plan.parts.values()], axis=0).all()


def _on_a_wall(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return cameras before a leaning wall, points on it, and the direction in which it faces."""
    facing = np.array([0.6, 0.64, 0.48])
    along = np.cross(facing, (0, 0, 1.0)) / np.linalg.norm(np.cross(facing, (0, 0, 1.0)))
    down = np.cross(facing, along)
    spread = rng.uniform((-20, -5), (20, 5), (200, 2))
    wall = spread[:, :1] * along + spread[:, 1:] * down
    return wall + 3 * facing + rng.normal(0, 0.1, (200, 3)), wall, facing


def test_a_wall_is_no_ground_plane():
    cameras, points, facing = _on_a_wall(np.random.default_rng(1))
    axes = np.array(principal_axes(cameras, points))
    assert axes[2] @ facing > 0.99  # to the cameras, not into the wall
    assert np.allclose(axes @ axes.T, np.eye(3), atol=1e-8)
    assert np.linalg.det(axes) > 0


def test_a_lone_strip_of_flight_is_cut_along_it_and_across_as_the_points_lie():
    rng = np.random.default_rng(2)
    cameras = np.stack([np.linspace(0, 50, 60), rng.normal(0, 0.01, 60), 20 + rng.normal(0, 0.02, 60)], axis=1)
    points = rng.uniform((0, -8, -0.5), (50, 8, 0.5), (500, 3))
    axes = np.abs(principal_axes(cameras, points))
    assert axes[0][0] > 0.99
    assert axes[2][2] > 0.99


def test_a_given_axis_is_up_as_it_was_given():
    cameras, points, _ = _on_a_wall(np.random.default_rng(3))
    axes = np.array(principal_axes(cameras, points, (0.0, 0.0, -5.0)))
    assert axes[2].tolist() == [0, 0, -1]
    with pytest.raises(ConfigError, match=r"--axis 0\.0,0\.0,0\.0: the length of this direction is 0"):
        principal_axes(cameras, points, (0.0, 0.0, 0.0))


def test_a_camera_that_was_registered_far_away_turns_no_axis():
    cameras, points, _ = _on_a_wall(np.random.default_rng(4))
    stray = np.concatenate([cameras, [[0.0, 0.0, 9000.0]], [[np.nan] * 3]])
    assert principal_axes(stray, points) == principal_axes(cameras, points)


def test_halves_weigh_the_same_and_share_all_places():
    rng = np.random.default_rng(5)
    places, weights = rng.normal(0, (9, 3, 1), (4000, 3)), rng.uniform(0, 1, 4000)
    boxes = halves(places, weights, 5)
    weighed = np.bincount(owners(boxes, places), weights, 5)
    assert evenness(weighed.tolist()) < 1.02
    assert {side for box in boxes for side in (box.lower[2], box.upper[2])} == {-np.inf, np.inf}


def test_points_in_one_place_cannot_be_cut():
    with pytest.raises(UncuttableBox):
        halves(np.ones((50, 3)), np.ones(50), 2)


@pytest.mark.parametrize(
    ("wish", "words", "hint"),
    [
        (SplitOptions(max_images=5), r"--max-images 5: not possible", r"--max-images \d+, \d+ patch"),
        (SplitOptions(grid=(30, 40)), r"--grid 30x40: some of its 1200 patches", r"Nearest possible: --grid \d+x\d+"),
        (SplitOptions(grid=(2, 2), max_images=20), r"--max-images 20: a patch would have \d+", r"--max-images \d+"),
        (SplitOptions(overlap=0.9), r"--overlap 0.9: .*nearest: 0.5", ""),
        (SplitOptions(overlap=-1), r"--overlap -1: .*nearest: 0", ""),
    ],
)
def test_what_cannot_be_is_refused_with_the_nearest_that_can(wish: SplitOptions, words: str, hint: str):
    with pytest.raises(ConfigError, match=words) as caught:
        plan_split(QUARRY, NOWHERE, wish)
    assert not hint or __import__("re").search(hint, caught.value.hint)


def test_a_model_whose_tracks_name_images_that_it_lacks_has_nothing_to_cut(tmp_path: Path):
    for part, text in (("cameras", "1 PINHOLE 96 72 90 90 48 36"), ("images", ""), ("points3D", "1 0 0 3 9 9 9 1 7 0")):
        (tmp_path / f"{part}.txt").write_text(f"# {part}\n{text}\n")
    with pytest.raises(SceneError, match="nothing to cut: 0 images and 1 point"):
        plan_split(tmp_path, NOWHERE, SplitOptions())


def test_the_nearest_possible_is_possible():
    with pytest.raises(ConfigError) as caught:
        plan_split(QUARRY, NOWHERE, SplitOptions(max_images=5))
    most = int(caught.value.hint.split("--max-images ")[1].split(",")[0])
    assert (
        max(core.num_images for core in plan_split(QUARRY, NOWHERE, SplitOptions(max_images=most)).partition.cores)
        <= most
    )


@pytest.mark.parametrize("text", ["3", "0x2", "axb", "3x4x5", "-1x2"])
def test_a_grid_that_is_none_is_refused(text: str):
    with pytest.raises(ConfigError, match="--grid"):
        parse_grid(text)


@pytest.mark.parametrize("text", ["up", "1,2", "1,2,x"])
def test_an_axis_that_is_none_is_refused(text: str):
    with pytest.raises(ConfigError, match="--axis"):
        parse_axis(text)


def drawn(folder: Path, *sides: tuple[float | None, float | None]) -> Path:
    path = folder / "boxes.json"
    boxes = [
        {"name": f"b{i}", "lower": [low, -9, None], "upper": [high, 9, None]} for i, (low, high) in enumerate(sides)
    ]
    path.write_text(json.dumps({"boxes": boxes}))
    return path


def test_drawn_boxes_are_cores_whose_outer_sides_are_open(tmp_path: Path):
    boxes = read_boxes(drawn(tmp_path, (-30, 1), (1, 30)))
    plan = plan_split(QUARRY, NOWHERE, SplitOptions(boxes=boxes))
    assert [core.name for core in plan.partition.cores] == ["b0", "b1"]
    assert plan.partition.cores[0].core.upper == (1.0, np.inf, np.inf)
    assert plan.partition.cores[0].core.lower == (-np.inf,) * 3


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        (((-30, 2), (1, 30)), "b0 and b1 overlap"),
        (((-30, 1), (2, 30)), "leave space between them"),
        (((1, -30),), "boxes.0: .*should not be empty"),
    ],
)
def test_drawn_boxes_that_do_not_share_space_are_refused(tmp_path: Path, sides, words: str):
    with pytest.raises(ConfigError, match=words):
        read_boxes(drawn(tmp_path, *sides))


@pytest.mark.parametrize("text", ["", "[]", '{"boxes": []}', '{"boxes": [{"name": "a/b"}]}', '{"format": 1}', "\x00"])
def test_a_file_without_boxes_is_refused_by_its_name(tmp_path: Path, text: str):
    (tmp_path / "boxes.json").write_text(text)
    with pytest.raises(ConfigError, match=r"boxes\.json"):
        read_boxes(tmp_path / "boxes.json")


def test_boxes_that_are_nested_without_end_are_refused(tmp_path: Path):
    (tmp_path / "boxes.json").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match=r"no JSON with boxes"):
        read_boxes(tmp_path / "boxes.json")


def test_a_box_that_nobody_sees_is_refused(tmp_path: Path):
    boxes = read_boxes(drawn(tmp_path, (-30, 500), (500, 600)))
    with pytest.raises(ConfigError, match=r"patch b1 would have \d+ photographs and 0 points"):
        plan_split(QUARRY, NOWHERE, SplitOptions(boxes=boxes))


def test_a_flight_over_a_plain_is_cut_in_a_dozen_even_patches(tmp_path: Path):
    source = vast_scene.write(vast_scene.flight(200, 20_000), tmp_path)
    plan = plan_split(source, NOWHERE, SplitOptions(max_images=45))
    assert max(core.num_images for core in plan.partition.cores) <= 45
    assert evenness([core.cost for core in plan.partition.cores]) <= 1.6
