"""Status and report come from the files alone: whatever a killed machine or another program left in them."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from splatbatch.files import append_line, read_json, write_json
from splatbatch.monitor.table import status_table
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.record import in_json
from splatbatch.processes import boot_id, start_ticks
from splatbatch.report import to_markdown, write_report
from splatbatch.report.build import build
from splatbatch.tasks.counts import how_many
from splatbatch.tasks.status import PatchStatus, State, read_status, summary

FAILED = {"outcome": "failed", "diagnosis": {"cause": "nan_loss", "advice": "lower it", "evidence": ["line 3: NaN"]}}


class Made:
    """An output folder written by hand."""

    def __init__(self, root: Path) -> None:
        self.output = OutputFolder(root / "output")
        self.output.create()
        self.output.ledger.parent.mkdir()

    def attempt(self, patch: str, start: dict[str, Any] | None = None, progress: str = "") -> AttemptFolder:
        folder = self.output.patch(patch).new_attempt()
        write_json(folder.job, {"key": "k"})
        if start is not None:
            write_json(folder.start, start)
        folder.progress.write_text(progress)
        return folder

    def trained(self, patch: str, **facts: Any) -> None:
        folder = self.output.patch(patch)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.splat.touch()
        write_json(folder.result, {"attempt": "attempt-01", "step": 20, "num_gaussians": 1234, **facts})

    def ended(self, patch: str, attempt: Any = 1, **facts: Any) -> None:
        self.tell("attempt_ended", patch=patch, attempt=attempt, **facts)

    def tell(self, event: str, **facts: Any) -> None:
        append_line(self.output.ledger, {"t": 1.7e9, "event": event, **facts}, durable=False)

    def state(self, patch: str) -> PatchStatus:
        return next(one for one in read_status(self.output) if one.patch == patch)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def me(**facts: Any) -> dict[str, Any]:
    pid = os.getpid()
    return {"host": socket.gethostname(), "boot_id": boot_id(), "pid": pid, "ticks": start_ticks(pid), **facts}


def test_a_patch_without_a_folder_waits(made: Made) -> None:
    assert [(one.patch, one.state) for one in read_status(made.output, ["p10", "p2"])] == [
        ("p2", "waiting"),
        ("p10", "waiting"),
    ]


def test_an_output_folder_that_is_not_there_has_only_waiting_patches(tmp_path: Path) -> None:
    assert [one.state for one in read_status(OutputFolder(tmp_path / "nowhere"), ["p0"])] == ["waiting"]


def test_a_trained_patch_shows_its_figures(made: Made) -> None:
    metrics = {"initial": {"psnr": 14.5}, "final": {"psnr": 26.5}}
    made.trained("p0", metrics=metrics, seconds=61.2, changes={"training.seed": 1}, warnings=["odd"])
    status = made.state("p0")
    assert (status.state, status.psnr, status.initial_psnr, status.num_gaussians) == ("trained", 26.5, 14.5, 1234)
    assert (status.changes, status.warnings) == ({"training.seed": 1}, ("odd",))


def test_a_manifest_without_its_splat_is_not_trained(made: Made) -> None:
    made.trained("p0")
    made.output.patch("p0").splat.unlink()
    assert made.state("p0").state == "waiting"


@pytest.mark.parametrize("start", [None, {}, me(), {"host": "elsewhere", "boot_id": "x", "pid": 1, "ticks": 5}])
def test_an_attempt_without_an_end_runs_unless_it_is_known_to_be_dead(made: Made, start: dict[str, Any] | None) -> None:
    made.attempt("p0", start, '{"phase": "train", "step": 7, "max_steps": 20, "loss": 0.5}\n{"phase": "tr')
    status = made.state("p0")
    assert (status.state, status.phase, status.step, status.loss) == ("running", "train", 7, 0.5)


def test_while_it_is_measured_the_clock_of_that_phase_goes_on(made: Made) -> None:
    line = {"phase": "measuring", "step": 20, "max_steps": 20, "t": time.time() - 30, "seconds": 0}
    made.attempt("p0", me(), f"{json.dumps(line)}\n")
    status = made.state("p0")
    assert (status.phase, status.step) == ("measuring", 20)
    assert status.seconds == pytest.approx(30, abs=5)


@pytest.mark.parametrize("gone", [{"pid": 1 << 30}, {"ticks": 1}, {"boot_id": "before the power went"}])
def test_an_attempt_whose_supervisor_is_dead_is_lost_not_running(made: Made, gone: dict[str, Any]) -> None:
    made.attempt("p0", me(**gone))
    status = made.state("p0")
    assert (status.state, status.cause) == ("stopped", "lost")
    assert "splatbatch train" in status.advice


def test_a_new_attempt_of_a_trained_patch_runs(made: Made) -> None:
    made.trained("p0")
    made.attempt("p0", me())
    assert made.state("p0").state == "running"


def test_an_attempt_that_is_judged_without_an_exit_record_is_not_running(made: Made) -> None:
    made.attempt("p0")
    made.ended("p0", **FAILED)
    assert (made.state("p0").state, made.state("p0").cause) == ("failed", "nan_loss")


@pytest.mark.parametrize(
    ("facts", "state", "cause"),
    [
        (FAILED, "failed", "nan_loss"),
        ({"outcome": "stopped", "reason": "SIGTERM"}, "stopped", "SIGTERM"),
        ({}, "failed", "unknown"),
        ({"attempt": None, "step": "x", "diagnosis": None}, "failed", "unknown"),
        ({"step": None, "phase": None}, "failed", "unknown"),
    ],
)
def test_the_last_end_in_the_ledger_tells_how_it_stands(
    made: Made, facts: dict[str, Any], state: str, cause: str
) -> None:
    made.ended("p0", **FAILED)
    made.ended("p0", **facts)
    status = next(one for one in read_status(made.output, ["p0"]) if one.patch == "p0")
    assert (status.state, status.cause) == (state, cause)


def test_a_refused_patch_says_why(made: Made) -> None:
    made.tell("refused", patch="p0", reason="img3.png: no such file")
    status = read_status(made.output, ["p0"])[0]
    assert (status.state, status.advice) == ("refused", "img3.png: no such file")


def test_a_torn_ledger_and_foreign_lines_change_nothing(made: Made) -> None:
    made.ended("p0", **FAILED)
    with made.output.ledger.open("ab") as file:
        file.write(b'hello\n{"event": 5}\n{"event": "x", "value": NaN}\n\xff\n{"event": "attempt_ended", "patch": "p0"')
    report = write_report(made.output, ["p0"])
    assert report.counts["failed"] == 1
    assert [event["event"] for event in report.events] == ["attempt_ended", "x"]


@pytest.mark.parametrize(
    "progress",
    ["", "{", '{"step": null, "max_steps": null}\n', '{"step": "x"}\n', '{"loss": NaN, "step": 3.0}\n', "\0\0\0"],
)
def test_any_progress_file_can_be_shown(made: Made, progress: str) -> None:
    made.attempt("p0", me(), progress)
    assert made.state("p0").state == "running"
    json.dumps(in_json(write_report(made.output, [])), allow_nan=False)


def test_a_patch_without_holdout_has_no_psnr(made: Made) -> None:
    made.trained("p0", metrics={"initial": None, "final": None})
    made.trained("p1", metrics=None, changes=None, warnings=None)
    assert [one.psnr for one in read_status(made.output)] == [None, None]
    assert "| p0 | trained |  |  |  | 1,234 |" in to_markdown(build(made.output, []))


def test_the_summary_is_one_line_with_the_names_of_the_rest() -> None:
    states = ["trained", "trained", "failed", "waiting", "refused", "failed"]
    statuses = [PatchStatus(f"p{i}", state) for i, state in enumerate(states)]  # type: ignore[arg-type]
    assert summary(statuses) == "2 of 6 patches trained; failed: p2, p5; refused: p4; waiting: p3"
    assert summary([]) == "0 of 0 patches trained"


def test_the_backdrop_is_named_and_not_counted_as_a_patch_that_somebody_cut():
    def line(**states: State) -> str:
        return summary([PatchStatus(patch, state) for patch, state in states.items()])

    assert line(p0="trained", p1="trained", backdrop="trained") == "2 of 2 patches and the backdrop trained"
    assert line(p0="waiting", backdrop="trained") == "0 of 1 patches and the backdrop trained; waiting: p0"
    assert line(p0="trained", backdrop="failed") == "1 of 1 patches trained; failed: backdrop"
    assert line(backdrop="trained") == "1 of 1 patches trained"
    assert (how_many(["p0", "p1", "backdrop"]), how_many(["backdrop"])) == ("2 patches and the backdrop", "1 patch")


MARKUP = ["[red]", "a|b", "<script>alert(1)", "[/]", "a&b", "p:smile:", "ä ö"]


@pytest.mark.parametrize("name", MARKUP)
def test_a_name_with_markup_is_only_a_name(made: Made, name: str) -> None:
    made.ended(name, **FAILED)
    made.ended(name, **FAILED)
    text = to_markdown(build(made.output, [name]))
    assert "<script" not in text
    row = next(line for line in text.splitlines() if "| failed |" in line)
    assert row.replace("\\|", "").count("|") == 11
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(status_table(read_status(made.output, [name])))
    assert name in console.export_text()


def test_evidence_of_any_kind_stays_inside_its_block(made: Made) -> None:
    diagnosis = {"cause": "x|y", "advice": "do\n# this", "evidence": ["line 3: a\nb", "<script>"]}
    made.ended("p0", outcome="failed", diagnosis=diagnosis, phase="<b>")
    text = to_markdown(build(made.output, ["p0"]))
    assert "**x\\|y** in phase &lt;b>: do # this" in text
    assert "\n```\nline 3: a\nb\n<script>\n```\n" in text


def test_the_report_is_written_twice_with_the_same_facts(made: Made) -> None:
    made.trained("p0", metrics={"final": {"psnr": 26.54}, "initial": {"psnr": 14.0}}, warnings=["odd | thing"])
    made.ended("p1", **FAILED, phase="train")
    made.tell("audit", verified=True, refused={}, warnings=["img0.png: dark"])
    write_report(made.output, ["p0", "p1", "p2"])
    record = read_json(made.output.report("json")) or {}
    text = made.output.report("md").read_text()
    assert record["summary"] == "1 of 3 patches trained; failed: p1; waiting: p2"
    assert text.startswith(f"# {record['summary']}\n")
    for words in (
        "26.54 (14.00)",
        "**the training diverged (nan_loss)** in phase train: lower it",
        "```\nline 3: NaN\n```",
        "img0.png: dark",
    ):
        assert words in text


def test_a_report_without_an_audit_says_so(made: Made) -> None:
    made.tell("audit", verified=False, refused={}, warnings=[])
    assert "not verified (`--no-verify`)" in to_markdown(build(made.output, []))


def test_figures_that_are_not_finite_become_none(made: Made) -> None:
    made.output.patch("p0").path.mkdir(parents=True)
    made.output.patch("p0").splat.touch()
    made.output.patch("p0").result.write_text('{"seconds": Infinity, "metrics": {"final": {"psnr": NaN}}}')
    report = write_report(made.output, ["p0"])
    assert report.patches[0].psnr is None
    assert not any(isinstance(value, float) and math.isnan(value) for value in in_json(report.patches[0]).values())


def test_patches_under_the_settings_of_a_sweep_are_counted_as_splats(tmp_path: Path) -> None:
    names = ["p0@base", "p0@mcmc", "p1@base", "p1@mcmc"]
    assert how_many(names) == "2 patches x 2 settings" and how_many(names[:3]) == "3 splats"
    assert how_many(names[:2]) == "1 patch x 2 settings" and how_many(["p0@mcmc"]) == "1 splat"
    statuses = read_status(OutputFolder(tmp_path), names)
    assert summary(statuses) == f"0 of 4 splats trained; waiting: {', '.join(names)}"
