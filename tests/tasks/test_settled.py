"""What is settled once before a night: one made-up thing more runs through plan, night, staleness and report.

A fifth thing touches three files: its record (output/records), itself (tasks/shared_decisions), and the tuple that
names it (tasks/shared_decisions/registry.py). Here this module is the first two, and the fixture `seasonal` the third.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import invoke
from fake_batch import FakeBatch

from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.record import TypedRecord
from splatbatch.output.records.result import Result
from splatbatch.tasks.batch import open_batch
from splatbatch.tasks.shared_decisions import registry
from splatbatch.tasks.shared_decisions.decision import PendingTasks, SharedDecision, WholeBatch
from splatbatch.tasks.shared_decisions.holdout import HOLDOUT, as_today, photographs_of
from splatbatch.tasks.task import Task


@dataclass(frozen=True)
class Season(TypedRecord):
    """season.json: when the photographs were taken."""

    name: str = ""


class SettledSeason(SharedDecision[Season]):
    """The season of a batch: what was trained in spring is stale in any other."""

    kind, name, what = Season, "season", "the season of the batch"
    today = "spring"

    def file(self, output: OutputFolder) -> Path:
        return output.path / "season.json"

    def settle(self, batch: WholeBatch, todo: PendingTasks) -> Season | None:
        todo.say(f"season: it is {self.today} for {len(todo.tasks)} of {len(batch.every)}")
        return Season(self.today)

    def why_stale(self, result: Result, task: Task, record: Season | None) -> str:
        return f"the season has changed: spring -> {record.name}" if record and record.name != "spring" else ""

    def in_words(self, record: Season, tasks: Sequence[Task], todo: Sequence[str]) -> tuple[str, ...]:
        return (f"season: {record.name}",)


@pytest.fixture
def seasonal(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> FakeBatch:
    monkeypatch.setattr(registry, "SHARED_DECISIONS", (*registry.SHARED_DECISIONS, SettledSeason()))
    batch.make("p0", "p1")
    return batch


def states(batch: FakeBatch) -> list[str]:
    return [one["state"] for one in json.loads(invoke("status", "--json", batch=batch).out)["patches"]]


def test_a_fifth_thing_is_planned_settled_recorded_and_told(seasonal: FakeBatch) -> None:
    assert "season: spring" in invoke("plan", batch=seasonal).out
    assert not (seasonal.output / "season.json").exists()
    said = invoke("train", batch=seasonal)
    assert (said.code, "season: it is spring for 2 of 2" in said.err) == (0, True)
    assert json.loads((seasonal.output / "season.json").read_text()) == {"format": 1, "name": "spring"}
    assert "season: spring" in (seasonal.output / "report.md").read_text()


def test_a_fifth_thing_makes_stale_what_was_made_under_another(
    seasonal: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke("train", batch=seasonal)
    assert states(seasonal) == ["trained", "trained"]
    assert "p0: skip" in invoke("plan", batch=seasonal).out
    monkeypatch.setattr(SettledSeason, "today", "autumn")
    assert "p0: train: the season has changed: spring -> autumn" in invoke("plan", batch=seasonal).out
    (seasonal.output / "season.json").write_text('{"name": "autumn"}')
    assert states(seasonal) == ["stale", "stale"]


def test_four_things_are_settled_in_this_order() -> None:
    assert [thing.name for thing in registry.SHARED_DECISIONS] == ["frame", "holdout", "colors", "deadline"]


def test_a_patch_may_hold_out_its_own_and_its_record_counts_from_then_on(batch: FakeBatch) -> None:
    batch.make("p0", "p1").change(patches={"p1": {"evaluation": {"holdout_every": 2}}})
    invoke("train", batch=batch)
    batch.change(patches={"p1": {"evaluation": {"holdout_every": 3}}})
    opened = open_batch(batch.config)
    folders = [(task, opened.output.patch(task.name)) for task in opened.every]
    recorded = [photographs_of(task, folder, folder.read_result() or Result()) for task, folder in folders]
    assert [len(one.held_out) for one in recorded] == [2, 5]
    assert [len(as_today(task).held_out) for task in opened.every] == [2, 3]
    assert "p1: train: settings have changed: evaluation.holdout_every 2 -> 3" in invoke("plan", batch=batch).out


def test_what_is_held_out_lies_in_no_file_of_the_batch(batch: FakeBatch) -> None:
    batch.make("p0")
    invoke("train", batch=batch)
    opened = open_batch(batch.config)
    assert (record := opened.record(HOLDOUT)) and record.holdout == "frames"  # as the result of p0 says
    assert not list(opened.output.path.glob("hold*"))
    assert HOLDOUT.watched(opened.config, opened.output).parent == opened.config.scene.patches
