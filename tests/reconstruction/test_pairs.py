"""Which photographs are matched with which."""

from __future__ import annotations

import numpy as np

from splatbatch.reconstruction.pairs import likeness, pairs_of
from splatbatch.reconstruction.plan import Photograph, ReconstructionOptions, ReconstructionPlan


def survey_of(n: int, width: int = 50) -> ReconstructionPlan:
    places = [(46.5 + (one // width) * 1e-4, 8.0 + (one % width) * 1e-4, 500.0) for one in range(n)]
    return ReconstructionPlan(
        photographs=tuple(Photograph(f"{one:05d}.jpg", 1, "", at) for one, at in enumerate(places)), pairing="gps"
    )


def named(names: list[str], pairing: str = "sequence", rig: tuple[str, ...] = ()) -> ReconstructionPlan:
    return ReconstructionPlan(
        photographs=tuple(Photograph(name) for name in names), pairing=pairing, wanted=ReconstructionOptions(rig=rig)
    )


def test_by_gps_pairs_grow_with_the_photographs_not_with_their_square() -> None:
    each = [len(pairs_of(survey_of(n))) / n for n in (500, 5000)]
    assert all(10 < one < 12 for one in each)


def test_by_gps_neighbours_are_matched_and_far_ones_are_not() -> None:
    pairs = set(pairs_of(survey_of(500)))
    assert {(125, 126), (125, 175), (125, 176)} <= pairs and (0, 400) not in pairs


def test_few_are_matched_each_with_each() -> None:
    assert len(pairs_of(named([str(one) for one in range(10)], "all"))) == 45


def test_photographs_that_follow_each_other_are_matched_within_their_folder() -> None:
    pairs = set(pairs_of(named([*(f"a/{one}" for one in range(60)), *(f"b/{one}" for one in range(60))])))
    assert {(0, 1), (0, 4), (0, 8), (0, 32)} <= pairs
    assert not any((one < 60) != (other < 60) for one, other in pairs)


def test_of_a_rig_what_was_taken_at_once_is_matched() -> None:
    names = [f"{side}/{one:02d}" for side in ("left", "right") for one in range(50)]
    pairs = set(pairs_of(named(names, rig=("left", "right"))))
    assert {(10, 60), (10, 61), (11, 60)} <= pairs


def test_photographs_that_look_alike_are_matched_however_far_apart_they_stand() -> None:
    random = np.random.default_rng(1)
    scenes = [random.random((400, 128)).astype(np.float32) for _ in range(40)]
    seen = [scenes[one % 40][: 300 + one] for one in range(80)]
    pairs = set(pairs_of(named([f"{one}.jpg" for one in range(80)]), seen))
    assert sum((one, one + 40) in pairs for one in range(40)) == 40


def test_photographs_without_a_feature_are_like_nothing() -> None:
    assert not likeness([np.zeros((0, 128), np.float32)] * 3).any()
