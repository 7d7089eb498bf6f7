"""Which pixels of held-out photographs count: what training photographs see from three places, by tracks alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from splatbatch.scene.colmap.reconstruction import Reconstruction, read_reconstruction
from splatbatch.scene.colmap.rigs import CAMERA, RigFrame, Rigs
from splatbatch.scene.colmap.types import Camera, Floats, Image, Points, Tracks
from splatbatch.scene.coverage_mask import CoverageMask, coverage_mask
from splatbatch.scene.partition.border import Border
from splatbatch.scene.partition.boxes import box_between

SHARED = Path(__file__).parents[3] / "shared" / "data"
CAMERA_MODEL = Camera(1, "PINHOLE", 100, 80, (100.0, 100.0, 50.0, 40.0))
OUT = frozenset({"0"})
AROUND = (0, 1, 2, 3, -1, -2, -3)
X_Y_Z = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def taken_from(xs: Sequence[float], points: Floats, hidden: frozenset[int] = frozenset()) -> Reconstruction:
    """Photographs "0", "1", … looking along z from (x, 0, 0); each sees the points in it, but for those hidden."""
    images = [Image(n, str(n), 1, (1.0, 0, 0, 0), (-x, 0.0, 0.0)) for n, x in enumerate(xs)]
    seen = np.array([_sees(image, points) for image in images]).T.reshape(len(points), len(images))  # [P, I]
    seen[sorted(hidden), 1:] = False
    lengths = seen.sum(axis=1)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.nonzero(seen)[1].astype(np.uint32)
    tracks = Tracks(starts, ids, np.zeros(len(ids), np.uint32))
    num, grey = len(points), np.zeros((len(points), 3), np.uint8)
    cloud = Points(points, grey, np.zeros(num), lengths, np.arange(num, dtype=np.uint64), tracks)
    return Reconstruction(Path(), {1: CAMERA_MODEL}, tuple(images), cloud)


def _sees(image: Image, points: Floats) -> np.ndarray:
    with np.errstate(all="ignore"):
        local = points + image.translation
        pixels = 100 * local[:, :2] / local[:, 2:] + (50, 40)
    return ((pixels >= 0) & (pixels < (100, 80))).all(axis=1)


def ground(far: float = 10.0, most: float = 20.0, num: int = 3000) -> Floats:
    generator = np.random.default_rng(3)
    return np.column_stack([generator.uniform(-most, most, (num, 2)), far + generator.normal(0, 0.02, num)])


def share(found: CoverageMask) -> float:
    return float(found.cells["0"].mean())


def test_ground_counts_that_three_other_photographs_see() -> None:
    found = coverage_mask(taken_from(AROUND, ground()), OUT)
    assert share(found) > 0.95
    assert not found.why


def test_what_two_other_photographs_see_does_not_count() -> None:
    found = coverage_mask(taken_from((0, 1, 2), ground()), OUT)
    assert not found.cells["0"].any()
    assert found.why == "training photographs were taken from 2 of the 3 positions that are needed"


def test_places_less_than_two_degrees_apart_are_one() -> None:
    assert share(coverage_mask(taken_from((0, 1, 1.1, 2, 2.1), ground()), OUT)) == 0
    assert share(coverage_mask(taken_from((0, 1, 1.6, 2.2), ground()), OUT)) > 0.5


def test_what_a_rig_takes_at_one_moment_is_one_place() -> None:
    model = taken_from((0, 1, 2, -1), ground())
    pair = RigFrame(7, 1, (), ((CAMERA, 1, 1), (CAMERA, 1, 2)))
    assert share(coverage_mask(model, OUT)) > 0.5
    assert share(coverage_mask(model, OUT, rigs=Rigs((), (pair,)))) == 0


def test_what_is_hidden_from_the_others_does_not_count() -> None:
    behind = ground(20)
    points = np.concatenate([behind, ground(10)])
    model = taken_from(AROUND, points, hidden=frozenset(range(len(behind))))
    only_behind = model.points.tracks
    assert only_behind is not None
    seen_by_first = np.repeat(np.arange(len(points)) >= len(behind), np.diff(only_behind.starts))
    ids = np.where(seen_by_first & (only_behind.image_ids == 0), 99, only_behind.image_ids).astype(np.uint32)
    looking_through = replace(model, points=replace(model.points, tracks=replace(only_behind, image_ids=ids)))
    assert share(coverage_mask(looking_through, OUT)) < 0.05  # beyond their points nothing is known to hide


def test_a_triangle_over_a_step_in_depth_does_not_count() -> None:
    near, far = ground(10, num=20_000), ground(20, num=20_000)
    points = np.concatenate([near[near[:, 0] < -0.2], far[far[:, 0] > 0.6]])  # columns 48 to 53 of 100 lie between
    cells = coverage_mask(taken_from((0, 0.5, 1, 1.5, -0.5, -1, -1.5), points), OUT).cells["0"]
    middle = slice(cells.shape[1] * 49 // 100, cells.shape[1] * 52 // 100)
    assert cells[:, middle].mean() < 0.2
    assert cells[:, : cells.shape[1] // 3].mean() > 0.8 < cells[:, cells.shape[1] * 2 // 3 :].mean()


def test_ground_without_texture_counts() -> None:
    points = ground()
    shore = points[np.linalg.norm(points[:, :2], axis=1) > 2.5]  # a lake in the middle
    assert share(coverage_mask(taken_from(AROUND, shore), OUT)) > 0.95


def test_beyond_all_that_could_be_matched_only_a_rim_counts() -> None:
    points = ground()
    cells = coverage_mask(taken_from(AROUND, points[points[:, 0] < 3.5]), OUT).cells["0"]  # trees at the right edge
    assert cells[:, : cells.shape[1] * 80 // 100].mean() > 0.95
    assert not cells[:, cells.shape[1] * 90 // 100 :].any()


def part_of(whole: Reconstruction) -> Reconstruction:
    """A model that was cut: the same photographs, with the points of one side alone."""
    return taken_from(AROUND, whole.points.xyz[whole.points.xyz[:, 0] < -1])


def test_the_ground_goes_on_beyond_the_points_of_a_model_that_holds_a_part_of_them() -> None:
    assert share(coverage_mask(part_of(taken_from(AROUND, ground())), OUT)) > 0.95


def test_the_points_of_what_a_model_was_cut_from_count_where_poses_are_the_same() -> None:
    points = ground()
    whole = taken_from(AROUND, points[points[:, 0] < 3.5])
    found = coverage_mask(part_of(whole), OUT, source=whole)
    assert found.hash == coverage_mask(whole, OUT).hash
    elsewhere = taken_from([x + 0.01 for x in AROUND], whole.points.xyz)
    assert coverage_mask(part_of(whole), OUT, source=elsewhere).hash == coverage_mask(part_of(whole), OUT).hash


def test_what_lies_beyond_points_that_are_on_no_plane_does_not_count() -> None:
    generator = np.random.default_rng(1)
    points = ground()[:500] * (0.1, 0.1, 1)
    points[:, 2] = generator.uniform(5, 15, 500)
    cells = coverage_mask(taken_from((0, 0.5, 1, 1.5, -0.5, -1, -1.5), points), OUT).cells["0"]
    assert not cells[:, -cells.shape[1] // 10 :].any()


def test_a_place_out_of_reach_of_the_patch_does_not_count() -> None:
    box = box_between((None, None, None), (0.0, None, None))
    cells = coverage_mask(taken_from(AROUND, ground()), OUT, Border(X_Y_Z, box, box)).cells["0"]
    assert cells[:, : cells.shape[1] // 2 - 1].mean() > 0.95
    assert not cells[:, cells.shape[1] // 2 + 1 :].any()


def test_a_model_without_tracks_covers_nothing_and_says_so() -> None:
    model = taken_from((0, 1, 2, 3), ground())
    found = coverage_mask(replace(model, points=replace(model.points, tracks=None)), OUT)
    assert found.of("0", 100, 80) is None
    assert found.why == "the points of the model have no tracks, which list the photographs that show each point"


@pytest.mark.parametrize("spoil", [float("nan"), float("inf")])
def test_a_pose_or_point_that_is_none_spoils_no_other(spoil: float) -> None:
    model = taken_from((*AROUND, spoil), np.concatenate([ground(), [[spoil, 0, 10]]]))
    assert share(coverage_mask(model, OUT)) > 0.9


def test_the_hash_is_of_the_photographs_and_their_pixels() -> None:
    model = taken_from(AROUND, ground())
    assert coverage_mask(model, OUT).hash == coverage_mask(model, OUT).hash
    assert len({coverage_mask(model, out).hash for out in (OUT, frozenset({"1"}), frozenset({"0", "1"}))}) == 3


def test_pixels_follow_the_size_that_is_trained() -> None:
    cells = np.zeros((2, 4), dtype=bool)
    cells[0, 1:] = True
    pixels = CoverageMask({"0": cells}).of("0", 8, 6)
    assert pixels is not None
    assert pixels.shape == (6, 8)
    assert pixels[:3, 2:].all()
    assert pixels.sum() == 18


@pytest.mark.all(but="p2")
@pytest.mark.parametrize("name", ["p0", "p1", "p2", "p3"])
def test_most_of_what_drone_photographs_show_counts(name: str) -> None:
    sparse = SHARED / "caliterra" / "patches" / name / "sparse/0"
    if not sparse.is_dir():
        pytest.skip("needs the photographs of caliterra beside the checkout")
    model, source = (read_reconstruction(one, tracks=True) for one in (sparse, SHARED / "caliterra/sparse/0"))
    for known in (source, None):
        found = coverage_mask(model, {image.name for image in source.images[::8]}, source=known)
        assert np.mean([cells.mean() for cells in found.cells.values()]) >= 0.8


@pytest.mark.all
def test_pixels_of_400_photographs_take_ten_seconds_of_cpu_at_most(record_property: pytest.RecordProperty) -> None:
    points = ground(num=30_000) * (0.2 * 14, 0.25, 1) + (50, 0, 0)
    model = taken_from(np.arange(400) / 4, points)
    names = {image.name for image in model.images[::8]}
    begun = time.process_time()
    found = coverage_mask(model, names)
    seconds = time.process_time() - begun
    record_property("figure", f"{seconds:.1f} s of CPU for {len(names)} of 400 photographs")
    assert np.mean([cells.mean() for cells in found.cells.values()]) > 0.9
    assert seconds <= 10
