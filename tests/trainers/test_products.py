"""Which file that an external trainer leaves is its product, and when none is."""

from __future__ import annotations

import sys
from pathlib import Path

import external_program
import pytest
from external_runs import SAYS, STEPLESS, Run
from sampled import each

from splatbatch.config.trainers.programs import Artifact
from splatbatch.outcome import Failed, Rejected, Stopped, Trained
from splatbatch.output.records.attempt import Finish
from splatbatch.supervisor.external import Artifacts


def test_points_that_lie_beside_the_output_are_no_splat_and_end_no_training(run: Run) -> None:
    outcome = run(settings={"do": "points-first 4.0"}, artifact={"finished_after_s": 1.5}).outcome()
    assert isinstance(outcome, Trained)
    assert outcome.warnings == ()


def test_a_splat_after_a_crash_counts_only_if_it_is_trusted(run: Run) -> None:
    artifact = {"ply": "point_cloud_*.ply", "trusted_after_crash": False}
    outcome = run(settings={"do": "train-then-die SIGSEGV"}, artifact=artifact).outcome()
    assert isinstance(outcome, Failed)
    assert outcome.diagnosis.cause == "segfault"


@pytest.mark.parametrize("how", each(3, ["SIGTERM", "exit", "SIGSEGV", "hang"]))
@pytest.mark.parametrize("trusted", ["proven", True])
def test_a_splat_from_a_tenth_of_the_way_is_not_the_product(run: Run, how: str, trusted: bool | str) -> None:
    artifact = STEPLESS | {"trusted_after_crash": trusted, "finished_after_s": 0}
    attempt = run(settings={"do": f"snapshot {how}"}, progress=SAYS, artifact=artifact, limits={"stall_s": 1.0})
    outcome = attempt.outcome()
    assert isinstance(outcome, Failed), outcome
    assert attempt.collect() == Rejected("from step 1, not from the last step 10")
    attempt.folder.progress.unlink()  # as if it had said nothing of its steps
    assert isinstance(attempt.collect(), Rejected) or trusted is True or how == "exit"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("SIGTERM", "the program was ended by SIGTERM"),
        ("SIGSEGV", "the program was ended by SIGSEGV"),
        ("hang", "the program was ended at the time limit limits.stall_s"),
    ],
)
def test_a_splat_of_no_known_step_does_not_count_after_a_bad_end(run: Run, how: str, why: str) -> None:
    artifact = STEPLESS | {"finished_after_s": 0}
    attempt = run(settings={"do": f"snapshot quietly {how}"}, artifact=artifact, limits={"stall_s": 1.0})
    assert isinstance(attempt.outcome(), Failed)
    assert attempt.collect() == Rejected(f"from an unknown step: {why} and had logged no steps")


def test_a_splat_of_no_known_step_counts_after_a_crash_only_where_the_config_says_so(run: Run) -> None:
    artifact = STEPLESS | {"trusted_after_crash": True}
    outcome = run(settings={"do": "snapshot quietly SIGSEGV"}, artifact=artifact).outcome()
    assert isinstance(outcome, Trained)
    assert any("logged no steps" in warning for warning in outcome.warnings)


def test_a_program_that_says_nothing_of_its_steps_and_ends_well_is_believed_with_a_warning(run: Run) -> None:
    outcome = run(settings={"do": "snapshot quietly exit"}, artifact=STEPLESS | {"finished_after_s": 30}).outcome()
    assert isinstance(outcome, Trained)
    assert outcome.warnings == ("the program logged no steps: its splat may not be from the last step",)


def test_what_is_cancelled_leaves_no_product_of_no_known_step(run: Run) -> None:
    attempt = run(settings={"do": "snapshot quietly hang"}, artifact=STEPLESS | {"finished_after_s": 0})
    attempt.after(0.2, attempt.folder.cancel.touch)
    assert attempt.outcome() == Stopped("cancel file in the folder of the attempt")


@pytest.mark.parametrize("how", each(3, ["exit", "SIGSEGV", "hang"]))
def test_a_splat_that_is_older_than_the_last_steps_is_not_from_them(run: Run, how: str) -> None:
    attempt = run(settings={"do": f"snapshot last {how}"}, progress=SAYS, artifact=STEPLESS)
    assert isinstance(attempt.outcome(), Failed)
    reason = attempt.collect().reason
    assert reason.startswith("from step ")
    assert reason.endswith(" or before, not from the last step 10: the file is older")


def test_a_link_to_the_splat_of_an_earlier_step_is_from_that_step(run: Run) -> None:
    attempt = run(settings={"do": "snapshot named exit"}, artifact={"ply": "splat.ply"})
    assert isinstance(attempt.outcome(), Failed)
    assert attempt.collect() == Rejected("from step 1, not from the last step 10")


def test_a_program_on_its_way_is_not_done_since_an_early_splat_lies_there(run: Run) -> None:
    code = (
        "import os, sys, time; sys.path.insert(0, sys.argv[1]); import external_program as f\n"
        "from pathlib import Path\n"
        "splat = Path('splat.ply'); f.say(1, 10); f.write_ply(splat, 3); time.sleep(2)\n"
        "f.say(10, 10); f.write_ply(splat); os._exit(0)"  # Python's own end may take longer than finished_after_s
    )
    command = [sys.executable, "-c", code.replace("{", "{{"), str(Path(external_program.__file__).parent)]
    outcome = run(command=command, progress=SAYS, artifact=STEPLESS).outcome()
    assert isinstance(outcome, Trained)
    assert outcome.splat.num_gaussians == 10


def test_a_program_that_says_its_last_step_after_a_long_silence_still_writes_its_splat(run: Run) -> None:
    code = (
        "import os, sys, time; sys.path.insert(0, sys.argv[1]); import external_program as f\n"
        "from pathlib import Path\n"
        "splat = Path('splat.ply'); f.say(1, 10); f.write_ply(splat, 3); time.sleep(20.3)\n"
        "f.say(10, 10); time.sleep(0.5); f.write_ply(splat); os._exit(0)"
    )
    command = [sys.executable, "-c", code.replace("{", "{{"), str(Path(external_program.__file__).parent)]
    outcome = run(command=command, progress=SAYS, artifact={**STEPLESS, "finished_after_s": 10}).outcome()
    assert isinstance(outcome, Trained)
    assert outcome.splat.num_gaussians == 10


def test_a_file_that_has_its_size_before_its_content_does_not_count(run: Run) -> None:
    attempt = run(settings={"do": "fill-later 4"}, artifact={"ply": "point_cloud_*.ply", "finished_after_s": 0.3})
    assert isinstance(attempt.outcome(), Failed)
    assert attempt.collect() == Rejected("unfilled: 4 of 10 Gaussians were never written")


@pytest.mark.parametrize("ply", [["final.ply"], ["*.ply"]])
def test_of_a_link_the_file_behind_it_is_the_product(run: Run, ply: list[str]) -> None:
    outcome = run(settings={"do": "link"}, progress=SAYS, artifact={"ply": ply}).outcome()
    assert isinstance(outcome, Trained)
    assert outcome.splat.path.name == "point_cloud_10.ply"
    assert not outcome.splat.path.is_symlink()


def test_the_splat_of_the_highest_step_is_the_newest(tmp_path: Path) -> None:
    for step in (900, 7000, 30000):
        external_program.write_ply(tmp_path / f"iteration_{step}" / "splat.ply")
    artifacts = Artifacts(tmp_path, Finish(("*/splat.ply",), Artifact().step, 30000))
    newest = artifacts.newest()
    assert newest is not None
    assert newest.path == tmp_path / "iteration_30000" / "splat.ply"
    (tmp_path / "iteration_30000" / "splat.ply").write_bytes(b"")
    assert artifacts.all_there() == ()


def test_points_are_not_taken_for_the_splat_however_new_they_are(tmp_path: Path) -> None:
    external_program.write_ply(tmp_path / "splat_10.ply")
    external_program.write_points(tmp_path / "points3D.ply")
    artifacts = Artifacts(tmp_path, Finish(Artifact().ply, Artifact().step, 10))
    assert artifacts.all_there() == (tmp_path / "splat_10.ply",)
    (tmp_path / "splat_10.ply").unlink()
    assert artifacts.all_there() == ()
