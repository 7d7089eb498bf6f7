"""A splat says itself whether it is drawn antialiased, and is drawn so whatever the YAML says by then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from odd_patches import odd_patch
from small_patch import recipe, trained

from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.evaluation import ComparisonSettings, FilmSettings
from splatbatch.output.records.quality import InspectionSettings
from splatbatch.splats import SplatHeader, read_header, read_splat, write_splat
from splatbatch.training.film import draw
from splatbatch.training.formats import compare
from splatbatch.training.inspection.subject import open_subject
from splatbatch.training.rendering.view import drawn_as


@pytest.fixture(scope="module")
def attempt(tmp_path_factory: pytest.TempPathFactory) -> AttemptFolder:
    """An attempt that trained antialiased."""
    folder, _ = trained(odd_patch(tmp_path_factory.mktemp("patch"), "16_bits"), recipe(antialiased=True, max_steps=20))
    return folder


def told(attempt: AttemptFolder, *, antialiased: bool) -> dict[str, object]:
    changed = recipe(antialiased=antialiased, max_steps=20).model_dump(mode="json")
    return replace(attempt.read_settings(), recipe=changed).to_record()


def without_its_mode(attempt: AttemptFolder, tmp_path: Path) -> Path:
    path = tmp_path / "silent.ply"
    write_splat(path, read_splat(attempt.splat), 20)
    return path


def film(attempt: AttemptFolder, splat: Path, target: Path, *, antialiased: bool) -> bytes:
    size = {"num_frames": 2, "width": 8, "height": 6}  # so small that Gaussians are smaller than a pixel
    draw(FilmSettings.from_record({**told(attempt, antialiased=antialiased), "splat": str(splat), **size}), target)
    return target.read_bytes()


@pytest.mark.all
def test_a_splat_is_written_with_how_it_was_trained(attempt: AttemptFolder, tmp_path: Path) -> None:
    assert read_header(attempt.splat).antialiased is True
    plain, _ = trained(odd_patch(tmp_path, "16_bits"), recipe(max_steps=2))
    assert read_header(plain.splat).antialiased is False


@pytest.mark.parametrize("said", [None, True, False])
@pytest.mark.parametrize("of_yaml", [True, False])
def test_what_the_file_says_counts_more_than_the_yaml(*, of_yaml: bool, said: bool | None) -> None:
    header = SplatHeader(1, tuple(f"f_rest_{i}" for i in range(9)), 0, 1, antialiased=said)
    training = drawn_as(recipe(antialiased=of_yaml), header).training
    assert (training.antialiased, training.sh_degree) == (of_yaml if said is None else said, 1)


@pytest.mark.all
def test_a_film_is_drawn_as_the_splat_was_trained(attempt: AttemptFolder, tmp_path: Path) -> None:
    one, other = (film(attempt, attempt.splat, tmp_path / "f", antialiased=mode) for mode in (True, False))
    assert one == other
    silent = without_its_mode(attempt, tmp_path)
    one, other = (film(attempt, silent, tmp_path / "f", antialiased=mode) for mode in (True, False))
    assert one != other


@pytest.mark.all
def test_an_inspection_and_a_comparison_draw_as_the_splat_was_trained(attempt: AttemptFolder) -> None:
    settings = InspectionSettings.from_record({**told(attempt, antialiased=False), "splat": str(attempt.splat)})
    assert open_subject(settings, lambda: torch.device("cpu")).options.antialiased
    one, other = (
        compare(ComparisonSettings.from_record({**told(attempt, antialiased=mode), "splats": {"": str(attempt.splat)}}))
        for mode in (True, False)
    )
    assert one == other and one["num_photos"]
