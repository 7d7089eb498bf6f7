"""Status, report, explain, plan and notifications say the same of a patch: why in plain words, the code in brackets."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from command_line import invoke
from fake_batch import FakeBatch

from splatbatch.cli.server import LiveStatus
from splatbatch.output.exclusive import hold
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.run import FollowUpResult
from splatbatch.report.facts import Report, ReportedPatch
from splatbatch.report.todo import todo
from splatbatch.tasks.batch import open_batch

WHY = "GPU memory ran out (cuda_oom)"
LETTER = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"


@pytest.fixture
def failed(batch: FakeBatch, told_here: None) -> FakeBatch:
    """A batch of which one patch has failed for good."""
    told = [sys.executable, "-c", LETTER, str(batch.folder / "told")]
    batch.make("p0", notify={"command": told}, retry={"max_attempts": 1}).script(
        p0=["exit 1 CUDA error: out of memory"]
    )
    assert batch.run("train").returncode == 1
    return batch


def words_of(batch: FakeBatch, *command: str) -> str:
    return " ".join(invoke(*command, batch=batch).out.split())


def told_of(batch: FakeBatch) -> dict[str, Any]:
    """Return what the last notification says of p0."""
    return json.loads((batch.folder / "told").read_text().splitlines()[-1])["patches"][0]


def test_every_command_names_the_cause_in_plain_words_with_its_code(failed: FakeBatch) -> None:
    advice = told_of(failed)["advice"]
    assert f"p0: failed: {WHY}. {advice}" in words_of(failed, "status")
    assert f"failed: {WHY} in phase" in words_of(failed, "explain", "p0")
    assert advice.partition(" (The patch is given up")[0] in words_of(failed, "explain", "p0")
    assert f"now: failed: {WHY}" in words_of(failed, "explain", "p0")
    report = words_of(failed, "report")
    assert f"p0: {WHY}: {advice.partition(' Try: ')[0]}" in report and f"**{WHY}**" in report
    page = (failed.output / "report.html").read_text()
    assert f"<b>{WHY}</b>" in page and "cuda oom" not in page
    assert (
        json.loads((failed.folder / "told").read_text().splitlines()[-1])["patches"][0]["in_words"]
        == f"failed: {WHY}. {advice}"
    )


def test_before_a_first_train_all_commands_refuse_the_same_patch(batch: FakeBatch) -> None:
    batch.make("p0", "p1")
    next((batch.folder / "patches/p0/sparse/0").glob("points3D.*")).unlink()
    why = invoke("plan", batch=batch).out.partition("p0: refuse: ")[2].partition("\n")[0]
    refused = f"refused: the audit found errors (audit). {why}"
    assert why and f"p0: {refused}" in words_of(batch, "status")
    assert f"now: {refused}" in words_of(batch, "explain", "p0")
    report = json.loads(invoke("report", "--json", batch=batch).out)
    assert [one["state"] for one in report["patches"]] == ["refused", "waiting"]
    assert report["todo"][0]["what"] == why


def test_while_somebody_trains_the_report_offers_only_commands_that_look() -> None:
    states = ("failed", "refused", "stopped", "stale", "waiting")
    patches = tuple(ReportedPatch(f"p{index}", state) for index, state in enumerate(states))
    report = Report(
        patches=patches, afterwards=(FollowUpResult("merge", "left out", "not merged", "splatbatch merge"),)
    )
    offered = [item.command for item in todo(report, is_at_work=True)]
    assert offered == ["splatbatch explain p0", "splatbatch verify-dims p1"]
    assert len(todo(report)) == 6


def test_the_page_of_a_batch_that_is_trained_now_offers_nothing_that_is_refused(failed: FakeBatch) -> None:
    board = LiveStatus(open_batch(failed.config))
    assert "splatbatch retry p0" in board.page()
    with hold(OutputFolder(failed.output), "", print):  # as a `train` does
        page = LiveStatus(open_batch(failed.config)).page()
    assert "splatbatch explain p0" in page and "<code>splatbatch retry" not in page
