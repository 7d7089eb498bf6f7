"""What every trainer promises; a new one joins by a line in TRAINERS."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import external_program
import numpy as np
import pytest
from fake_batch import ROOT
from fake_trainer import SCRIPT_VARIABLE, FakeTrainer, splat_of
from program_here import call_here

from splatbatch.config import Recipe, Training
from splatbatch.config.trainers.programs import Artifact, Program
from splatbatch.files import read_json, write_json
from splatbatch.outcome import Rejected, Splat
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.scene.patches import Patch
from splatbatch.splats import read_header, write_splat
from splatbatch.trainers import TRAINERS, Trainer, open_trainer
from splatbatch.trainers.availability import missing

if TYPE_CHECKING:
    from fake_batch import FakeBatch

STEPS = 10
RECIPE = Recipe(training=Training(max_steps=STEPS, device="cpu", cap_max=200))
FOREIGN = Program(
    command=(sys.executable, external_program.__file__, "--steps={steps}", "--output={output}"),
    artifact=Artifact(ply=("point_cloud_*.ply",)),
)


def written_down() -> Callable[[Recipe], Trainer]:
    """Return the trainer that CONTRIBUTING.md shows, from the text there."""
    code = (ROOT / "CONTRIBUTING.md").read_text().partition("```python\n")[2].partition("```")[0]
    program = Path(tempfile.mkdtemp(prefix="contributing-")) / "points.py"
    program.write_text(code)
    spec = importlib.util.spec_from_file_location("points", program)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PointsTrainer


EVERY_TRAINER: dict[str, Callable[[Recipe], Trainer]] = {
    "points": written_down(),
    **TRAINERS,
    "external": lambda recipe: open_trainer(recipe.model_copy(update={"program": FOREIGN})),
    "fake": FakeTrainer,
}


@pytest.fixture(params=sorted(EVERY_TRAINER))
def trainer(request: pytest.FixtureRequest, batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    batch.make("p0")
    monkeypatch.setenv(SCRIPT_VARIABLE, str(batch.folder / "script.json"))
    return EVERY_TRAINER[request.param](RECIPE)


@pytest.fixture
def patch(batch: FakeBatch) -> Patch:
    return Patch("p0", batch.folder / "patches/p0/sparse/0", batch.folder / "images")


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    (tmp_path / "p0/attempt-01").mkdir(parents=True)
    return AttemptFolder(tmp_path / "p0/attempt-01")


def test_its_command_trains_a_splat_that_it_collects(trainer: Trainer, patch: Patch, folder: AttemptFolder) -> None:
    argv = trainer.command(patch, folder)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    code, said = call_here(argv, environment, folder.path)
    assert code == 0, said
    splat = trainer.collect(folder)
    assert isinstance(splat, Splat), splat
    assert splat.path.is_relative_to(folder.path)
    assert splat.step == STEPS
    assert splat.num_gaussians == read_header(splat.path).num_gaussians > 0


def test_preparing_writes_into_the_folder_of_the_attempt_alone(
    trainer: Trainer, patch: Patch, folder: AttemptFolder
) -> None:
    before = {path for path in folder.path.parent.rglob("*") if folder.path not in path.parents}
    argv = trainer.command(patch, folder)
    assert all(isinstance(word, str) for word in argv)
    assert argv[0] == sys.executable
    assert {path for path in folder.path.parent.rglob("*") if folder.path not in path.parents} == before
    assert (read_json(folder.settings) or {})["recipe"]["training"]["max_steps"] == STEPS


def test_an_empty_folder_has_no_splat(trainer: Trainer, folder: AttemptFolder) -> None:
    assert trainer.collect(folder) == Rejected("missing")


def left_by(trainer: Trainer, patch: Patch, folder: AttemptFolder, step: int) -> Path:
    """Write a splat where the trainer's program leaves its own."""
    trainer.command(patch, folder)
    path = folder.output / f"point_cloud_{step}.ply" if folder.output.exists() else folder.splat
    write_splat(path, splat_of(3), step)
    return path


@pytest.mark.parametrize(("step", "cut"), [(STEPS - 1, 0), (STEPS, 1)])
def test_a_splat_that_is_early_or_cut_is_not_collected(
    trainer: Trainer, patch: Patch, folder: AttemptFolder, step: int, cut: int
) -> None:
    path = left_by(trainer, patch, folder, step)
    os.truncate(path, path.stat().st_size - cut)
    found = trainer.collect(folder)
    assert isinstance(found, Rejected)
    assert found.reason.startswith("cut" if cut else "from step 9, not")


def test_a_splat_that_is_not_finite_is_not_collected(trainer: Trainer, patch: Patch, folder: AttemptFolder) -> None:
    path = left_by(trainer, patch, folder, STEPS)
    path.write_bytes(path.read_bytes()[:-4] + np.float32(np.nan).tobytes())
    assert trainer.collect(folder) == Rejected("not finite: 1 of 3 Gaussians have NaN or infinity")


def test_ours_hands_over_the_metrics_that_the_process_left(folder: AttemptFolder) -> None:
    write_splat(folder.splat, splat_of(3), STEPS)
    write_json(folder.metrics, {"final": {"psnr": 25.0}})
    splat = open_trainer(RECIPE).collect(folder)
    assert isinstance(splat, Splat)
    assert splat.metrics == {"final": {"psnr": 25.0}}


def test_ours_holds_out_what_the_recipe_says(patch: Patch, folder: AttemptFolder, batch: FakeBatch) -> None:
    batch.make("p0")
    open_trainer(RECIPE).command(patch, folder)
    assert (read_json(folder.settings) or {})["holdout"] == ["img0.png", "img8.png"]


def test_all_that_ours_imports_is_there() -> None:
    assert missing(None) == ()
