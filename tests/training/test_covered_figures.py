"""A splat is judged on the pixels that training photographs see; every attempt at a patch on the same ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_patch import prepared, recipe, trained
from test_evaluate import with_evaluation

from splatbatch.config import Recipe
from splatbatch.files import read_json, write_json
from splatbatch.output.records.metrics import Metrics, deciding
from splatbatch.scene.coverage_mask import CoverageMask
from splatbatch.scene.patches import Patch
from splatbatch.trainers.builtin import settings_for
from splatbatch.training import attempt
from splatbatch.training.attempt import train_attempt
from splatbatch.training.evaluation import evaluate
from splatbatch.training.evaluation.evaluate import covered_figures, covered_psnr
from splatbatch.training.evaluation.pictures import ranked
from splatbatch.training.photos import dataset
from splatbatch.training.photos.dataset import TrainingImages, with_covered
from splatbatch.training.photos.posed_image import PosedImage
from splatbatch.training.rendering.view import RenderCamera

HEIGHT, WIDTH = 40, 60


def photo(mask: torch.Tensor | None = None) -> PosedImage:
    generator = torch.Generator().manual_seed(4)
    pixels = torch.randint(0, 256, (HEIGHT, WIDTH, 3), generator=generator, dtype=torch.uint8)
    return PosedImage("a", RenderCamera(torch.eye(4), torch.eye(3), WIDTH, HEIGHT), pixels, mask)


def half_covered(one: PosedImage, columns: int = WIDTH // 2) -> PosedImage:
    cells = torch.zeros(HEIGHT, WIDTH, dtype=torch.bool)
    cells[:, :columns] = True
    views = TrainingImages((), (one,), None, (), {})  # type: ignore[arg-type]
    return with_covered(views, CoverageMask({"a": cells.numpy()})).holdout[0]


def spoilt(one: PosedImage, columns: slice, by: float) -> torch.Tensor:
    taken = one.pixels.float() / 255
    taken[:, columns] = (taken[:, columns] + by).clamp(0, 1)
    return taken


def test_what_is_wrong_where_nobody_looked_changes_no_covered_figure() -> None:
    one = half_covered(photo())
    fair, invented = (spoilt(one, slice(start, None), 0.1) for start in (0, 0))
    invented[:, WIDTH // 2 + 10 :] = 0
    assert covered_figures(fair, one.pixels, one, recipe()) == pytest.approx(
        covered_figures(invented, one.pixels, one, recipe()), abs=1e-3
    )
    assert covered_figures(fair, one.pixels, one, recipe())["covered_share"] == 0.5


def test_the_covered_psnr_is_of_the_covered_pixels_alone() -> None:
    one = half_covered(photo())
    taken = spoilt(one, slice(None), 0.1)
    error = (taken - one.pixels.float() / 255)[:, : WIDTH // 2].square().mean()
    assert covered_psnr(taken, one) == pytest.approx(-10 * float(error.log10()), abs=1e-4)
    assert covered_figures(taken, one.pixels, one, recipe())["psnr_covered"] == covered_psnr(taken, one)


def test_a_photograph_of_which_next_to_nothing_is_covered_is_not_judged_by_it() -> None:
    one = half_covered(photo(), columns=1)
    assert covered_figures(one.pixels.float() / 255, one.pixels, one, recipe()) == {
        "covered_share": pytest.approx(1 / WIDTH)
    }
    assert covered_psnr(one.pixels.float() / 255, one) is None


def test_masked_pixels_are_never_covered() -> None:
    mask = torch.ones(HEIGHT, WIDTH, dtype=torch.bool)
    mask[:, : WIDTH // 2] = False
    one = half_covered(photo(mask), columns=WIDTH // 2 + 15)
    assert one.covered_share == 0.5
    assert (
        covered_figures(spoilt(one, slice(0, WIDTH // 2 - 5), 0.5), one.pixels, one, recipe())["psnr_covered"] == 100.0
    )


def facts(patch: Patch, name: str, **training: Any) -> dict[str, Any]:
    folder, _ = trained(patch, recipe(**training), name)
    metrics, written = read_json(folder.metrics) or {}, read_json(folder.covered) or {}
    assert metrics["covered"]["hash"] == written["hash"]
    return metrics


@pytest.mark.all
def test_the_covered_pixels_are_the_same_whatever_trains(patch: Patch) -> None:
    settings: tuple[dict[str, Any], ...] = ({}, {"seed": 7}, {"max_steps": 3}, {"strategy": "mcmc", "max_steps": 3})
    found = [facts(patch, f"attempt-{number:02d}", **one) for number, one in enumerate(settings, start=1)]
    assert len({one["covered"]["hash"] for one in found}) == 1
    shares = {one["final"]["covered_share"] for one in found}
    assert len(shares) == 1
    assert all("psnr_covered" in one["final"] for one in found) == (max(shares) > 0)


def test_where_nothing_is_covered_it_is_said_and_all_pixels_decide(
    patch: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "covered_of", lambda *_: CoverageMask({}, "no point names its photographs"))
    folder, _ = trained(patch, recipe(max_steps=3))
    metrics = Metrics.from_record(read_json(folder.metrics))
    assert (metrics.covered.why, metrics.final.psnr_covered) == ("no point names its photographs", None)
    assert deciding(metrics.final) == metrics.final.psnr
    warnings = [line.warning for line in folder.read_progress() if line.warning]
    assert any("(no point names its photographs), so the PSNR of all pixels decides" in one for one in warnings)


def test_a_single_held_out_photograph_is_judged_alone(patch: Patch, tmp_path: Path) -> None:
    (tmp_path / "names").write_text("img4.png")
    settings = {**recipe(max_steps=3).model_dump(), "evaluation": {"holdout_list": str(tmp_path / "names")}}
    folder, _ = trained(patch, Recipe.model_validate(settings))
    final = (read_json(folder.metrics) or {})["final"]
    assert final["psnr_covered"] == final["images"]["img4.png"]["psnr_covered"]
    assert final["num_images"] == 1


def test_the_worst_view_is_the_one_that_is_worst_where_others_look() -> None:
    views = {"a": {"psnr": 18.0, "psnr_covered": 36.0}, "b": {"psnr": 30.0, "psnr_covered": 31.0}, "c": {"psnr": 9.0}}
    assert ranked(views) == {"worst": "b", "best": "a"}


@pytest.mark.all
def test_every_evaluation_has_the_covered_figures(patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "TRAINING_VIEWS", 1)
    folder, _ = trained(patch, with_evaluation(every=30))
    metrics = read_json(folder.metrics) or {}
    assert {"psnr_covered", "ssim_covered", "covered_share"} <= metrics["between"][0].keys()


@pytest.mark.all
def test_an_accepted_splat_is_measured_on_the_pixels_of_the_new_one_where_its_own_are_others(patch: Patch) -> None:
    first, splat = trained(patch, recipe(max_steps=3))
    told = {"path": str(splat.path), "sha256": "s", "largest": [32, 24]}
    ours = read_json(first.metrics) or {}
    for number, known in ((2, "others"), (3, ours["covered"]["hash"])):
        folder = prepared(patch, recipe(max_steps=5), f"attempt-{number:02d}")
        settings = read_json(folder.settings) or {}
        write_json(folder.settings, settings | {"earlier": {**told, "covered": known}})
        train_attempt(folder)
        found = (read_json(folder.metrics) or {}).get("earlier")
        assert (found is not None) == (known == "others")
        if found:
            assert found["sha256"] == "s"
            assert found["final"]["psnr_covered"] == pytest.approx(ours["final"]["psnr_covered"], abs=0.01)


def test_the_points_of_what_a_patch_was_cut_from_count_where_it_is_named(
    patch: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(dataset, "coverage_mask", lambda *given: seen.append(given[-1]) or CoverageMask())
    source = patch.images.parent / "scene"
    (source / "sparse").mkdir(parents=True)
    (source / "sparse/0").symlink_to(patch.sparse.resolve())
    for named in (None, source):
        dataset.covered_of(settings_for(recipe(), replace(patch, source=named), "p0"))
    assert [one and one.folder for one in seen] == [None, source / "sparse/0"]
