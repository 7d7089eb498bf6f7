"""What somebody has to do: one item per trouble, with a command that can be copied, whatever the names are."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from fake_batch import FakeBatch
from made_output import MadeOutput
from report_kinds import green, retried_worse

from splatbatch.failures.advice import PatchContext, with_advice
from splatbatch.failures.settings import SettingDifference
from splatbatch.files import read_json
from splatbatch.outcome import Diagnosis
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.evaluation import SceneEvaluation, SceneMeasurement
from splatbatch.output.records.run import FollowUpResult
from splatbatch.report.facts import CoreBox, Report, ReportedAttempt, ReportedPartition, ReportedPatch
from splatbatch.report.todo import todo, verdict
from splatbatch.tasks.status import STATES


def facts(*patches: dict[str, Any], config: str = "", **more: Any) -> Report:
    known = tuple(ReportedPatch(**one) for one in patches)
    states = [one.state for one in known]
    report = Report(patches=known, counts={state: states.count(state) for state in STATES}, config_file=config, **more)
    return replace(report, todo=todo(report))


def commands(*patches: dict[str, Any], config: str = "") -> list[str]:
    return [item.command for item in facts(*patches, config=config).todo]


def test_each_state_has_a_command_that_ends_it() -> None:
    assert commands({"patch": "p1", "state": "refused", "advice": "images.bin is missing: restore it."}) == [
        "splatbatch verify-dims p1 && splatbatch train p1"
    ]
    assert commands({"patch": "p2", "state": "stale", "cause": "settings have changed"}) == ["splatbatch train p2"]
    assert commands({"patch": "p3", "state": "failed", "cause": "unknown"}) == ["splatbatch train p3"]
    given_up = {"patch": "p3", "state": "failed", "cause": "unknown", "given_up": True}
    assert commands(given_up) == ["splatbatch explain p3"]
    out_of_memory = {
        "patch": "p4",
        "state": "failed",
        "cause": "cuda_oom",
        "advice": "Fewer Gaussians. Try: x; splatbatch retry p4 --set a.b=1",
    }
    assert commands(out_of_memory) == ["splatbatch retry p4 --set a.b=1"]
    to_look = {**given_up, "advice": "Look at line 4. Try: splatbatch explain p3 --log"}
    assert commands(to_look) == ["splatbatch explain p3 --log"]
    assert facts(out_of_memory).todo[0].what == "GPU memory ran out (cuda_oom): Fewer Gaussians."


def test_what_takes_the_first_suspect_back_stands_before_all_else() -> None:
    differs = SettingDifference("learning_rates.means", 1e9, 0.00016)
    verdict = Diagnosis("zero_gradients", "fail", "Nothing is learned.")
    given = with_advice(verdict, PatchContext("p1", differences=(differs,))).advice
    (item,) = facts({"patch": "p1", "state": "failed", "cause": "zero_gradients", "advice": given}).todo
    assert item.command == "splatbatch retry p1 --set learning_rates.means=0.00016"
    assert item.what.endswith("learning_rates.means is 1e+09 (0.00016 in the batch). Undo them in the YAML.")


def test_what_trains_or_will_be_trained_tonight_is_nobodys_work() -> None:
    report = facts({"patch": "p0", "state": "running"}, {"patch": "p1", "state": "waiting"})
    assert report.todo == () and verdict(report) == "0 of 2 patches trained, 1 in training. Nothing to do"


@pytest.mark.parametrize(("gain_db", "is_stale", "num"), [(-2.0, False, 1), (-0.8, False, 0), (-2.0, True, 0)])
def test_a_merged_scene_that_is_dark_at_its_edge_is_worth_a_look(gain_db: float, is_stale: bool, num: int) -> None:
    measured = SceneEvaluation(within=SceneMeasurement(num_photos=2, gain_db=gain_db))
    scene = ReportedPartition(cores=(CoreBox("p0", (0, 0), (1, 1)),), evaluation=measured, is_stale=is_stale)
    told = [item.what for item in facts({"patch": "p0", "state": "trained"}, scene=scene).todo]
    assert sum("2.0 dB below that of the patches' own splats: ground at the edge" in what for what in told) == num


def test_the_same_trouble_of_many_is_one_item() -> None:
    report = facts(*({"patch": f"p{i}", "state": "waiting"} for i in range(3)))
    (item,) = report.todo
    assert item.patches == ("p0", "p1", "p2") and item.command == "splatbatch train p0 p1 p2"
    assert verdict(report) == "0 of 3 patches trained. 1 thing to do"
    assert commands(*({"patch": f"p{i}", "state": "waiting"} for i in range(40))) == ["splatbatch train"]


@pytest.mark.parametrize(
    "name", ["a b", "$(reboot)", "`id`", "it's", 'say "x"', "x; rm -rf ~", "-c", "--config=evil", "ü"]
)
def test_a_name_is_one_word_of_its_command(name: str) -> None:
    (command,) = commands({"patch": name, "state": "waiting"}, config="/my data/splat_config.yml")
    said = shlex.split(command)
    assert said[:2] == ["splatbatch", "train"] and said[-2:] == ["-c", "/my data/splat_config.yml"]
    assert said[2:-2] == ([f"--patch={name}"] if name.startswith("-") else [name])


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "\u202egnp"])
def test_a_name_that_nobody_can_type_is_in_no_command(name: str) -> None:
    assert commands({"patch": name, "state": "waiting"}) == ["splatbatch train"]
    odd = {"patch": name, "state": "trained", "outliers": ("PSNR 3 dB under the median",)}
    assert commands(odd) == ["splatbatch status"]


def test_a_retry_that_was_worse_is_worth_a_look_and_nothing_to_do(tmp_path: Path) -> None:
    report = read_json(retried_worse(tmp_path).output.report("json")) or {}
    assert [(item["kind"], item["what"]) for item in report["todo"]] == [
        ("look", "attempt 2: 8.1 dB worse than attempt 1: kept attempt 1")
    ]
    gains = {patch["patch"]: patch["gain_db"] for patch in report["patches"]}
    assert gains == {"p0": None, "p1": None, "p2": pytest.approx(1.5), "p3": None}


def test_a_splat_that_was_replaced_by_a_worse_one_can_be_had_back() -> None:
    said = "8.1 dB worse than attempt 1, which had other settings or files"
    back = f"{said}: `splatbatch accept p6 --attempt 1` brings attempt 1 back"
    attempt = ReportedAttempt(2, choice=back, is_kept=True)
    assert commands({"patch": "p6", "state": "trained", "attempts": (attempt,)}) == ["splatbatch accept p6 --attempt 1"]


def test_a_splat_that_could_not_be_compared_can_be_taken_until_it_is() -> None:
    said = "cannot be compared with attempt 1 (20.73 dB): attempt 2 has no hold-out PSNR: kept attempt 1"
    later = ReportedAttempt(2, choice=f"{said}: `splatbatch accept p6 --attempt 2` accepts attempt 2 anyway")
    (item,) = facts({"patch": "p6", "state": "trained", "attempts": (ReportedAttempt(1, is_kept=True), later)}).todo
    assert (item.kind, item.what, item.command) == ("look", f"attempt 2: {said}", "splatbatch accept p6 --attempt 2")
    taken = (ReportedAttempt(1), replace(later, is_kept=True))
    assert facts({"patch": "p6", "state": "trained", "attempts": taken}).todo == ()


def test_kernels_that_the_first_patch_compiles_make_it_no_outlier(tmp_path: Path) -> None:
    kind = green(tmp_path)
    folder = kind.output.patch("p0")
    result = read_json(folder.result) or {}
    from splatbatch.files import write_json
    from splatbatch.report import write_report

    write_json(folder.result, {**result, "seconds": 3000.0})  # its steps took as long as those of the others
    report = write_report(kind.output, [], previews_mib=0)
    assert [patch.outliers for patch in report.patches] == [()] * 9


@pytest.mark.all
def test_the_commands_of_a_real_report_can_be_run(batch: FakeBatch) -> None:
    batch.make("p0", "p1", "p2").script(p1=["exit 1 ModuleNotFoundError: No module named 'x'"])
    (batch.folder / "patches/p2/sparse/0/images.txt").unlink()
    assert invoke("train", batch=batch).code == 1
    report = read_json(OutputFolder(batch.output).report("json")) or {}
    assert {name for item in report["todo"] for name in item["patches"]} == {"p1", "p2"}
    assert Path(report["config_file"]) == batch.config.absolute()
    for item in report["todo"]:
        for part in item["command"].split(" && "):
            ended = invoke(*shlex.split(part)[1:])
            assert ended.code in (0, 1, 3), f"{part}: {ended.err}"


def test_a_batch_of_nothing_has_nothing_to_do(tmp_path: Path) -> None:
    made = MadeOutput(tmp_path)
    made.output.create()
    assert verdict(facts()) == "0 of 0 patches trained. Nothing to do"


def test_what_was_left_out_after_the_training_is_to_be_done_and_what_was_done_is_not() -> None:
    said = FollowUpResult("publish", "left out", "not published: p1: failed", "splatbatch train")
    trained = {"patch": "p0", "state": "trained"}
    (item,) = facts(trained, afterwards=(said,)).todo
    assert (item.kind, item.what, item.command) == ("do", said.words, said.command)
    assert facts(trained, afterwards=(replace(said, state="done"),)).todo == ()
