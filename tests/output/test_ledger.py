"""The history: appended durably, read whatever happened to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_records import ANY_JSON

from splatbatch.files import append_line
from splatbatch.outcome import Diagnosis, Exited, Failed, Stopped
from splatbatch.output.events import (
    KINDS,
    AttemptEnded,
    AttemptStarted,
    Event,
    GaveUp,
    Notice,
    PatchRejected,
    RetryScheduled,
    event_of,
)
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Ledger, events, judged_attempts, lines
from splatbatch.report.build import attempts_of

if TYPE_CHECKING:
    from fake_batch import FakeBatch

FAILED = Failed(Diagnosis("nan_loss", "fail", "lower it", ("line 3: NaN",), "train"))
FACTS = {"seconds": 2.0, "step": 5, "phase": None}


@pytest.fixture
def output(tmp_path: Path) -> OutputFolder:
    return OutputFolder(tmp_path)


def retry(wait_s: float) -> RetryScheduled:
    return RetryScheduled("p0", wait_s, "", {}, ())


def test_events_are_read_in_the_order_they_were_written(output: OutputFolder) -> None:
    ledger = Ledger(output.ledger)
    for number in range(3):
        ledger.write(retry(number))
    assert [event.wait_s for event in events(output, RetryScheduled)] == [0, 1, 2]
    assert all(event.t and event.t > 1.7e9 for event in events(output, Event))


def test_whoever_listens_hears_an_event_after_it_is_written(output: OutputFolder) -> None:
    heard: list[tuple[Event, int]] = []
    Ledger(output.ledger, lambda event: heard.append((event, len(list(lines(output)))))).write(
        PatchRejected("p0", "dark")
    )
    assert [(type(event), num) for event, num in heard] == [(PatchRejected, 1)]


def test_a_torn_line_and_foreign_lines_are_left_out_and_appending_goes_on(output: OutputFolder) -> None:
    output.ledger.parent.mkdir()
    output.ledger.write_bytes(b'{"event": "a"}\nhello\n[]\n{"no": "event"}\n\xff\xfe\n{"event": "b", "pat')
    Ledger(output.ledger).write(retry(1))
    assert [record["event"] for record in lines(output)] == ["a", "retry"]
    assert [type(event) for event in events(output, Event)] == [RetryScheduled]


def test_a_ledger_that_is_not_there_is_empty(output: OutputFolder) -> None:
    assert list(events(output, Event)) == []
    assert not judged_attempts(output)


def test_an_attempt_is_judged_when_its_end_stands_in_the_ledger(output: OutputFolder) -> None:
    Ledger(output.ledger).write(AttemptStarted("p0", 1, "k", "cpu0", {}))
    Ledger(output.ledger).write(AttemptEnded.of("p0", 2, Stopped("SIGTERM")))
    for facts in ({}, {"attempt": None}):
        append_line(output.ledger, {"event": "attempt_ended", **facts})
    assert judged_attempts(output).keys() == {("p0", 2)}


def test_an_attempt_keeps_its_end_where_a_later_one_could_not_be_started(output: OutputFolder) -> None:
    """The failure to start has the number of the attempt before, as it has none of its own."""
    Ledger(output.ledger).write(AttemptEnded.of("p0", 1, Stopped("SIGTERM"), exit=Exited(0)))
    Ledger(output.ledger).write(AttemptEnded.of("p0", 1, FAILED, phase="start"))
    assert judged_attempts(output)["p0", 1].outcome == "stopped"
    (attempt,) = attempts_of(output.patch("p0"), list(events(output, AttemptEnded)))
    assert attempt.outcome == "stopped"


def test_the_lines_of_a_ledger_are_what_they_have_always_been(output: OutputFolder) -> None:
    ended = AttemptEnded.of("p0", 2, FAILED, exit=Exited(1), **FACTS)
    wanted = {"patch": "p0", "attempt": 2, "outcome": "failed", **FACTS, "gpu_peak_mib": None, "own_gpu_peak_mib": None}
    diagnosis = {**vars(FAILED.diagnosis), "evidence": ["line 3: NaN"]}
    wanted |= {"exit": {"kind": "exited", "code": 1}, "diagnosis": diagnosis, "t": None, "event": "attempt_ended"}
    assert ended.to_record() == wanted
    assert GaveUp("p0", "x", ()).to_record().keys() == {"t", "event", "patch", "reason", "trained_in_between"}
    stopped = AttemptEnded.of("p0", 0, Stopped("x")).to_record()
    assert stopped.keys() == {"t", "event", "patch", "attempt", "outcome", "reason"}


def test_a_notice_stands_in_the_ledger_under_the_keys_of_its_kind() -> None:
    tight = Notice("tight", "it needs 20 GiB of 16", patch="p0", t=1.5, generation=2)
    wanted = {"t": 1.5, "event": "tight", "generation": 2, "patch": "p0", "reason": "it needs 20 GiB of 16"}
    assert list(tight.to_record().items()) == list(wanted.items())
    assert list(Notice("deadline", "all at half their steps").to_record()) == ["t", "event", "text"]
    assert Notice("slot_given_up", "XID 79", slot="gpu0").in_words() == "gpu0: taken out of service: XID 79"


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_an_event_is_read_whatever_its_line_says_and_back_as_it_was(name: str, data: st.DataObject) -> None:
    kind = KINDS[name]
    drawn = data.draw(st.dictionaries(st.sampled_from(list(kind.__dataclass_fields__)), ANY_JSON))
    record: dict[str, Any] = json.loads(json.dumps(drawn), parse_constant=lambda _: None)  # as files are read
    event = event_of({**record, "event": name})
    assert type(event) is kind
    again = event_of(json.loads(json.dumps(event.to_record())))
    assert again == event


def test_a_folder_with_a_ledger_of_old_goes_on_and_retrains_nothing(batch: FakeBatch) -> None:
    batch.make("p0", "p1").script(p1=["exit 1 CUDA error: out of memory", "hang"]).change(retry={"max_attempts": 1})
    assert batch.run("train").returncode == 1
    batch.ledger.rename(batch.output / "ledger.jsonl")
    batch.ledger.parent.rmdir()
    batch.script(p1=["train", "train"])
    assert batch.run("retry", "p1").returncode == 0
    assert [(event["patch"], event["attempt"]) for event in batch.events("attempt_started")] == [("p1", 2)]
    told = batch.run("explain", "p1").stdout
    assert "cuda_oom" in told
    assert "attempt 2" in told
