"""What an attempt wrote down is read once when it is judged, however many ask for it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fake_batch import FakeBatch
from simulated import Script, Simulation

WRITES = os.O_WRONLY | os.O_RDWR
OPENED: Counter[Path] = Counter()
RECORDS = {"exit.json", "start.json", "heartbeat.json", "progress.jsonl", "gpu.jsonl", "metrics.json", "result.json"}
"""Of an attempt; job.json and go.json are read by who plays its supervisor here, in this very process."""


def note(event: str, arguments: tuple[Any, ...]) -> None:
    """Count every file that this process opens for reading: an audit hook sees open, os.open and Path alike."""
    if event == "open" and isinstance(arguments[0], str) and not arguments[2] & WRITES:
        OPENED[Path(arguments[0])] += 1


sys.addaudithook(note)


@pytest.mark.parametrize(
    "script", [Script(5), Script(5, log="loss is NaN", fails_after_s=2)], ids=["trained", "failed"]
)
def test_each_record_of_an_attempt_is_opened_once_by_who_judges_it(
    batch: FakeBatch, monkeypatch: pytest.MonkeyPatch, script: Script
) -> None:
    simulation = Simulation(batch, monkeypatch)
    monkeypatch.setattr("splatbatch.scheduler.standby.ON_GPUS", False)
    simulation.patches(p0=script, p1=script)
    OPENED.clear()
    simulation.run(retry={"max_attempts": 1})
    records = {path: times for path, times in OPENED.items() if path.name in RECORDS}
    assert {path.name for path in records} >= {"exit.json", "progress.jsonl"}
    assert set(records.values()) == {1}, records
