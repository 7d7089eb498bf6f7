"""What tasks have been through with other workers: failures and rungs count, whoever has seen them, in their order."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from splatbatch.config import TaskId
from splatbatch.failures.retry import NEW, why_stop_batch
from splatbatch.output.layout import OutputFolder
from splatbatch.scheduler.work.other_workers_history import OtherWorkersHistory

RETRY = {"event": "retry", "wait_s": 1.0, "ladder": "numerics", "trained_in_between": []}


@pytest.fixture
def output(tmp_path: Path) -> OutputFolder:
    folder = OutputFolder(tmp_path)
    folder.ledger.parent.mkdir()
    (tmp_path / "workers").mkdir()
    return folder


def failed(cause: str, **more: Any) -> dict[str, Any]:
    diagnosis = {"cause": cause, "action": "retry", "advice": "", "evidence": [], "phase": "train"}
    return {"event": "attempt_ended", "outcome": "failed", "attempt": 1, "diagnosis": diagnosis, **more}


def tell(output: OutputFolder, worker: str, *events: dict[str, Any], host: str = "") -> None:
    output.worker(worker).write_text(json.dumps({"worker": worker, "host": host or socket.gethostname()}))
    lines = [json.dumps({"patch": "p0", "t": 1.0, "generation": 1, **event}) + "\n" for event in events]
    with output.ledger_of(worker).open("a") as file:
        file.writelines(lines)


def causes(past: OtherWorkersHistory, name: str = "p0") -> list[str]:
    return [failure.diagnosis.cause for failure in past.history(name).failures]


def test_failures_and_rungs_of_two_workers_make_one_history(output: OutputFolder) -> None:
    retry = {**RETRY, "changes": {"training.init_scale": 0.3, "slots": 1}}
    tell(output, "b", failed("nan_loss"), retry, host="another")
    tell(output, "a", failed("segfault", generation=2, t=0.5))  # by a clock that is behind
    past = OtherWorkersHistory(output, output.ledger_of("me"))
    assert causes(past) == ["nan_loss", "segfault"]
    assert past.history("p0").rungs == {"numerics": 1}
    assert past.history("p0").changes == {"training.init_scale": 0.3}
    tell(output, "a", failed("oom", generation=2))
    assert causes(past) == ["nan_loss", "segfault", "oom"]


def test_what_is_just_being_written_is_counted_once_it_is_whole(output: OutputFolder) -> None:
    tell(output, "a", failed("nan_loss"), failed("segfault"))
    whole = output.ledger_of("a").read_text()
    past, half = OtherWorkersHistory(output, output.ledger_of("me")), whole[: len(whole) * 3 // 4]
    output.ledger_of("a").write_text(half)
    assert causes(past) == ["nan_loss"]
    output.ledger_of("a").write_text(whole)
    assert causes(past) == ["nan_loss", "segfault"]


@pytest.mark.parametrize("end", [{"event": "gave_up", "reason": "x"}, {"event": "attempt_ended", "outcome": "trained"}])
def test_what_was_before_it_was_trained_or_given_up_counts_no_more(output: OutputFolder, end: dict[str, Any]) -> None:
    tell(output, "a", failed("nan_loss"), {**RETRY, "changes": {"training.seed": 1}}, end)
    past = OtherWorkersHistory(output, output.ledger_of("me"))
    assert past.history("p0") == NEW


def test_what_was_lost_with_a_worker_is_not_held_against_its_task(output: OutputFolder) -> None:
    tell(output, "a", failed("lost", adopted=True))
    assert causes(OtherWorkersHistory(output, output.ledger_of("me"))) == []


def test_what_we_have_told_ourselves_is_not_counted_twice_and_one_alone_follows_nobody(output: OutputFolder) -> None:
    tell(output, "me", failed("nan_loss"))
    assert causes(OtherWorkersHistory(output, output.ledger_of("me"))) == []


@pytest.mark.parametrize(
    ("cause", "host", "stops"),
    [
        ("cuda_driver_mismatch", "", True),
        ("cuda_driver_mismatch", "far-away", False),
        ("output_unwritable", "far-away", True),
        ("nan_loss", "", False),
    ],
)
def test_a_batch_is_stopped_by_what_others_saw_of_this_machine_or_of_what_is_shared(
    output: OutputFolder, cause: str, host: str, stops: bool
) -> None:
    tell(output, "a", failed(cause), failed(cause, patch="p1"), host=host)
    failures = OtherWorkersHistory(output, output.ledger_of("me")).failures()
    assert set(failures) == {TaskId("p0"), TaskId("p1")}
    assert bool(why_stop_batch(failures)) is stops
