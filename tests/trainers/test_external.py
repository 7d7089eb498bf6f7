"""Programs of somebody else: what they are told, what is read from what they say, and what they need."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import external_program
import pytest
from attempted import Attempted
from external_runs import Run, recipe

from splatbatch.config import Recipe
from splatbatch.config.trainers.programs import Measures, Program
from splatbatch.files import read_json
from splatbatch.outcome import Failed, Rejected, Trained
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.attempt import Finish, ProgressLine
from splatbatch.scene.patches import Patch
from splatbatch.supervisor.external import Artifacts
from splatbatch.trainers import open_trainer, rules_of
from splatbatch.trainers.availability import missing
from splatbatch.trainers.external import judge_log, read_measures

if TYPE_CHECKING:
    from fake_batch import FakeBatch


def test_placeholders_are_filled_and_nothing_else_is_read_into_a_word(patch: Patch, tmp_path: Path) -> None:
    words = ["a b", "$HOME; rm", "{patch}", "{images}", "{sparse}", "{seed}", "{{iter}}", "{setting.do}"]
    folder = AttemptFolder(tmp_path / "p0/attempt-01")
    folder.path.mkdir(parents=True)
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


@pytest.mark.contract
@pytest.mark.parametrize("do", ["train", "train-then-die SIGSEGV", "linger", "exit 3 no luck"])
def test_a_program_in_a_process_of_its_own_comes_to_the_same(run: Run, patch: Patch, batch: FakeBatch, do: str) -> None:
    asked: dict[str, Any] = {
        "settings": {"do": do},
        "progress": {"step": r"step (\d+)/", "loss": r"loss (\S+)"},
        "artifact": {"ply": "point_cloud_*.ply", "finished_after_s": 0.3},
    }
    here = run(**asked)
    apart = Attempted(open_trainer(recipe(**asked)), patch, batch.folder / "apart", stall_s=30)
    here.run()
    apart.run_apart()
    ends = [read_json(one.folder.exit) or {} for one in (here, apart)]
    told = ("kind", "code", "signal", "limit")
    assert [ends[0].get(name) for name in told] == [ends[1].get(name) for name in told]
    assert here.folder.log.read_bytes() == apart.folder.log.read_bytes()
    assert figures(here)[-1] == figures(apart)[-1]
    assert type(here.judged()) is type(apart.judged())


def figures(attempt: Attempted) -> list[dict[str, Any]]:
    """Return its progress without what tells the time."""
    return [{key: value for key, value in one.items() if key not in ("t", "seconds")} for one in attempt.progress()]


def test_a_question_finds_no_answer_and_ends(run: Run) -> None:
    attempt = run(settings={"do": "ask"})
    assert isinstance(attempt.outcome(), Trained)
    assert "EOFError" in attempt.folder.log.read_text()


def test_a_viewer_that_goes_on_talking_is_ended_too(run: Run) -> None:
    outcome = run(settings={"do": "chatter"}, artifact={"ply": "*.ply", "finished_after_s": 0.1}).outcome()
    assert isinstance(outcome, Trained)
    assert "did not end by itself" in outcome.warnings[0]


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


NAME_THAT_TAKES_LONG = "point_cloud_" + "a" * 44 + "!.ply"


def test_a_pattern_of_the_step_that_would_search_for_ever_ends_the_search_not_the_batch(run: Run) -> None:
    code = (
        f"import external_program as f, pathlib as p, sys; f.write_ply(p.Path(sys.argv[1]) / {NAME_THAT_TAKES_LONG!r})"
    )
    command = [sys.executable, "-c", code, "{output}"]
    env = {"PYTHONPATH": str(Path(external_program.__file__).parent)}
    attempt = run(command=command, env=env, artifact={"step": r"((?:a+)+)$", "finished_after_s": 0.2})
    began = time.monotonic()
    assert "artifact.step" in str(attempt.outcome())
    assert time.monotonic() - began < 10
    assert Artifacts(attempt.folder.output, Finish(("*.ply",), r"(\d", 10)).newest() is not None


def test_figures_are_read_from_json_and_from_the_log(tmp_path: Path) -> None:
    (tmp_path / "val_step9.json").write_text(json.dumps({"results": [{"PSNR": 1}, {"PSNR": 21.5}], "SSIM": "nan"}))
    keys = {"psnr": "results.*.PSNR", "ssim": "SSIM"}
    measures = Measures(file="val*.json", keys=keys, log={"lpips": "lpips (.*)"})  # type: ignore[arg-type]
    found = read_measures(
        measures, Artifacts(tmp_path, Finish()), ["val*.json"], [ProgressLine(lpips=0.3), ProgressLine(lpips=0.2)]
    )
    assert found["final"] == {"psnr": 21.5, "lpips": 0.2}


def test_a_glob_in_a_patch_name_stands_for_itself(patch: Patch, tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path / "p[01]/attempt-01")
    folder.path.mkdir(parents=True)
    trainer = open_trainer(recipe(artifact={"ply": "{patch}.ply", "step": ""}))
    trainer.command(patch, folder)
    external_program.write_ply(folder.output / "p0.ply")
    lacking = "no file is called p[[]01].ply (artifact.ply); the program left p0.ply"
    assert trainer.collect(folder) == Rejected(lacking)


def test_a_setting_that_is_true_is_spelt_alike_in_a_command_and_in_a_glob(patch: Patch, tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path / "attempt-01")
    folder.path.mkdir()
    program = {"command": ["train", "--name={setting.fast}"], "settings": {"fast": True}}
    trainer = open_trainer(recipe(**program, artifact={"ply": "{setting.fast}.ply", "step": ""}))
    assert trainer.command(patch, folder) == ("train", "--name=true")
    assert (read_json(folder.watch) or {})["finish"]["products"] == ["true.ply"]


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing(Program(command=("no-such-program",))) == ("no-such-program: not found on PATH",)
    nowhere = Program(command=("python3",), working_folder=tmp_path / "nowhere")
    assert missing(nowhere) == (f"working_folder {tmp_path / 'nowhere'}: no such folder",)
    script = Program(command=(sys.executable, "train.py"), working_folder=tmp_path)
    assert missing(script) == (f"train.py: no such file in {tmp_path}",)
    (tmp_path / "train.py").touch()
    assert missing(script) == ()
    monkeypatch.chdir(tmp_path)  # where we stand says nothing: the program begins in its output folder
    alone = Program(command=("python", "train.py"))
    assert missing(alone) == ("train.py: a relative path needs working_folder, which is not set in the YAML",)
    (tmp_path / "train").touch(0o755)
    assert missing(Program(command=("./train",))) == (
        "./train: a relative path needs working_folder, which is not set in the YAML",
    )


def test_the_audit_asks_of_patches_what_all_their_trainers_take() -> None:
    takes_more = recipe(cameras={"models": ["PINHOLE", "OPENCV"], "absorbs_resize": True})
    assert rules_of([takes_more]).camera_models == {"PINHOLE", "OPENCV"}
    both = rules_of([takes_more, Recipe()])
    assert (both.camera_models, both.undistorts, both.absorbs_resize) == ({"PINHOLE"}, {"OPENCV"}, False)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("rises", "loss_not_falling: loss 0.22 at the start, 0.9533 at step 60"),
        ("stays", "loss_not_falling: loss 0.33 at the start, 0.33 at step 60"),
        ("nan", "nan_loss: loss nan at step 30"),
        ("falls", None),
    ],
)
def test_the_rules_of_health_judge_what_a_program_says_of_its_loss(
    batch: FakeBatch, patch: Patch, how: str, said: str | None
) -> None:
    asked = recipe(settings={"do": f"melt {how}"}, progress={"step": r"step (\d+)/", "loss": r"loss (\S+)"})
    asked = asked.model_copy(update={"training": asked.training.model_copy(update={"max_steps": 60})})
    outcome = Attempted(open_trainer(asked), patch, batch.folder / "out").outcome()
    assert isinstance(outcome, Trained)
    told = [one for one in outcome.warnings if one.startswith(("loss_", "nan_"))]
    assert [one.startswith(said or "") for one in told] == ([True] if said else [])


def test_gaussians_that_a_program_loses_are_told() -> None:
    counts = (1000, None, 500, 0)
    lines = [ProgressLine(step=step, loss=0.5, num_gaussians=num) for step, num in enumerate(counts, 1)]
    assert judge_log(lines, 100) == ("zero_gaussians: all Gaussians were pruned by step 4",)
    assert judge_log([ProgressLine(step=1, loss=0.5), ProgressLine(step=2, num_gaussians=7)], 100) == ()
