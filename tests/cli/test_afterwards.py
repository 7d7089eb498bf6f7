"""What follows a night: published as far as may be; what is left out stands in terminal, report and notification."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from cut_batch import copy_of, trained
from fake_batch import FakeBatch
from turns import CLOCK, Program

from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.run import products
from splatbatch.run.follow_ups import FollowUpTask
from splatbatch.scene.patches import Patch

KEEP = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"
MAIN = "import os, signal, sys; from splatbatch.cli import main"
pytestmark = pytest.mark.usefixtures("told_here")
FAILS = ["exit 1 ModuleNotFoundError: No module named 'x'"]


@pytest.fixture(scope="module")
def cut_once(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    return trained(tmp_path_factory.mktemp("trained") / "batch")


@pytest.fixture
def cut(cut_once: FakeBatch, tmp_path: Path) -> FakeBatch:
    """Return four patches of one scene; p1 has lost its splat, and fails from now on."""
    batch = copy_of(cut_once, tmp_path / "cut")
    for path in (batch.output / "patches/p1").iterdir():
        path.unlink() if path.is_file() else None
    for record in (batch.output / "patches/p1/accepted").glob("*.json"):
        record.unlink()
    return batch.script(p1=FAILS)


def asked(batch: FakeBatch, **publish: Any) -> FakeBatch:
    """Have a batch publish PLYs, and tell a file."""
    told = [sys.executable, "-c", KEEP, str(batch.folder / "told")]
    batch.change(publish={"formats": ["ply"], "folder": "site", "measure": False, **publish}, notify={"command": told})
    return batch


def does(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Have the program that merges and publishes do something else."""

    def command(self: FollowUpTask, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        return (sys.executable, "-c", program, *self.words)

    monkeypatch.setattr(FollowUpTask, "command", command)


def events_of(batch: FakeBatch, task: str) -> list[tuple[str, str | None]]:
    """Return what the ledger has of a task, and the outcomes of its attempts."""
    found = [json.loads(line) for line in batch.ledger.read_text().splitlines()]
    return [(one["event"], one.get("outcome")) for one in found if one.get("patch") == task and "attempt" in one]


def site(batch: FakeBatch) -> list[str]:
    folder = batch.folder / "site"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def told_everywhere(batch: FakeBatch) -> str:
    """Return what report and notification say of publishing, if they say the same."""
    report = json.loads((batch.output / "report.json").read_text())
    message = json.loads((batch.folder / "told").read_text().splitlines()[-1])
    (said,) = [one for one in report["afterwards"] if one["what"] == "publish"]
    assert [one for one in message["afterwards"] if one["what"] == "publish"] == [said]
    assert said["words"] in [one["what"] for one in report["todo"]] or said["state"] == "done"
    words = said["words"].split(":")[0]
    assert words in (batch.output / "report.md").read_text() and words in (batch.output / "report.html").read_text()
    return f"{said['state']}: {said['words']}"


def test_one_untrained_patch_keeps_no_other_patch_from_being_published(batch: FakeBatch) -> None:
    asked(batch.make("p0", "p1")).script(p1=FAILS)
    ended = batch.run("train")
    assert (ended.returncode, site(batch)) == (1, ["p0.ply", "publish.json"])
    assert "not published: p1: failed: a package is missing" in ended.stderr and "splatbatch train" in ended.stderr
    assert told_everywhere(batch).startswith("partly: published: p0")


def test_where_nothing_is_trained_it_is_said_that_nothing_is_published(batch: FakeBatch) -> None:
    asked(batch.make("p0")).script(p0=FAILS)
    ended = batch.run("train")
    assert (ended.returncode, site(batch)) == (1, [])
    assert "not published: p0: failed" in ended.stderr
    assert told_everywhere(batch).startswith("left out: not published: p0: failed")


def test_a_scene_that_lacks_a_patch_is_not_published_and_that_is_said(cut: FakeBatch) -> None:
    ended = asked(cut).run("train")
    assert (ended.returncode, site(cut)) == (1, [])
    assert "not published: p1: " in ended.stderr and "publish.allow_missing: true" in ended.stderr
    assert told_everywhere(cut).startswith("left out: not published: p1: ")


def test_a_scene_may_be_published_with_holes(cut: FakeBatch) -> None:
    ended = asked(cut, allow_missing=True).run("train")
    assert (ended.returncode, site(cut)) == (1, ["publish.json", "scene.ply"]), ended.stderr
    assert told_everywhere(cut).startswith("partly: published with holes: ")


def test_a_batch_that_is_interrupted_says_that_nothing_is_published(batch: FakeBatch) -> None:
    asked(batch.make("p0", "p1")).script(p0=["hang"])
    night = batch.beside("train").until((batch.output / "patches/p0/attempt-01/progress.jsonl").exists)
    night.send(signal.SIGTERM)
    ended = night.ended()
    assert ended.returncode == 143 and "not published: interrupted (SIGTERM)" in ended.stderr
    assert told_everywhere(batch).startswith("left out: not published: interrupted")


def test_publishing_is_interrupted_at_once_and_people_are_told(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    does(monkeypatch, "import time; time.sleep(600)")
    attempt = asked(batch.make("p0")).output / "afterwards/publish/attempt-01"
    night = batch.beside("train").until((attempt / "start.json").exists)
    began = time.monotonic()
    night.send(signal.SIGTERM)
    assert night.ended().returncode == 143
    assert time.monotonic() - began < 40
    assert told_everywhere(batch) == "left out: not published: interrupted (SIGTERM)"
    assert events_of(batch, "afterwards/publish") == [("attempt_started", None), ("attempt_ended", "stopped")]


@pytest.mark.all(but="fault0")
@pytest.mark.parametrize("fault", [MemoryError("too much"), RecursionError("too deep"), ValueError("x"), OSError("y")])
def test_a_fault_while_publishing_changes_no_exit_code(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(products, "publish_here", fail)
    ended = asked(batch.make("p0")).run("train")
    assert ended.returncode == 0 and "Traceback" not in ended.stderr
    assert "not published: " in ended.stderr and str(fault) in told_everywhere(batch)
    assert "failed" in [outcome for _, outcome in events_of(batch, "afterwards/publish")]


def test_a_merge_and_a_publication_are_tasks_of_the_night(cut_once: FakeBatch, tmp_path: Path) -> None:
    batch = asked(copy_of(cut_once, tmp_path / "cut"))
    ended = batch.run("train")
    assert (ended.returncode, site(batch)) == (0, ["publish.json", "scene.ply"]), ended.stderr
    for task in ("merge", "publish"):
        assert events_of(batch, f"afterwards/{task}") == [("attempt_started", None), ("attempt_ended", "made")]
    assert "scene.ply: " in ended.stderr  # what its process says is passed on
    assert told_everywhere(batch).startswith("done: published: 1 output")


def test_a_publication_that_crashes_is_made_once_more(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    first = "os.kill(os.getpid(), signal.SIGSEGV) if os.getcwd().endswith('/attempt-01') else None"
    does(monkeypatch, f"{MAIN}; {first}; main(sys.argv[1:])")
    ended = asked(batch.make("p0")).run("train")
    assert (ended.returncode, site(batch)) == (0, ["p0.ply", "publish.json"]), ended.stderr
    assert [outcome for _, outcome in events_of(batch, "afterwards/publish") if outcome] == ["failed", "made"]


@pytest.mark.all
def test_what_is_published_by_hand_is_no_longer_missing_in_the_report(batch: FakeBatch) -> None:
    asked(batch.make("p0")).script(p0=FAILS)
    assert batch.run("train").returncode == 1
    batch.change(publish={"formats": []})
    assert batch.script().run("train").returncode == 0
    report = json.loads((batch.output / "report.json").read_text())
    assert (report["afterwards"], report["todo"]) == ([], [])
    asked(batch)
    assert batch.run("publish").returncode == 0 and batch.run("report").returncode == 0
    report = json.loads((batch.output / "report.json").read_text())
    assert [one["state"] for one in report["afterwards"]] == ["done"]


@pytest.mark.all
def test_workers_publish_once_and_say_what_is_left_out(batch: FakeBatch) -> None:
    asked(batch.make("p0", "p1")).script(p1=FAILS)
    ended = batch.run("work")
    assert (ended.returncode, site(batch)) == (1, ["p0.ply", "publish.json"])
    assert "not published: p1: failed" in ended.stderr
    batch.change(evaluation={"inspect": True})
    assert "not inspected: p0: workers of a batch do not inspect splats" in batch.run("work").stderr
    report = json.loads((batch.output / "report.json").read_text())
    assert [one["state"] for one in report["afterwards"]] == ["left out", "partly"]


def test_an_inspection_that_is_left_out_is_said(batch: FakeBatch) -> None:
    batch.make("p0", evaluation={"inspect": True}).script(p0=FAILS)
    ended = batch.run("train")
    assert "not inspected, no splat yet: p0" in ended.stderr
    report = json.loads((batch.output / "report.json").read_text())
    assert [(one["what"], one["state"]) for one in report["afterwards"]] == [("inspect", "left out")]


@pytest.mark.all
@pytest.mark.usefixtures("clock")
def test_a_turn_is_awaited_while_another_publish_is_at_work(batch: FakeBatch) -> None:
    asked(batch.make("p0"))
    left = batch.folder / "site" / f".work.{os.uname().nodename}.{os.getppid()}"  # of a process that lives
    left.mkdir(parents=True)

    def go_away() -> None:
        time.sleep(3)
        left.rmdir()

    CLOCK.programs.append(Program(go_away))
    assert batch.run("train").returncode == 0
    assert site(batch) == ["p0.ply", "publish.json"]
    assert invoke("report", batch=batch).code == 0


@pytest.mark.all
def test_a_damaged_splat_keeps_no_other_patch_from_being_published(batch: FakeBatch) -> None:
    assert asked(batch.make("p0", "p1")).run("train").returncode == 0
    splat = batch.output / "patches/p0/splat.ply"
    before = splat.stat()
    for path in (splat, *splat.parent.glob("attempt-*/splat.ply")):
        data = bytearray(path.read_bytes())
        data[-40:] = b"\xff" * 40
        path.chmod(0o644)
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    batch.change(publish={"folder": "again"})
    ended = batch.run("train", "p1")
    assert (ended.returncode, (batch.folder / "again/p1.ply").exists()) == (0, True), ended.stderr
    assert "not published: p0: " in ended.stderr
