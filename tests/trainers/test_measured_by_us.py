"""The splat of an external trainer is measured as ours are: on held-out photographs, and on covered pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attempted import Attempted
from external_runs import Run, recipe
from small_patch import paint

from splatbatch.config import Evaluation
from splatbatch.files import read_json, write_json
from splatbatch.outcome import Splat
from splatbatch.output.folders import PatchFolder
from splatbatch.output.records.attempt import JobSpec, WatchSettings
from splatbatch.output.records.metrics import Metrics, TrainingSettings
from splatbatch.scene.patches import Patch
from splatbatch.supervisor.job import Job
from splatbatch.trainers import open_trainer

MEASURED: dict[str, Any] = {"metrics": {"evaluate": True}}


def made(attempted: Attempted) -> Metrics:
    attempted.run()
    splat = attempted.collect()
    assert isinstance(splat, Splat), splat
    return Metrics.from_record(splat.metrics)


def test_a_splat_of_another_program_has_our_figures(run: Run, patch: Patch) -> None:
    paint(patch.images)
    metrics = made(run(**MEASURED))
    assert (metrics.measured_by, metrics.written["by_itself"]) == ("splatbatch", {})
    assert metrics.final.psnr is not None
    assert metrics.covered.hash
    assert metrics.final.covered_share is not None


def test_views_of_it_are_pictured_in_a_phase_of_its_own_after_the_last_step(run: Run, patch: Patch) -> None:
    paint(patch.images)
    attempted = run(**MEASURED)
    made(attempted)
    ranks = set(read_json(attempted.folder.views) or {}) - {"format"}
    assert ranks == {"worst", "best"}  # of two that are held out
    assert all(attempted.folder.picture(rank, kind).exists() for rank in ranks for kind in ("photo", "render", "error"))
    last = attempted.progress()[-1]
    assert (last["phase"], last["step"]) == ("measuring", last["max_steps"])


def test_a_splat_that_we_cannot_measure_counts_all_the_same(run: Run, patch: Patch) -> None:
    for photo in patch.images.iterdir():
        photo.write_bytes(b"none")
    metrics = made(attempted := run(**MEASURED))
    assert not metrics.measured_by
    assert "cannot identify image file" in attempted.folder.log.read_text()


def test_with_nothing_held_out_it_is_measured_as_the_accepted_one_was(patch: Patch, tmp_path: Path) -> None:
    home = PatchFolder(tmp_path / "p0")
    trainer = open_trainer(recipe(**MEASURED).model_copy(update={"evaluation": Evaluation(holdout_every=0)}))
    trainer.command(patch, first := home.new_attempt())
    write_json(home.result, {"photographs": {"held_out": ["img0.png", "img8.png"], "is_assumed": True}})
    trainer.command(patch, second := home.new_attempt())
    assert not first.measuring.exists()
    told = TrainingSettings.read(second.measuring)
    assert told is not None
    assert told.holdout == ("img0.png", "img8.png")


def test_our_evaluation_has_none_of_the_variables_of_the_program() -> None:
    watch = WatchSettings(env={"PYTHONPATH": "theirs"}, measure=("measure",))
    job = Job(JobSpec(argv=("train",), env={"PYTHONPATH": "theirs", "CUDA_VISIBLE_DEVICES": "0"}), watch)
    measuring = job.measure(watch, Path("a.ply"))
    assert (measuring.spec.argv, measuring.spec.env) == (("measure", "a.ply"), {"CUDA_VISIBLE_DEVICES": "0"})
    assert measuring.watch == WatchSettings(phase="measuring")
