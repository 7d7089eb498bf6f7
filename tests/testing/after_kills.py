"""What must hold of a batch when all is over, whoever was killed or frozen meanwhile."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

from accepted_pairs import fault_of_pair
from fake_batch import FakeBatch
from process_family import left_of


def events_of(batch: FakeBatch, kind: str) -> list[dict]:
    """Return the events of a kind; a line that a kill has torn is none."""
    lines = batch.ledger.read_text().splitlines() if batch.ledger.exists() else []
    events = (json.loads(line) for line in lines if line.endswith("}"))
    return [event for event in events if event["event"] == kind]


def faults_of(batch: FakeBatch, units: Collection[str], failing: Collection[str] = ()) -> Iterator[str]:
    """Say what is lost, done twice, wrongly done or left of a batch that must have trained some units only.

    Those that always fail may have been tried.
    """
    ended = events_of(batch, "attempt_ended")
    trained = sorted(event["patch"] for event in ended if event["outcome"] == "trained")
    if trained != sorted(units):
        yield f"trained in the ledger: {trained}"
    if wrongly := {event["patch"] for event in events_of(batch, "attempt_started")} - {*units, *failing}:
        yield f"started: {sorted(wrongly)}"
    for unit in units:
        if fault := fault_of_pair(batch.output / "patches" / unit):
            yield f"{unit}: {fault}"
    if left := left_of(batch):
        yield f"processes left: {left}"
    if litter := [str(path) for path in batch.output.glob("patches/**/.*")]:
        yield f"litter: {litter}"
