"""What is settled once before a night: one made-up thing more runs through plan, night, staleness and report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import invoke
from fake_batch import FakeBatch

from splatbatch.store.layout import OutputFolder
from splatbatch.store.records.record import TypedRecord
from splatbatch.store.records.result import Result
from splatbatch.tasks.settled import every
from splatbatch.tasks.settled.settled import Settled, Todo, Whole
from splatbatch.tasks.task import Task


@dataclass(frozen=True)
class Season(TypedRecord):
    """season.json: when the photographs were taken."""

    name: str = ""


class SettledSeason(Settled[Season]):
    """The season of a batch: what was trained in spring is stale in any other."""

    kind, name, what = Season, "season", "the season of the batch"
    today = "spring"

    def file(self, output: OutputFolder) -> Path:
        return output.path / "season.json"

    def settle(self, batch: Whole, todo: Todo) -> Season | None:
        todo.say(f"season: it is {self.today} for {len(todo.tasks)} of {len(batch.every)}")
        return Season(self.today)

    def why_stale(self, result: Result, task: Task, record: Season | None) -> str:
        return f"the season has changed: spring -> {record.name}" if record and record.name != "spring" else ""

    def in_words(self, record: Season, tasks: Sequence[Task], todo: Sequence[str]) -> tuple[str, ...]:
        return (f"season: {record.name}",)


@pytest.fixture
def seasonal(batch: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> FakeBatch:
    monkeypatch.setattr(every, "SETTLED", (*every.SETTLED, SettledSeason()))
    batch.make("p0", "p1")
    return batch


def states(batch: FakeBatch) -> list[str]:
    return [one["state"] for one in json.loads(invoke("status", "--json", batch=batch).out)["patches"]]


def test_a_fifth_thing_is_planned_settled_recorded_and_told(seasonal: FakeBatch) -> None:
    assert "season: spring" in invoke("plan", batch=seasonal).out
    assert not (seasonal.output / "season.json").exists()
    said = invoke("train", batch=seasonal)
    assert (said.code, "season: it is spring for 2 of 2" in said.err) == (0, True)
    assert json.loads((seasonal.output / "season.json").read_text()) == {"name": "spring"}
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
