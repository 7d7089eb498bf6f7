"""Photographs that hurt, left out: what that brings is measured by two short trainings."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from sick_bed import Bed, made_ill
from sick_trainings import quarry, trained

from splatbatch.scene.colmap.reconstruction import read_images
from splatbatch.training.inspection.leave_out import dropped, named

STEPS = 160
PLANTED = (
    *(("misregistered", 141), ("misregistered (shown)", 145), ("exposure", 143), ("misregistered", 142)),
    ("blurred", 144),
)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    """The quarry's first patch, trained in seconds at a quarter of its size."""
    return trained(quarry("p0"), tmp_path_factory.mktemp("bed"), STEPS, 75, resolution="1/4")


def of_training(bed: Bed) -> set[str]:
    return {image.name for image in read_images(Path(bed.settings.sparse))} - set(bed.settings.holdout)


@pytest.mark.all
def test_sound_photographs_name_none_and_nothing_is_trained(bed: Bed, tmp_path: Path) -> None:
    found = bed.inspect()
    assert named(found) == ()
    measured = dropped(bed.settings, named(found), tmp_path / "dropped")
    assert measured.gain_db is None and "no photograph" in measured.why and not (tmp_path / "dropped").exists()


@pytest.mark.all
def test_left_out_are_named_photographs_alone_and_the_same_ones_are_measured(bed: Bed, tmp_path: Path) -> None:
    stages: list[str] = []
    hurting = tuple(sorted(of_training(bed))[:2])
    measured = dropped(bed.settings, (*hurting, bed.settings.holdout[0]), tmp_path / "dropped", stages.append)
    assert stages == ["with named photographs", "without named photographs"]
    assert measured.photos[:2] == hurting and measured.steps == STEPS
    assert measured.gain_db is not None and abs(measured.gain_db) < 1.5
    assert not (tmp_path / "dropped").exists()


@pytest.mark.all
def test_where_too_few_photographs_would_be_left_it_says_so(bed: Bed, tmp_path: Path) -> None:
    measured = dropped(bed.settings, tuple(sorted(of_training(bed))[2:]), tmp_path / "dropped")
    assert measured.gain_db is None and "2 photographs would be left to train on" in measured.why
    nothing = replace(bed.settings, holdout=())
    assert dropped(nothing, tuple(sorted(of_training(bed))[:1]), tmp_path / "x").why.endswith("0 to measure on")


@pytest.mark.long
def test_leaving_out_what_is_named_mostly_gains_half_a_decibel_where_it_was_planted(
    tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    bed = trained(quarry("p0"), tmp_path / "bed", 400, 131, resolution="1/4")
    assert named(bed.inspect()) == ()
    gains: dict[str, float] = {}
    for sickness, seed in PLANTED:
        ill = made_ill(bed, sickness, seed, tmp_path / f"{sickness}-{seed}")
        measured = dropped(ill.settings, named(ill.inspect()), tmp_path / "dropped")
        gains[f"{sickness}, seed {seed}"] = measured.gain_db or 0.0
    record_property("figure", {name: round(gain, 2) for name, gain in gains.items()})
    assert min(gains.values()) > 0.2 and statistics.median(gains.values()) >= 0.5, gains
