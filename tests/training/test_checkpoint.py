"""A run that died goes on from its checkpoint and ends with the same splat, bit by bit."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_patch import prepared, recipe, trained

from splatbatch.config import Recipe
from splatbatch.files import read_json, read_lines
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.scene.colors.correction import ColorCorrection
from splatbatch.scene.patches import Patch
from splatbatch.training.attempt import train_attempt
from splatbatch.training.checkpoint import _moved
from splatbatch.training.evaluation.evaluate import Evaluator
from splatbatch.training.photos import coarse

STEPS, EVERY, DIES_AT = 40, 20, 25
# refines at steps 5, 10, … so that both sides of the checkpoint grow
GROWING = {"refine_start_iter": 0, "refine_stop_iter": 18_000, "refine_every": 5}


class Died(BaseException):
    """Not caught by anything of ours, like a signal."""


def growing(strategy: str, **training: Any) -> Recipe:
    settings = recipe(**{"max_steps": STEPS, "strategy": strategy, "checkpoint_every": EVERY, **training}).model_dump()
    return Recipe.model_validate({**settings, "refinement": GROWING, "evaluation": {"every": 10}})


def died(patch: Patch, settings: Recipe, name: str = "attempt-01", dies_at: int = DIES_AT) -> AttemptFolder:
    """An attempt that died after its checkpoint."""
    folder, measure = prepared(patch, settings, name), Evaluator.step_done

    def step_done(self: Evaluator, gaussians: Any, step: int) -> None:
        if step == dies_at:
            raise Died
        measure(self, gaussians, step)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Evaluator, "step_done", step_done)
        with pytest.raises(Died):
            train_attempt(folder)
    return folder


def warnings(folder: AttemptFolder) -> list[str]:
    return [record["warning"] for record in read_lines(folder.progress) if "warning" in record]


def test_a_state_is_moved_to_the_device_with_all_that_is_within() -> None:
    moved = _moved({"cells": {"a.jpg": torch.ones(2)}, "num": 3, "lr": torch.ones(())}, torch.device("meta"))
    assert (moved["cells"]["a.jpg"].device.type, moved["lr"].device.type, moved["num"]) == ("meta", "meta", 3)


@pytest.mark.all(but="default")
@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_twenty_steps_and_twenty_more_give_the_splat_of_forty_bit_by_bit(patch: Patch, strategy: str) -> None:
    settings = growing(strategy)
    _, straight = trained(patch, settings, "straight-01")
    assert died(patch, settings).checkpoint.exists()
    second, splat = trained(patch, settings, "attempt-02")
    metrics = read_json(second.metrics) or {}
    assert splat.path.read_bytes() == straight.path.read_bytes()
    assert metrics["resumed_from"] == {"attempt": "attempt-01", "step": EVERY}
    assert [one["step"] for one in metrics["between"]] == [10, 20, 30]
    assert metrics["final"] == straight.metrics["final"]
    assert not second.checkpoint.exists()


@pytest.mark.all
def test_a_run_from_coarse_to_fine_goes_on_at_its_size(patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coarse, "SMALLEST_PX", 8)
    settings = growing("mcmc", coarse_to_fine=True)
    _, straight = trained(patch, settings, "straight-01")
    died(patch, settings)
    _, splat = trained(patch, settings, "attempt-02")
    assert splat.path.read_bytes() == straight.path.read_bytes()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")
@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_on_a_gpu_a_run_goes_on_with_what_it_had_learned(patch: Patch, strategy: str) -> None:
    settings = growing(strategy, device="cuda")
    _, straight = trained(patch, settings, "straight-01")
    died(patch, settings)
    _, splat = trained(patch, settings, "attempt-02")
    assert splat.metrics["resumed_from"]["step"] == EVERY
    assert splat.metrics["final"]["psnr"] == pytest.approx(straight.metrics["final"]["psnr"], abs=0.5)


def test_the_latest_attempt_with_the_same_settings_is_gone_on_from(patch: Patch) -> None:
    for name, seed in (("attempt-01", 1), ("attempt-02", 2), ("attempt-03", 3)):
        died(patch, growing("mcmc", seed=seed), name)
    # of these settings none changes the splat
    fourth = prepared(patch, growing("mcmc", seed=2, images="host", workers=0, checkpoint_every=7), "attempt-04")
    assert (read_json(fourth.settings) or {})["resume"] == str(patch.images.parent / "attempt-02/checkpoint.pt")
    fifth = prepared(patch, growing("mcmc", seed=4), "attempt-05")
    assert (read_json(fifth.settings) or {})["resume"] is None


def test_other_photographs_start_anew_and_say_so(patch: Patch) -> None:
    died(patch, growing("mcmc"))
    (patch.images / "img3.png").write_bytes((patch.images / "img5.png").read_bytes())
    folder, _ = trained(patch, growing("mcmc"), "attempt-02")
    assert any("of other settings or photographs: training starts at step 0" in warning for warning in warnings(folder))
    assert (read_json(folder.metrics) or {})["resumed_from"] is None


@pytest.mark.all
def test_a_run_with_tones_goes_on_with_the_same_and_starts_anew_with_others(patch: Patch) -> None:
    toned, other = (
        replace(patch, tones={"img3.png": ColorCorrection((gain, 1.0, 1.0), (-0.1,))}) for gain in (0.8, 0.9)
    )
    _, straight = trained(toned, growing("mcmc"), "straight-01")
    died(toned, growing("mcmc"))
    _, again = trained(toned, growing("mcmc"), "attempt-02")
    assert again.path.read_bytes() == straight.path.read_bytes()
    assert again.metrics["resumed_from"] == {"attempt": "attempt-01", "step": EVERY}
    _, anew = trained(other, growing("mcmc"), "attempt-03")
    assert anew.metrics["resumed_from"] is None


@pytest.mark.all(but="cut")
@pytest.mark.parametrize("damage", ["cut", "foreign", "empty", "pickle"])
def test_a_checkpoint_that_cannot_be_read_starts_anew_and_says_so(patch: Patch, damage: str, tmp_path: Path) -> None:
    file = died(patch, growing("mcmc")).checkpoint
    if damage == "cut":
        os.truncate(file, file.stat().st_size // 2)
    if damage in ("foreign", "pickle"):
        torch.save({"step": 3} if damage == "foreign" else {"step": Path(tmp_path)}, file)
    if damage == "empty":
        file.write_bytes(b"")
    folder, _ = trained(patch, growing("mcmc"), "attempt-02")
    assert any("checkpoint cannot be read" in warning for warning in warnings(folder))


@pytest.mark.all
def test_a_checkpoint_from_another_device_starts_anew_and_says_so(patch: Patch) -> None:
    file = died(patch, growing("mcmc")).checkpoint
    record = torch.load(file, weights_only=True)
    record["run"]["optimizers"] = {name: {"lr": torch.ones(()), "state": {}} for name in record["run"]["optimizers"]}
    torch.save({**record, "kind": "cuda splatbatch.training.cuda.adam.Adam"}, file)
    folder, _ = trained(patch, growing("mcmc"), "attempt-02")
    assert any(
        "of another device or other GPU kernels: training starts at step 0" in warning for warning in warnings(folder)
    )


def test_without_being_asked_for_no_checkpoint_is_written(patch: Patch) -> None:
    assert not died(patch, recipe(max_steps=STEPS)).checkpoint.exists()


def test_a_checkpoint_that_does_not_fit_on_the_disk_is_a_warning(patch: Patch) -> None:
    folder = prepared(patch, growing("mcmc"))
    (folder.checkpoint / "in the way").mkdir(parents=True)  # a file cannot be renamed onto a folder
    train_attempt(folder)
    assert folder.splat.exists()
    assert "checkpoint.pt of step 20 could not be written" in warnings(folder)[0]
