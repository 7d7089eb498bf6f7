"""Every preset, as it stands in configs/trainers, run against a stand-in for its program."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import stand_ins
from attempted import Attempted
from sampled import each

from splatbatch.config import Recipe, load
from splatbatch.outcome import Failed, Trained
from splatbatch.scene.patches import Patch
from splatbatch.trainers import open_trainer
from splatbatch.trainers.availability import missing

if TYPE_CHECKING:
    from fake_batch import FakeBatch

PRESETS = sorted((Path(__file__).parents[2] / "configs" / "trainers").glob("*.yml"))
PSNR = {"simple_trainer": 27.5, "lichtfeld": 26.125, "inria": 25.75, "mip_splatting": 25.75, "brush": 24.25}
WITHOUT_COUNT = {"splatfacto", "inria", "mip_splatting", "taming_3dgs", "opensplat"}
Run = Callable[..., Attempted]


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_ins.install(tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'home' / 'bin'}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def run(batch: FakeBatch) -> Run:
    batch.make("p0")
    patch = Patch("p0", batch.folder / "patches/p0/sparse/0", batch.folder / "images")

    def run(recipe: Recipe) -> Attempted:
        return Attempted(open_trainer(recipe), patch, batch.folder / "out")

    return run


def recipe_of(preset: str, **changes: Any) -> Recipe:
    """Return the recipe of a preset, whose splats are not measured by us: that takes seconds each."""
    recipe = load(PRESETS[0].with_name(f"{preset}.yml")).recipe("p0", changes)
    assert recipe.program
    metrics = recipe.program.metrics.model_copy(update={"evaluate": False})
    return recipe.model_copy(update={"program": recipe.program.model_copy(update={"metrics": metrics})})


def changed(recipe: Recipe, *, without: str = "", finished_after_s: float = 60) -> Recipe:
    """Return a recipe whose command lacks a word, and whose program may stay for so long."""
    assert recipe.program
    command = tuple(word for word in recipe.program.command if not without or not word.startswith(without))
    artifact = recipe.program.artifact.model_copy(update={"finished_after_s": finished_after_s})
    program = recipe.program.model_copy(update={"command": command, "artifact": artifact})
    return recipe.model_copy(update={"program": program})


@pytest.mark.parametrize("preset", each(3, [path.stem for path in PRESETS]))
def test_a_preset_trains_with_its_program(run: Run, preset: str) -> None:
    recipe = recipe_of(preset)
    assert missing(recipe.program) == ()
    attempt = run(recipe)
    outcome = attempt.outcome()
    assert isinstance(outcome, Trained), (outcome, attempt.folder.log.read_text())
    assert (outcome.splat.step, outcome.splat.num_gaussians) == (30_000, 10)
    assert outcome.splat.metrics.get("final", {}).get("psnr") == PSNR.get(preset)
    assert max(record["step"] for record in attempt.progress()) >= 29_999
    assert any("num_gaussians" in record for record in attempt.progress()) == (preset not in WITHOUT_COUNT)


def test_there_are_eight_presets() -> None:
    assert len(PRESETS) == 8


@pytest.mark.parametrize("preset", [path.stem for path in PRESETS])
def test_every_rung_of_a_preset_is_taken_by_its_program(preset: str) -> None:
    config = load(PRESETS[0].with_name(f"{preset}.yml"))
    for rungs in config.trainers[preset].ladders.values():
        for rung in rungs:
            values = {key: value for key, value in rung.items() if not str(value).startswith("x")}
            assert config.recipe("p0", values).program


def test_a_crash_at_shutdown_is_a_warning(run: Run) -> None:
    outcome = run(recipe_of("lichtfeld")).outcome()
    assert isinstance(outcome, Trained)
    assert "signal 11 (SIGSEGV)" in outcome.warnings[0]


@pytest.mark.parametrize(("preset", "word"), [("simple_trainer", "--disable_viewer"), ("splatfacto", "--vis")])
def test_a_viewer_that_stays_is_ended_and_the_splat_counts(run: Run, preset: str, word: str) -> None:
    outcome = run(changed(recipe_of(preset), without=word, finished_after_s=0.5)).outcome()
    assert isinstance(outcome, Trained), outcome
    assert "did not end by itself" in outcome.warnings[0]


def test_a_question_ends_at_once(run: Run) -> None:
    attempt = run(changed(recipe_of("splatfacto"), without="--downscale-factor"))
    assert isinstance(attempt.outcome(), Failed)
    assert "EOFError" in attempt.folder.log.read_text()


def test_an_exit_code_of_zero_without_a_splat_is_no_success(run: Run) -> None:
    assert isinstance(run(changed(recipe_of("opensplat"), without="{scene}")).outcome(), Failed)


def test_what_a_program_wrote_in_place_of_its_splat_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD", "autumn 2026")
    outcome = run(recipe_of("lichtfeld")).outcome()
    assert isinstance(outcome, Failed)
    said = f"{outcome.diagnosis.advice} {outcome.diagnosis.evidence}"
    assert "no file is called splat_*.ply (artifact.ply); the program left project.licht" in said


def test_a_later_lichtfeld_trains_with_its_option_added(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD", "autumn 2026")
    assert isinstance(run(recipe_of("lichtfeld", arguments=["--export=ply"])).outcome(), Trained)


def test_a_released_lichtfeld_refuses_what_later_builds_need(run: Run) -> None:
    outcome = run(recipe_of("lichtfeld", arguments=["--export=ply"])).outcome()
    assert isinstance(outcome, Failed)
    assert outcome.diagnosis.cause == "bad_config"
    assert "Flag could not be matched: 'export'" in str(outcome.diagnosis.evidence)


def test_a_flag_that_the_program_does_not_know_is_a_wrong_configuration(run: Run) -> None:
    outcome = run(recipe_of("inria", arguments=["--cap-max", "500000"])).outcome()
    assert isinstance(outcome, Failed)
    assert outcome.diagnosis.cause == "bad_config"


def test_what_a_program_writes_beside_the_model_does_not_reach_the_scene(run: Run, batch: FakeBatch) -> None:
    assert isinstance(run(recipe_of("inria")).outcome(), Trained)
    assert not list((batch.folder / "patches").rglob("*.ply"))
