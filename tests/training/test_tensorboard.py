"""TensorBoard: what is shown, how little of it, and that its absence is no failure."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_patch import recipe, trained

from splatbatch.config import Recipe
from splatbatch.files import read_lines
from splatbatch.scene.colors.correction import ColorCorrection
from splatbatch.scene.patches import Patch
from splatbatch.training.progress import MISSING, MOST_SAMPLES, ProgressRecorder, TensorBoard


def shown() -> Recipe:
    return Recipe.model_validate({**recipe(max_steps=30).model_dump(), "evaluation": {"tensorboard": True}})


def events(folder: Path) -> Any:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    return accumulator.EventAccumulator(str(folder), size_guidance={"histograms": 0}).Reload()


@pytest.mark.all
def test_every_figure_of_progress_is_shown(patch: Patch) -> None:
    pytest.importorskip("tensorboard")
    folder, _ = trained(patch, shown())
    found = events(folder.tensorboard)
    assert {"loss", "num_gaussians", "grad_norm", "psnr", "ssim"} <= set(found.Tags()["scalars"])
    losses = [record["loss"] for record in read_lines(folder.progress) if "loss" in record]
    assert [event.value for event in found.Scalars("loss")] == pytest.approx(losses)
    assert [event.step for event in found.Histograms("opacities")] == [1, 11, 21]


@pytest.mark.all
def test_figures_of_evened_photographs_are_shown_and_written_down(patch: Patch) -> None:
    pytest.importorskip("tensorboard")
    folder, _ = trained(replace(patch, tones={"img0.png": ColorCorrection((0.9, 1.0, 1.1))}), shown())
    assert {"psnr", "psnr_even", "ssim_even"} <= set(events(folder.tensorboard).Tags()["scalars"])
    last = [record for record in read_lines(folder.progress) if "psnr" in record][-1]
    assert last["psnr_even"] != last["psnr"]


def test_a_histogram_has_at_most_10000_samples(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    board, num = TensorBoard(tmp_path), 3 * MOST_SAMPLES
    board.histograms(1, {"means": torch.zeros(num, 3), "opacities": torch.randn(num), "scales": torch.ones(num, 3)})
    board.scalars(1, {"loss": 0.5, "phase": "train", "health": None})
    found = events(tmp_path)
    assert found.Histograms("opacities")[0].histogram_value.num == MOST_SAMPLES
    assert found.Tags()["scalars"] == ["loss"]


@pytest.mark.all
def test_without_the_package_there_is_one_warning_and_a_splat(patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    folder, splat = trained(patch, shown())
    assert splat.num_gaussians
    assert [record["warning"] for record in read_lines(folder.progress) if "warning" in record] == [MISSING]


def test_unless_asked_for_nothing_is_written(patch: Patch) -> None:
    folder, _ = trained(patch, recipe(max_steps=3))
    assert not folder.tensorboard.exists()


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "tb").touch()
    ProgressRecorder(tmp_path / "progress.jsonl", 3).show_on(tmp_path / "tb")
    (line,) = read_lines(tmp_path / "progress.jsonl")
    assert "cannot be written" in line["warning"]
