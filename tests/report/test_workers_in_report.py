"""Workers and nodes in the report: where there is one, nobody reads of it; where there are more, who did what where."""

from __future__ import annotations

import json
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from browser import Watched, artifacts_folder, browser
from drawn import drawn
from made_output import EVENING, MadeOutput

from splatbatch.files import write_json
from splatbatch.report import write_report
from splatbatch.report.facts import Report, ReportedRun
from splatbatch.report.timeline import timelines

EVIL = "<img src=x onerror=alert(1)>|`"


def two_nodes(root: Path, other: str = "node-b") -> MadeOutput:
    """Three workers on two nodes, two of them on slots of one name; one trains still."""
    made = MadeOutput(root)
    made.output.create()
    made.tell(EVENING, "batch_started", patches=["p0"], slots=["cpu0"], changes={})
    (root / "workers").mkdir()
    for number, (host, job) in enumerate((("node-a", "17_1"), (other, "17_2"), (other, EVIL))):
        made.host, made.worker = host, f"w{number}"
        made.clock.clear()
        record = {"worker": f"w{number}", "host": host, "job": job, "since": "today", "has_ended": number < 2}
        write_json(root / "workers" / f"w{number}.json", record)
        made.trained(f"p{2 * number}", "cpu0", 610, 26.3)
        made.trained(f"p{2 * number + 1}", "cpu0", 600, 26.5)
    return made


def report_of(made: MadeOutput) -> Report:
    return write_report(made.finish(), [])


def test_the_report_says_who_has_trained_what_and_where(tmp_path: Path) -> None:
    made = two_nodes(tmp_path)
    report = report_of(made)
    first = report.workers[0]
    assert [one.worker for one in report.workers] == ["w0", "w1", "w2"]
    told = {key: getattr(first, key) for key in ("node", "job", "attempts", "trained", "patches", "has_ended")}
    assert told == {
        "node": "node-a", "job": "17_1", "attempts": 2, "trained": 2, "patches": ("p0", "p1"), "has_ended": True,
    }  # fmt: skip
    assert [patch.node for patch in report.patches] == ["node-a"] * 2 + ["node-b"] * 4
    assert not report.workers[2].has_ended
    page, text = made.output.report("html").read_text(), made.output.report("md").read_text()
    assert ">Workers</h2>" in page
    assert ">node</button>" in page
    assert "| node |" in text
    assert "| w0 | node-a | 17_1 |" in text


def test_where_there_is_one_node_nobody_reads_of_it(tmp_path: Path) -> None:
    made = MadeOutput(tmp_path)
    made.output.create()
    made.trained("p0", "cpu0", 610, 26.3)
    report = report_of(made)
    page, text = made.output.report("html").read_text(), made.output.report("md").read_text()
    assert [one.worker for one in report.workers] == ["local"]
    assert "| node |" not in text
    assert (">Workers</h2>" in page, ">node</button>" in page) == (False, False)


@pytest.mark.all
def test_workers_on_slots_of_one_name_have_a_lane_each_and_share_a_run(tmp_path: Path) -> None:
    report = report_of(two_nodes(tmp_path))
    [night] = pages_of(report)
    assert "6 attempts on 3 GPU or CPU slots of 2 machines" in night
    assert night.count("<span>node-b cpu0</span>") == 2
    assert night.count("<span>node-a cpu0</span>") == 1


def test_runs_of_workers_that_overlap_are_one_and_a_later_night_is_another(tmp_path: Path) -> None:
    report = report_of(two_nodes(tmp_path))
    end = max(attempt.ended_at or 0.0 for patch in report.patches for attempt in patch.attempts)
    at_once = [run(EVENING + late, end) for late in (0, 1, 300)]
    assert len(pages_of(replace(report, runs=at_once))) == 1
    assert len(pages_of(replace(report, runs=[*at_once, run(EVENING + 615, None)]))) == 1
    runs = [run(EVENING, EVENING + 1), run(EVENING + 615, end)]
    [night] = pages_of(replace(report, runs=runs))
    assert "until the next run" in night and " open" in night
    day_after = EVENING + 86_400
    *others, last = report.patches
    later = [replace(one, started_at=day_after + 5, ended_at=day_after + 9) for one in last.attempts]
    patches = (*others, replace(last, attempts=tuple(later)))
    runs.append(run(day_after, day_after + 10))
    latest, earlier = pages_of(replace(report, patches=patches, runs=runs))
    assert " open>" in latest and " open>" not in earlier


def test_a_stage_that_was_made_is_drawn_as_done(tmp_path: Path) -> None:
    report = report_of(two_nodes(tmp_path))
    made = [replace(one, outcome="made", cause="", ended_at=one.started_at + 5) for one in report.patches[0].attempts]
    patches = (replace(report.patches[0], attempts=tuple(made)),)
    [night] = pages_of(replace(report, patches=patches))
    assert 'class="bar done"' in night and "✓" in night
    assert 'class="bar running"' not in night


def pages_of(report: Report) -> list[str]:
    return [drawn("drawings", "timeline", one) for one in timelines(report, {})]


def run(started_at: float, ended_at: float | None) -> ReportedRun:
    return ReportedRun(started_at, ended_at, (), {}, "")


@pytest.mark.all
def test_what_a_host_or_an_engine_calls_itself_stays_text(tmp_path: Path) -> None:
    made = two_nodes(tmp_path, EVIL)
    report_of(made)
    page, text = made.output.report("html").read_text(), made.output.report("md").read_text()
    assert "<img src=x" not in page + text
    assert EVIL in unescape(page)
    assert all(line.count("|") - line.count("\\|") in (0, 7, 12) for line in text.splitlines())


def test_ledgers_of_workers_say_whose_they_are(tmp_path: Path) -> None:
    made = two_nodes(tmp_path)
    made.finish()
    events = [{"t": EVENING + 9, "event": "batch_started", "patches": [], "slots": [], "changes": {}}]
    events += [{"t": EVENING + 99, "event": "batch_ended", "trained": 0, "of": 1, "stopped": ""}]
    made.output.ledger_of("w1").write_text("".join(json.dumps(event) + "\n" for event in events))
    runs = write_report(made.output, []).runs
    assert [(one.worker, one.ended_at) for one in runs] == [("", None), ("w1", EVENING + 99)]


@pytest.mark.all
def test_it_reads_well(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    made = two_nodes(tmp_path)
    report_of(made)
    with browser() as chromium:
        watched = Watched(chromium.new_page(viewport={"width": 1280, "height": 900}))
        watched.open(made.output.report("html"))
        watched.shoot(artifacts_folder(tmp_path_factory.mktemp("screenshots")), "workers", full_page=True)
        wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        assert (watched.errors, watched.page.evaluate(wide)) == ([], True)
