"""The history: appended durably, read whatever happened to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from splatbatch.store.ledger import Ledger, events, judged_attempts


def test_events_are_read_in_the_order_they_were_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for number in range(3):
        ledger.write("retry", patch="p0", wait_s=number)
    assert [event["wait_s"] for event in events(tmp_path / "ledger.jsonl")] == [0, 1, 2]
    assert all(event["t"] > 1.7e9 for event in events(tmp_path / "ledger.jsonl"))


def test_whoever_listens_hears_an_event_after_it_is_written(tmp_path: Path) -> None:
    heard: list[tuple[dict[str, Any], int]] = []
    path = tmp_path / "ledger.jsonl"
    Ledger(path, lambda event: heard.append((event, len(list(events(path)))))).write("refused", patch="p0")
    assert heard[0][0]["event"] == "refused"
    assert heard[0][1] == 1


def test_a_torn_line_and_foreign_lines_are_left_out_and_appending_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b'{"event": "a"}\nhello\n[]\n{"no": "event"}\n\xff\xfe\n{"event": "b", "pat')
    Ledger(path).write("c")
    assert [event["event"] for event in events(path)] == ["a", "c"]


def test_a_ledger_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert list(events(tmp_path / "ledger.jsonl")) == []
    assert not judged_attempts(tmp_path / "ledger.jsonl")


def test_an_attempt_is_judged_when_its_end_stands_in_the_ledger(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.write("attempt_started", patch="p0", attempt=1)
    ledger.write("attempt_ended", patch="p0", attempt=2)
    ledger.write("attempt_ended")
    ledger.write("attempt_ended", patch="p0", attempt=None)
    judged = judged_attempts(tmp_path / "ledger.jsonl")
    assert ("p0", 2) in judged
    assert ("p0", 1) not in judged
