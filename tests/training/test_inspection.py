"""Planted sicknesses, each found by its own figure; and sound splats, of which nothing is said."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from process_family import wait_until
from scipy.ndimage import gaussian_filter, uniform_filter
from sick_bed import SICKNESSES, Bed, is_found, made_ill
from sick_splats import behind_veil
from sick_trainings import quarry, trained

from splatbatch.files import write_json
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.quality import Inspection, InspectionSettings, QualityFigure, grade
from splatbatch.scene.patches import Patch
from splatbatch.training.inspection import photographs, surface
from splatbatch.training.inspection import subject as described
from splatbatch.training.inspection.__main__ import run
from splatbatch.training.inspection.inspect import TABLE, blur_of, inspect, worse_db
from splatbatch.training.inspection.pictures import illustrated
from splatbatch.training.rendering.rasterize import depth_of, rasterize, with_depths
from splatbatch.training.rendering.view import RasterOptions, RenderCamera

CHEAP = ("floaters", "haze", "depth", "misregistered", "exposure")
SEEDS = (111, 112)
"""Of planting; limits were chosen on seeds 1 to 4, and changed after 71 and 72."""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    """The quarry's first patch, trained in seconds at a quarter of its size."""
    return trained(quarry("p0"), tmp_path_factory.mktemp("bed"), 160, 70, resolution="1/4")


@pytest.fixture(scope="module")
def sound(bed: Bed) -> Inspection:
    return bed.inspect()


@pytest.mark.all
def test_a_sound_splat_has_no_sickness_and_every_figure(sound: Inspection) -> None:
    assert (sound.grade, sound.found) == ("A", ())
    assert [figure.name for figure in sound.figures] == [row.name for row in TABLE]
    assert all(figure.advice and figure.value is not None and not figure.why for figure in sound.figures)
    assert {"cover", "blur", "exposure", "registration", "shift"} <= set(min(sound.photos.items())[1])
    assert sum({"psnr", "psnr_covered", "distance"} <= one.keys() for one in sound.photos.values()) == 4
    assert sound.cells and all(cell["photos"] >= 1 for cell in sound.cells)
    assert {"x", "y", "z", "size", "photos", "angle", "resolution", "weak"} == set(sound.cells[0])


@pytest.mark.all
@pytest.mark.parametrize("sickness", CHEAP)
def test_a_planted_sickness_is_found_by_its_own_figure(bed: Bed, sickness: str, tmp_path: Path) -> None:
    found = made_ill(bed, sickness, SEEDS[0], tmp_path / "ill").inspect()
    assert is_found(found, sickness), [(figure.name, figure.value) for figure in found.figures]
    assert found.grade in "BCD"


@pytest.mark.all
def test_photographs_are_named_that_are_blurred(bed: Bed, tmp_path: Path) -> None:
    ill = made_ill(bed, "blurred", 73, tmp_path / "ill")
    changed = {path.relative_to(ill.settings.images).as_posix() for path in Path(ill.settings.images).rglob("*.jpg")}
    changed -= {name for name in changed if (Path(ill.settings.images) / name).is_symlink()}
    (figure,) = (figure for figure in ill.inspect().found if figure.name == "blurred")
    assert set(figure.subjects) == changed and figure.value == 5


@pytest.mark.all
def test_the_photograph_is_named_that_a_veil_stands_before(bed: Bed, tmp_path: Path) -> None:
    ill = made_ill(bed, "veil", 74, tmp_path / "ill")
    (figure,) = (figure for figure in ill.inspect().found if figure.name == "veil")
    assert figure.subjects[0] == behind_veil(bed.model(), 74).name


@pytest.mark.all
def test_the_record_is_read_as_it_was_written(sound: Inspection) -> None:
    assert Inspection.from_record(sound.to_record()) == sound
    assert Inspection.from_record({"figures": 3, "cells": "x", "photos": [1], "grade": None}) == Inspection()


def test_a_record_with_a_figure_that_is_not_made_any_more_is_read() -> None:
    found = Inspection.from_record({"grade": "B", "figures": [{"name": "consistency", "value": 5.0, "limit": 4.0}]})
    assert found.grade == "B" and [(one.name, one.state) for one in found.found] == [("consistency", "weak")]


@pytest.mark.parametrize(
    ("values", "expected"),
    [((1, 1), "A"), ((2.5, 1), "B"), ((2.5, 2.5), "C"), ((9, 1), "C"), ((9, 9), "D"), ((None, None), "")],
)
def test_the_grade_is_of_what_exceeds_its_limits(values: tuple[float | None, ...], expected: str) -> None:
    assert grade(tuple(QualityFigure("x", value, 2.0) for value in values)) == expected


def test_a_splat_is_held_against_a_blur_of_the_photographs_up_to_a_good_figure() -> None:
    assert worse_db({"a": 20.0, "b": 22.0}, {"a": 25.0, "b": 23.0}) == 3
    assert worse_db({"a": 31.0}, {"a": 40.0}) == 0
    assert worse_db({}, {}) is None


@pytest.mark.all
def test_a_splat_that_its_device_does_not_hold_is_drawn_view_by_view_and_found_the_same(
    bed: Bed, sound: Inspection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(described, "AT_ONCE", 1000)
    subject = bed.subject(room=0)
    shares = [float(subject._met(look.small.view).double().mean()) for look in subject.looks]
    assert not subject.is_held and 0 < min(shares) < 1
    values = [[figure.value or 0.0 for figure in one.figures] for one in (inspect(subject), sound)]
    assert values[0] == pytest.approx(values[1], rel=1e-3, abs=1e-4)


@pytest.mark.all
def test_what_stands_by_reads_and_decodes_before_it_goes(bed: Bed, tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    told = InspectionSettings(**vars(bed.settings), splat=str(bed.splat), inputs="k")
    write_json(folder.settings, told.to_record())
    inspecting = threading.Thread(target=run, args=(folder,), kwargs={"stands_by": True})
    inspecting.start()
    wait_until(lambda: folder.last_progress().phase == "standby")
    assert not folder.metrics.exists()
    write_json(folder.go, {"gpu": None, "slot": "cpu0", "env": {}})
    inspecting.join()
    found = folder.read(folder.metrics, Inspection)
    assert found is not None and found.inputs == "k" and len(found.figures) == len(TABLE)


@pytest.mark.all
def test_a_blur_keeps_the_mean_colours_of_squares_alone(bed: Bed) -> None:
    photo = bed.subject().holdout[0].small
    blur = blur_of(photo)
    assert blur.shape == photo.pixels.shape
    assert torch.allclose(blur.mean(), photo.pixels.float().mean() / 255, atol=0.01)
    assert blur.std() < photo.pixels.float().std() / 255


@pytest.mark.all
def test_a_camera_moved_to_its_right_stands_there(bed: Bed) -> None:
    view = bed.subject().training[0].small.view
    step = view.moved(0.5).center() - view.center()
    assert np.allclose(step, 0.5 * view.viewmat[0, :3].numpy(), atol=1e-5)


@pytest.mark.all
def test_points_fall_on_the_pixels_of_their_keypoints(bed: Bed) -> None:
    subject = bed.subject()
    errors = np.concatenate([look.errors for look in subject.looks])
    assert 0.1 < np.median(errors) < 3  # in 1/1000 of the width
    assert (surface.depth_error(subject) or 0) < 0.25


@pytest.mark.all
def test_what_several_figures_look_at_is_drawn_once(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = list[RenderCamera]()

    def count(gaussians: Mapping[str, torch.Tensor], view: RenderCamera, options: RasterOptions) -> object:
        drawn.append(view)
        return with_depths(gaussians, view, options)

    monkeypatch.setattr(described, "with_depths", count)
    subject = bed.subject()
    found = inspect(subject)
    assert len(drawn) == len(subject.looks) + 2 * surface.MOST_BETWEEN
    illustrated(subject, found, bed.splat.parent / "pictures")
    assert len(drawn) <= len(subject.looks) + 2 * surface.MOST_BETWEEN + 3


@pytest.mark.all
def test_colours_and_depths_of_one_pass_are_those_of_two(bed: Bed) -> None:
    subject = bed.subject()
    look = subject.training[0]
    shown, (depths, alphas) = subject.shown(look), depth_of(subject.drawn, look.small.view, subject.options)
    colors = rasterize(subject.drawn, look.small.view, subject.options).colors
    assert torch.allclose(shown.colors, colors, atol=1e-5) and torch.allclose(shown.alphas, alphas, atol=1e-5)
    assert torch.allclose(shown.depths, depths, rtol=1e-3)


def test_smoothing_is_that_of_scipy() -> None:
    picture = torch.rand(19, 33, generator=torch.Generator().manual_seed(1))
    device = torch.device("cpu")
    fine, window = (
        photographs.smooth(picture, weights)
        for weights in (photographs.gaussian(1.0, device), torch.full((15,), 1 / 15))
    )
    assert np.allclose(fine, gaussian_filter(picture.numpy(), 1.0), atol=1e-5)
    assert np.allclose(window, uniform_filter(picture.numpy(), 15), atol=1e-5)


def test_a_point_is_off_where_most_pictures_draw_it_elsewhere() -> None:
    points = np.repeat(np.arange(4), 2)
    errors = np.array([0.01, 0.01, 0.001, 0.001, 1.0, 1.0, 1e-9, 1e-9])
    assert surface.share_off(points, errors) == pytest.approx(1 / 4)
    assert surface.share_off(points[:0], errors[:0]) is None


def beds(folder: Path, real_photos: Path) -> dict[str, Bed]:
    caliterra = Patch("p0", real_photos / "sparse/0", real_photos / "images")
    wanted = [("quarry p0", quarry("p0"), 1000, 101), ("quarry p1", quarry("p1"), 600, 102)]
    wanted += [("caliterra", caliterra, 1200, 103), ("caliterra", caliterra, 700, 104)]
    return {f"{name}, seed {seed}": trained(patch, folder / str(seed), n, seed) for name, patch, n, seed in wanted}


@pytest.mark.long
def test_of_sicknesses_planted_with_new_seeds_nearly_all_are_found(
    tmp_path: Path, real_photos: Path, record_property: pytest.RecordProperty
) -> None:
    every = beds(tmp_path, real_photos)
    falsely = {name: [figure.name for figure in bed.inspect().found] for name, bed in every.items()}
    counts, missed = Counter[str](), Counter[str]()
    for name, bed in every.items():
        # a hole leaves 2 of the 20 photographs of a patch of the quarry
        for sickness in [one for one in SICKNESSES if one != "coverage" or "caliterra" in name]:
            for seed in SEEDS:
                ill = made_ill(bed, sickness, seed, tmp_path / f"{bed.splat.parent.parent.name}-{sickness}-{seed}")
                counts[sickness] += 1
                missed[sickness] += not is_found(ill.inspect(), sickness)
    table = ", ".join(f"{name} {counts[name] - missed[name]}/{counts[name]}" for name in counts)
    record_property("figure", f"{table}; on sound ones {falsely}")
    assert counts.total() >= 60 and missed.total() <= 0.05 * counts.total(), table
    assert not any(falsely.values()), falsely
