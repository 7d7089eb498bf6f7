"""What somebody merges or publishes by hand is made by the task that makes it in a night."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from command_line import invoke
from cut_batch import copy_of, trained
from fake_batch import FakeBatch

from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.run import FollowUpResult
from splatbatch.run.follow_ups import FinishedBatch, FollowUpTask
from splatbatch.run.interruption import Interruption
from splatbatch.scene.patches import Patch
from splatbatch.tasks.batch import open_batch


@pytest.fixture(scope="module")
def cut_once(tmp_path_factory: pytest.TempPathFactory) -> FakeBatch:
    return trained(tmp_path_factory.mktemp("trained") / "batch")


@pytest.fixture
def cut(cut_once: FakeBatch, tmp_path: Path) -> FakeBatch:
    return copy_of(cut_once, tmp_path / "cut")


def attempts(batch: FakeBatch, what: str) -> list[AttemptFolder]:
    return OutputFolder(batch.output).following(what).attempts()


@pytest.mark.all
def test_each_is_an_attempt_in_a_process_of_its_own_and_what_is_fresh_stays(cut: FakeBatch) -> None:
    to = ("--as", "ply", "--to", str(cut.folder / "site"), "--no-measure")
    for what, arguments, fresh in (("merge", (), "not written again"), ("publish", to, "scene.ply: up to date")):
        first, second = (cut.run_apart(what, *arguments) for _ in range(2))
        assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
        assert fresh not in first.stdout + first.stderr and fresh in second.stdout + second.stderr
        (latest,) = attempts(cut, what)
        job = latest.read_job()
        assert latest.number == 2 and job is not None and job.argv[1:4] == ("-m", "splatbatch", what)


def test_what_cannot_be_made_ends_with_the_code_of_its_error_and_says_why(cut: FakeBatch) -> None:
    (cut.output / "patches/p1/splat.ply").unlink()
    ended = invoke("merge", batch=cut)
    assert ended.code == 6 and "1 of 5 patches cannot be merged: p1: " in ended.err and "Traceback" not in ended.err


def test_an_attempt_of_somebody_else_that_still_runs_is_left_alone(cut: FakeBatch) -> None:
    theirs = OutputFolder(cut.output).following("publish").path / "attempt-01"
    theirs.mkdir(parents=True)
    assert invoke("publish", "p0", "--as", "ply", "--to", str(cut.folder / "site"), batch=cut).code == 0
    assert [one.number for one in attempts(cut, "publish")] == [1, 2]


def test_of_a_folder_that_is_only_read_may_be_published(cut: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, *_: path != cut.output)
    before = sorted(cut.output.rglob("*"))
    assert invoke("publish", "p0", "--as", "ply", "--to", str(cut.folder / "site"), batch=cut).code == 0
    assert (cut.folder / "site/p0.ply").exists() and sorted(cut.output.rglob("*")) == before


def test_it_is_interrupted_at_once(cut: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(self: FollowUpTask, patch: Patch, folder: AttemptFolder) -> tuple[str, ...]:
        return (sys.executable, "-c", "import time; time.sleep(600)")

    monkeypatch.setattr(FollowUpTask, "command", hangs)
    attempt = cut.output / "afterwards/merge/attempt-01"
    merge = cut.beside("merge").until((attempt / "start.json").exists)
    merge.send(signal.SIGTERM)
    assert merge.ended().returncode == 143


@pytest.mark.parametrize(
    ("what", "command"),
    [("merge", "splatbatch merge"), ("evaluate", "splatbatch evaluate"), ("publish", "splatbatch train")],
)
def test_what_was_interrupted_names_the_command_that_makes_it(batch: FakeBatch, what: str, command: str) -> None:
    """`train` merges only to publish, and evaluates nothing."""
    opened = open_batch(batch.make("p0").config)
    opened.output.create()
    told_to_stop = cast("Interruption", SimpleNamespace(signal=15, reason=lambda: "SIGTERM"))
    finished = FinishedBatch(opened, 0, told_to_stop, print, None, print)
    assert finished.follow(what, lambda: FollowUpResult(what, "done")).command == command
