"""Programs of somebody else: what they are told, where splat and figures are found, what is done when they fail."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import foreign_program
import pytest
import yaml
from attempted import Attempted
from command_line import invoke

from splatbatch.attempt import AttemptFolder
from splatbatch.config import Recipe, Training
from splatbatch.config.programs import Artifact, Measures, Program
from splatbatch.files import read_json
from splatbatch.outcome import Failed, Trained, Unfit
from splatbatch.scene.patches import Patch
from splatbatch.supervisor.finish import Leavings
from splatbatch.trainers import open_trainer, rules_of
from splatbatch.trainers.measures import read_measures
from splatbatch.trainers.usable import missing

if TYPE_CHECKING:
    from fake_batch import FakeBatch

COMMAND = [sys.executable, foreign_program.__file__, "--steps={steps}", "--output={output}", "--do={setting.do}"]
RUN = {"command": COMMAND, "settings": {"do": "train"}, "artifact": {"ply": "point_cloud_*.ply"}}
Run = Callable[..., Attempted]


def recipe(**program: Any) -> Recipe:
    return Recipe(
        training=Training(trainer="foreign", max_steps=10, seed=7), program=Program.model_validate(RUN | program)
    )


@pytest.fixture
def patch(batch: FakeBatch) -> Patch:
    batch.make("p0")
    return Patch("p0", batch.folder / "patches/p0/sparse/0", batch.folder / "images")


@pytest.fixture
def run(batch: FakeBatch, patch: Patch) -> Run:
    return lambda **program: Attempted(open_trainer(recipe(**program)), patch, batch.folder / "out")


def test_placeholders_are_filled_and_nothing_else_is_read_into_a_word(patch: Patch, tmp_path: Path) -> None:
    words = ["a b", "$HOME; rm", "{patch}", "{images}", "{sparse}", "{seed}", "{{iter}}", "{setting.do}"]
    folder = AttemptFolder(tmp_path / "attempt-01")
    folder.path.mkdir()
    argv = open_trainer(recipe(command=words)).command(patch, folder)
    expected = ("a b", "$HOME; rm", "p0", str(patch.images), str(patch.sparse), "7", "{iter}", "train")
    assert argv == expected
    assert not folder.staging.exists()


def test_a_program_gets_its_environment_and_its_folder(run: Run, tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), os.environ['MODE'], os.environ['CUDA_VISIBLE_DEVICES'] == os.environ['CARD'])"
    env = {"MODE": "{setting.do}", "CARD": "{gpu}"}
    attempt = run(command=[sys.executable, "-c", code], env=env, working_folder=str(tmp_path))
    assert isinstance(attempt.outcome(), Failed)
    assert attempt.folder.log.read_text().split() == [str(tmp_path), "train", "True"]


def test_a_question_finds_no_answer_and_ends(run: Run) -> None:
    attempt = run(settings={"do": "ask"})
    assert isinstance(attempt.outcome(), Trained)
    assert "EOFError" in attempt.folder.log.read_text()


def test_a_viewer_that_goes_on_talking_is_ended_too(run: Run) -> None:
    outcome = run(settings={"do": "chatter"}, artifact={"ply": "*.ply", "finished_after_s": 0.1}).outcome()
    assert isinstance(outcome, Trained)
    assert "did not end by itself" in outcome.warnings[0]


def test_points_that_lie_beside_the_output_are_no_splat_and_end_no_training(run: Run) -> None:
    outcome = run(settings={"do": "points-first 1.0"}, artifact={"finished_after_s": 0.2}).outcome()
    assert isinstance(outcome, Trained)
    assert outcome.warnings == ()


def test_a_splat_after_a_crash_counts_only_if_it_is_trusted(run: Run) -> None:
    artifact = {"ply": "point_cloud_*.ply", "trusted_after_crash": False}
    outcome = run(settings={"do": "train-then-die SIGSEGV"}, artifact=artifact).outcome()
    assert isinstance(outcome, Failed)
    assert outcome.diagnosis.cause == "segfault"


EXPORT = "import shutil, sys; print('exporting'); shutil.copy(*sys.argv[1:])"


@pytest.mark.parametrize(
    ("does", "trained"), [("train", True), ("train-then-die SIGSEGV", True), ("spoil early", False), ("exit 1", False)]
)
def test_the_second_command_runs_if_the_first_left_what_it_needs(run: Run, does: str, trained: bool) -> None:
    export = [sys.executable, "-c", EXPORT, "{output}/point_cloud_10.ply", "{output}/final.ply"]
    artifact = {"files": "point_cloud_*.ply", "export": export, "ply": "final.ply"}
    attempt = run(settings={"do": does}, artifact=artifact)
    assert isinstance(attempt.outcome(), Trained) is trained
    assert ("exporting" in attempt.folder.log.read_text()) is trained


def test_a_pattern_that_would_search_for_ever_is_given_up_and_the_training_goes_on(run: Run) -> None:
    says = ["-c", "import time, sys; print('a' * 60 + 'b', flush=True); time.sleep(2)"]
    attempt = run(command=[sys.executable, *says], progress={"step": "((?:a+)+)$"})
    attempt.outcome()
    assert "took too long" in attempt.progress()[-1]["warning"]
    assert (read_json(attempt.folder.exit) or {})["code"] == 0


def test_figures_are_read_from_json_and_from_the_log(tmp_path: Path) -> None:
    (tmp_path / "val_step9.json").write_text(json.dumps({"results": [{"PSNR": 1}, {"PSNR": 21.5}], "SSIM": "nan"}))
    (tmp_path / "progress.jsonl").write_text('{"lpips": 0.3}\n{"lpips": 0.2}\n')
    keys = {"psnr": "results.*.PSNR", "ssim": "SSIM"}
    measures = Measures(file="val*.json", keys=keys, log={"lpips": "lpips (.*)"})  # type: ignore[arg-type]
    found = read_measures(measures, Leavings(tmp_path), ["val*.json"], tmp_path / "progress.jsonl")
    assert found["final"] == {"psnr": 21.5, "lpips": 0.2}


def test_the_splat_of_the_highest_step_is_the_newest(tmp_path: Path) -> None:
    for step in (900, 7000, 30000):
        foreign_program.write_ply(tmp_path / f"iteration_{step}" / "splat.ply")
    leavings = Leavings(tmp_path, ("*/splat.ply",), Artifact().step, 30000)
    newest = leavings.newest()
    assert newest is not None
    assert newest.path == tmp_path / "iteration_30000" / "splat.ply"
    (tmp_path / "iteration_30000" / "splat.ply").write_bytes(b"")
    assert leavings.all_there() == ()


def test_points_are_not_taken_for_the_splat_however_new_they_are(tmp_path: Path) -> None:
    foreign_program.write_ply(tmp_path / "splat_10.ply")
    foreign_program.write_points(tmp_path / "points3D.ply")
    leavings = Leavings(tmp_path, Artifact().ply, Artifact().step, 10)
    assert leavings.all_there() == (tmp_path / "splat_10.ply",)
    (tmp_path / "splat_10.ply").unlink()
    assert leavings.all_there() == ()


def test_a_glob_in_a_patch_name_stands_for_itself(patch: Patch, tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path / "attempt-01")
    folder.path.mkdir()
    trainer = open_trainer(recipe(artifact={"ply": "{patch}.ply", "step": ""}))
    trainer.command(Patch("p[01]", patch.sparse, patch.images), folder)
    foreign_program.write_ply(folder.output / "p0.ply")
    assert trainer.collect(folder) == Unfit("missing")


def test_a_setting_that_is_true_is_spelt_alike_in_a_command_and_in_a_glob(patch: Patch, tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path / "attempt-01")
    folder.path.mkdir()
    program = {"command": ["train", "--name={setting.fast}"], "settings": {"fast": True}}
    trainer = open_trainer(recipe(**program, artifact={"ply": "{setting.fast}.ply", "step": ""}))
    assert trainer.command(patch, folder) == ("train", "--name=true")
    assert (read_json(folder.watch) or {})["finish"]["products"] == ["true.ply"]


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    assert missing(Program(command=("no-such-program",))) == ("no-such-program: not found on PATH",)
    nowhere = Program(command=("python3",), working_folder=tmp_path / "nowhere")
    assert missing(nowhere) == (f"working_folder {tmp_path / 'nowhere'}: no such folder",)
    script = Program(command=(sys.executable, "train.py"), working_folder=tmp_path)
    assert missing(script) == (f"train.py: no such file in {tmp_path}",)


def test_the_audit_asks_of_patches_what_all_their_trainers_take() -> None:
    takes_more = recipe(cameras={"models": ["PINHOLE", "OPENCV"], "absorbs_resize": True})
    assert rules_of([takes_more]).camera_models == {"PINHOLE", "OPENCV"}
    both = rules_of([takes_more, Recipe()])
    assert (both.camera_models, both.undistorts, both.absorbs_resize) == ({"PINHOLE"}, {"OPENCV"}, False)


@pytest.fixture
def foreign_batch(batch: FakeBatch) -> FakeBatch:
    batch.make("p0", "p1", training={"trainer": "foreign"}, trainers={"foreign": {**RUN, "ladders": {}}})
    return batch


def test_a_batch_climbs_the_ladder_of_its_program(foreign_batch: FakeBatch) -> None:
    rungs = [{"arguments": ["--do=exit 1 CUDA out of memory"]}, {"arguments": ["--do=train"]}]
    out_of_memory = {**RUN, "settings": {"do": "exit 1 CUDA out of memory"}, "ladders": {"gpu_memory": rungs}}
    foreign_batch.change(trainers={"foreign": out_of_memory})
    ended = foreign_batch.run("train")
    assert ended.returncode == 0, ended.stdout
    words = ["--do=exit 1 CUDA out of memory", "--do=train"]
    assert foreign_batch.result("p1")["changes"] == {"arguments": words}
    assert foreign_batch.result("p1")["attempts"] == 3


def test_a_trained_batch_is_not_trained_again_unless_the_program_is_told_something_else(
    foreign_batch: FakeBatch,
) -> None:
    assert foreign_batch.run("train").returncode == 0
    assert (foreign_batch.output / "patches/p0/splat.ply").stat().st_size > 0
    assert invoke("plan", batch=foreign_batch).out.splitlines() == ["p0: skip: trained", "p1: skip: trained"]
    foreign_batch.change(trainers={"foreign": {**RUN, "settings": {"do": "ask"}}})
    assert "p0: train: settings have changed" in invoke("plan", batch=foreign_batch).out


def test_a_sweep_compares_settings_of_a_program(foreign_batch: FakeBatch) -> None:
    foreign_batch.change(sweep={"matrix": {"setting.do": ["train", "ask"]}})
    assert foreign_batch.run("train", "--patch", "p0").returncode == 0
    trained = [event["patch"] for event in foreign_batch.events("attempt_ended") if event["outcome"] == "trained"]
    assert sorted(name.partition("_")[0] for name in trained) == ["p0@base", "p0@do-ask"]


def test_a_program_that_is_not_there_ends_the_command_with_4(foreign_batch: FakeBatch) -> None:
    foreign_batch.change(trainers={"foreign": {**RUN, "command": ["no-such-program"]}})
    ended = invoke("train", batch=foreign_batch)
    assert ended.code == 4
    assert "no-such-program: not found on PATH" in ended.err


def test_trainers_lists_ours_the_configured_and_the_presets(foreign_batch: FakeBatch) -> None:
    listed = json.loads(invoke("trainers", "--json", batch=foreign_batch).out)["trainers"]
    by_name = {one["name"]: one for one in listed}
    assert (by_name["gsplat"]["origin"], by_name["gsplat"]["found"]) == ("ours", True)
    assert (by_name["foreign"]["origin"], by_name["foreign"]["found"]) == ("configured", True)
    assert (by_name["brush"]["origin"], by_name["brush"]["missing"]) == ("preset", ["brush-cli: not found on PATH"])
    assert yaml.safe_load(Path(by_name["brush"]["file"]).read_text())["training"]["trainer"] == "brush"


def test_trainers_needs_no_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPLATBATCH_CONFIG", raising=False)
    assert os.linesep.join(invoke("trainers").out.splitlines()[1:]).startswith("gsplat")
