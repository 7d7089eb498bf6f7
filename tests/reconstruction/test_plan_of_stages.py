"""The stages of a plan, and what makes which of them anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from splatbatch.reconstruction.estimate import expected_of
from splatbatch.reconstruction.plan import CameraGroup, Photograph, ReconstructionOptions, ReconstructionPlan, stages

PLAN = ReconstructionPlan(
    "photos",
    tuple(Photograph(f"{one:03d}.jpg", 1, f"{one}", (46.0 + one * 1e-4, 8.0, 500.0)) for one in range(100)),
    (CameraGroup("OPENCV", 4000, 3000, 2900.0, True),),
    pairing="gps",
    mapper="incremental",
)


def keys(plan: ReconstructionPlan) -> dict[str, str]:
    return {one.name: one.key for one in stages(plan)}


def changed(plan: ReconstructionPlan) -> set[str]:
    before, now = keys(PLAN), keys(plan)
    return {name for name in now if before.get(name) != now[name]}


def test_every_photograph_is_in_one_chunk() -> None:
    assert [place for chunk in PLAN.chunks() for place in chunk] == list(range(100))
    assert [one.name for one in stages(PLAN)][:4] == ["features-1", "features-2", "features-3", "features-4"]


def test_every_stage_follows_what_it_needs() -> None:
    done: set[str] = set()
    for one in stages(PLAN):
        assert done.issuperset(one.needs)
        done.add(one.name)


def test_a_folder_that_was_moved_makes_nothing_anew() -> None:
    assert not changed(replace(PLAN, images="elsewhere"))
    assert replace(PLAN, images="elsewhere").key == PLAN.key


def test_another_photograph_makes_its_chunk_anew_and_what_follows() -> None:
    others = (*PLAN.photographs[:99], replace(PLAN.photographs[99], sha256="other"))
    found = changed(replace(PLAN, photographs=others))
    assert [name for name in sorted(found) if name.startswith("features")] == ["features-6"]
    assert {"pairs", "matching-1", "mapping", "model"} <= found


@pytest.mark.parametrize(
    ("wanted", "first"),
    [
        (ReconstructionOptions(features=2048), "features-1"),
        (ReconstructionOptions(seed=1), "mapping"),
        (ReconstructionOptions(rig=("a", "b")), "pairs"),
    ],
)
def test_a_setting_makes_anew_what_reads_it(wanted: ReconstructionOptions, first: str) -> None:
    found = changed(replace(PLAN, wanted=wanted))
    names = [one.name for one in stages(PLAN)]
    assert min(found, key=names.index) == first


def test_more_threads_take_less_time_and_more_memory() -> None:
    (one, mib), (many, more) = (expected_of(PLAN, stages(PLAN)[0], threads) for threads in (1, 8))
    assert many < one / 4 and more > 4 * mib


def test_another_zone_changes_the_model() -> None:
    others = tuple(replace(one, place=None) for one in PLAN.photographs)
    assert "model" in changed(replace(PLAN, photographs=others))
