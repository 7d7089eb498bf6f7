"""The scene's figures are those that a training takes of the same splat, photograph by photograph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cut_quarry import QUARRY, lay_out, quarry_splat

from splatbatch.config import Recipe
from splatbatch.hashing import sha256_of
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.colors import tone_in, tones_to_record
from splatbatch.output.records.evaluation import EvaluationSettings, PhotoMeasurement, SceneEvaluation
from splatbatch.output.records.metrics import QualityFigures, TrainingSettings
from splatbatch.scene.colmap.reconstruction import read_reconstruction
from splatbatch.scene.colmap.rigs import read_rigs
from splatbatch.scene.colors.correction import ColorCorrection
from splatbatch.scene.coverage_mask import coverage_mask
from splatbatch.scene.partition.border import border_of
from splatbatch.training.border import read_border
from splatbatch.training.evaluation.evaluate import evaluate
from splatbatch.training.gaussians import load_splat
from splatbatch.training.photos.dataset import PhotoFolders, boundary_mask, decode_views, with_covered
from splatbatch.training.scene.loaded_scene import open_scene
from splatbatch.training.scene.measure import PhotographRenderings, measure, measured

CPU = torch.device("cpu")
RECIPE = Recipe.model_validate({"training": {"sh_degree": 1, "resolution": "1/4", "device": "cpu"}})


@pytest.mark.all
@pytest.mark.parametrize("tones", [{}, {"left/0001.jpg": ColorCorrection((1.2, 1.0, 0.8), (-0.1,))}])
def test_a_photograph_is_measured_as_in_training(tmp_path: Path, tones: dict[str, ColorCorrection]) -> None:
    partition = lay_out(tmp_path / "quarry")
    names = tuple(sorted(partition.test)[:2])
    settings = EvaluationSettings(
        splat=str(tmp_path / "quarry/output/scene/splat.ply"),
        partition=str(partition.path),
        images=str(QUARRY / "images"),
        recipe=RECIPE.model_dump(mode="json"),
        holdout=names,
        tones=tones_to_record(tones),
        lacking={"p0": "not trained yet"},
    )
    found = measure(open_scene(settings, RECIPE, CPU), AttemptFolder(tmp_path))
    model = read_reconstruction(QUARRY / "sparse/0", tracks=True)
    views = decode_views(
        model, PhotoFolders(QUARRY / "images", tone_of=tone_in(settings)), frozenset(names), RECIPE.training
    )
    pixels = coverage_mask(model, names, rigs=read_rigs(QUARRY / "sparse/0"))
    views = with_covered(views, pixels)
    splat = load_splat(quarry_splat(), views.frame, CPU)
    expected = evaluate(splat, views.holdout, RECIPE, is_evened=bool(tones))
    assert expected is not None and found.photos.keys() == expected["images"].keys() == set(names)
    for name, figures in expected["images"].items():
        assert found.photos[name].psnr == pytest.approx(figures["psnr"], abs=0.01)
        assert found.photos[name].ssim == pytest.approx(figures["ssim"], abs=0.001)
        assert found.photos[name].psnr_covered == pytest.approx(figures["psnr_covered"], abs=0.01)
        assert found.photos[name].psnr_even == pytest.approx(figures.get("psnr_even"), abs=0.01)
    assert found.total.psnr_covered == pytest.approx(expected["psnr_covered"], abs=0.01)
    assert found.covered.hash == pixels.hash
    assert "p0: not trained yet" in found.seams[0].problem


@pytest.mark.all
def test_the_gain_over_a_patch_is_of_the_pixels_that_it_was_measured_on(tmp_path: Path) -> None:
    partition = lay_out(tmp_path / "quarry")
    names, splat = tuple(sorted(partition.test)[:2]), tmp_path / "quarry/output/scene/splat.ply"
    border = border_of(partition, "p0")
    assert border is not None
    behind = {"backdrop": str(splat), "backdrop_sha256": sha256_of(splat), "border": border.to_record()}
    settings = EvaluationSettings(
        splat=str(splat),
        partition=str(partition.path),
        images=str(QUARRY / "images"),
        recipe=RECIPE.model_dump(mode="json"),
        holdout=names,
        own={"p0": {name: QualityFigures(psnr=20.0) for name in names}},
        before_backdrop=("p0",),
        **behind,
    )
    found = measure(open_scene(settings, RECIPE, CPU), AttemptFolder(tmp_path))
    model = read_reconstruction(QUARRY / "sparse/0")
    views = decode_views(model, PhotoFolders(QUARRY / "images"), frozenset(names), RECIPE.training)
    around = read_border(TrainingSettings(**behind), views.frame, RECIPE.training)
    expected = evaluate(
        load_splat(quarry_splat(), views.frame, CPU), boundary_mask(replace(views, border=around)).holdout, RECIPE
    )
    assert expected is not None and len(expected["images"]) == 2
    for name, figures in expected["images"].items():
        # training has the backdrop in parts near the border: a few pixels of the mask differ
        answered, whole = found.photos[name].answered["p0"], found.photos[name].psnr or 0
        assert answered == pytest.approx(figures["psnr"], abs=0.2)
        assert abs(figures["psnr"] - answered) < abs(figures["psnr"] - whole)
    assert found.patches["p0"].answered_psnr == pytest.approx(expected["psnr"], abs=0.2)
    assert found.patches["p0"].gain_db == pytest.approx(expected["psnr"] - 20.0, abs=0.2)


def test_a_gain_is_that_on_photographs_which_both_have_measured() -> None:
    pairs = [
        PhotographRenderings(PhotoMeasurement(psnr=25.0), QualityFigures(psnr=24.0), 26.0),
        PhotographRenderings(PhotoMeasurement(psnr=30.0)),
    ]
    found = measured(pairs)
    assert (found.num_photos, found.psnr, found.own_psnr, found.gain_db) == (2, 27.5, 24.0, 2.0)
    assert measured([]).psnr is None


@pytest.mark.parametrize(
    "written", [{}, {"seams": 3, "photos": []}, {"total": "?"}, {"seams": [{"color_offsets": "red"}]}]
)
def test_what_a_stranger_has_left_of_an_evaluation_is_read_all_the_same(written: dict[str, object]) -> None:
    found = SceneEvaluation.from_record(written)
    assert found.total.psnr is None and all(seam.color_offsets == () for seam in found.seams)
    assert SceneEvaluation.from_record(found.to_record()) == found
