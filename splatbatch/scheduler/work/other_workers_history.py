"""The history of a task with other workers: their failures and retries count here, too."""

from __future__ import annotations

import socket
from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from splatbatch.config import TaskId
from splatbatch.failures.retry import NEW, Failure, RetryHistory
from splatbatch.output.events import AttemptEnded, GaveUp, RetryScheduled
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Tail
from splatbatch.output.workers import Watcher

PastReport = AttemptEnded | RetryScheduled | GaveUp
OF_ALL_MACHINES = frozenset({"disk_full", "output_unwritable", "bad_config"})
"""Causes that lie in what workers share; of the others a batch is stopped where they were seen, and not elsewhere."""


class OtherWorkersHistory:
    """Follows the ledgers of the other workers, for the decisions on retries."""

    def __init__(self, output: OutputFolder, own: Path) -> None:
        self._output, self._tail = output, Tail(output, AttemptEnded, RetryScheduled, GaveUp, but=own)
        self._events: dict[str, list[tuple[Path, PastReport]]] = {}
        self._hosts: dict[str, str] = {}

    def history(self, name: str) -> RetryHistory:
        """Return what a task has been through since it was trained, or given up, last."""
        return history_of(event for _, event in self._reports().get(name, ()))

    def failures(self) -> Mapping[TaskId, tuple[Failure, ...]]:
        """Return the failures of all tasks with other workers that tell of more than the machine they were on."""
        told = {
            name: [event for path, event in found if self._concerns_us(path, event)]
            for name, found in self._reports().items()
        }
        return {TaskId.of_folder(name): history_of(found).failures for name, found in told.items()}

    def _concerns_us(self, ledger: Path, event: PastReport) -> bool:
        """Return whether an event tells of this machine, or of what all of them share."""
        is_shared = not isinstance(event, AttemptEnded) or event.cause in OF_ALL_MACHINES
        return is_shared or self._host(ledger.stem) == socket.gethostname()

    def _host(self, worker: str) -> str:
        if worker not in self._hosts:
            known = Watcher(self._output).read(worker)
            self._hosts[worker] = known.host if known else ""
        return self._hosts[worker]

    def _reports(self) -> Mapping[str, Sequence[tuple[Path, PastReport]]]:
        """Return the reports on each task, each with its ledger: by generation, and as they stand in a ledger."""
        for path, event in self._tail.read():
            if isinstance(event, PastReport):
                found = self._events.setdefault(event.patch, [])
                insort(found, (path, event), key=lambda one: one[1].generation or 0)
        return self._events


def history_of(events: Iterable[PastReport]) -> RetryHistory:
    """Return what the events of a task, first to last, say that it has been through."""
    history = NEW
    for event in events:
        match event:
            case GaveUp() | AttemptEnded(outcome="trained" | "made"):
                history = NEW
            case AttemptEnded(outcome="failed", adopted=False, diagnosis=diagnosis) if diagnosis is not None:
                failure = Failure(diagnosis, history.rungs)
                history = replace(history, failures=(*history.failures, failure))
            case RetryScheduled(ladder=ladder, changes=changes) if ladder:
                rungs = {**history.rungs, ladder: history.rungs.get(ladder, 0) + 1}
                settings = {key: value for key, value in changes.items() if key != "slots"}
                history = replace(history, rungs=rungs, changes={**history.changes, **settings})
    return history
