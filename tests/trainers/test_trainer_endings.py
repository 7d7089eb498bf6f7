"""What an attempt comes to, whatever the program does: the same for every trainer, through the real supervisor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import external_program
import fake_trainer
import pytest
from attempted import Attempted

from splatbatch.config import Recipe, Training
from splatbatch.config.trainers.programs import Artifact, Measures, Program, ProgressLines
from splatbatch.outcome import Failed, Outcome, Stopped, Trained
from splatbatch.scene.patches import Patch
from splatbatch.trainers import Trainer, open_trainer

if TYPE_CHECKING:
    from fake_batch import FakeBatch

STEPS = 10
TRAINING = Training(max_steps=STEPS, device="cpu")
FOREIGN = Program(
    command=(sys.executable, external_program.__file__, "--steps={steps}", "--output={output}", "--do={setting.do}"),
    settings={"do": "train"},
    progress=ProgressLines(step=r"step (\d+)/", loss=r"loss ([\d.]+)", num_gaussians=r"gaussians ([\d,]+)"),
    artifact=Artifact(ply=("point_cloud_*.ply",), finished_after_s=0.5),
    metrics=Measures(evaluate=False, log={"psnr": r"PSNR ([\d.]+)"}),
)
Begin = Callable[..., Attempted]


@pytest.fixture(params=["ours", "external"])
def begin(request: pytest.FixtureRequest, batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Return what starts an attempt of a trainer whose program does as it is told."""
    batch.make("p0")
    monkeypatch.setenv(fake_trainer.SCRIPT_VARIABLE, str(batch.folder / "script.json"))
    patch = Patch("p0", batch.folder / "patches/p0/sparse/0", batch.folder / "images")

    def trainer(behaviour: str) -> Trainer:
        batch.script(p0=[behaviour])
        if request.param == "ours":
            return fake_trainer.FakeTrainer(Recipe(training=TRAINING))
        program = FOREIGN.model_copy(update={"settings": {"do": behaviour}})
        return open_trainer(Recipe(training=TRAINING, program=program))

    return lambda behaviour, **limits: Attempted(trainer(behaviour), patch, batch.folder / "out", **limits)


def cause_of(outcome: Outcome) -> str:
    assert isinstance(outcome, Failed), outcome
    return outcome.diagnosis.cause


def test_a_good_run_is_a_success_without_a_warning(begin: Begin) -> None:
    outcome = begin("train").outcome()
    assert isinstance(outcome, Trained), outcome
    assert (outcome.splat.step, outcome.splat.num_gaussians, outcome.warnings) == (STEPS, 10, ())


def test_a_crash_is_diagnosed(begin: Begin) -> None:
    assert cause_of(begin("exit 1 torch.OutOfMemoryError: CUDA out of memory.").outcome()) == "cuda_oom"


def test_a_segmentation_fault_is_diagnosed(begin: Begin) -> None:
    assert cause_of(begin("die SIGSEGV").outcome()) == "segfault"


def test_a_hang_is_ended(begin: Begin) -> None:
    assert cause_of(begin("hang", stall_s=0.5).outcome()) == "hang"


@pytest.mark.parametrize("how", ["cut", "early", "nan", "nothing"])
def test_a_splat_that_does_not_count_is_a_failure_whatever_the_exit_code(begin: Begin, how: str) -> None:
    assert cause_of(begin(f"spoil {how}").outcome()) in ("incomplete_artifact", "nan_loss")


def test_a_crash_after_success_is_a_success_with_a_warning(begin: Begin) -> None:
    outcome = begin("train-then-die SIGSEGV").outcome()
    assert isinstance(outcome, Trained), outcome
    assert "failed after its splat" in outcome.warnings[0]


def test_a_program_that_stays_after_success_is_ended_and_a_success_with_a_warning(begin: Begin) -> None:
    outcome = begin("linger", stall_s=2).outcome()
    assert isinstance(outcome, Trained), outcome
    assert len(outcome.warnings) == 1


def test_how_far_it_is_can_be_read(begin: Begin) -> None:
    attempt = begin("train")
    assert isinstance(attempt.outcome(), Trained)
    last = attempt.progress()[-1]
    assert (last["step"], last["max_steps"]) == (STEPS, STEPS)


def test_what_is_cancelled_is_stopped_and_no_failure(begin: Begin) -> None:
    attempt = begin("hang")
    attempt.after(0.2, attempt.folder.cancel.touch)
    assert attempt.outcome() == Stopped("cancel file in the folder of the attempt")
