"""The history of tasks on other workers, from their ledgers: their failures and retries count for this worker, too."""

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
"""Events of other workers from which a retry history follows."""
OF_ALL_MACHINES = frozenset({"disk_full", "output_unwritable", "bad_config"})
"""Causes that all workers share; any other cause stops the batch only on the host where it occurred."""


class OtherWorkersHistory:
    """Follows the ledgers of all other workers.

    `RetryHandling` asks for the past of a task before it decides on a retry.
    """

    def __init__(self, output: OutputFolder, own: Path) -> None:
        """Follow the ledgers of an output folder, except `own`: the ledger of this worker."""
        self._output, self._tail = output, Tail(output, AttemptEnded, RetryScheduled, GaveUp, but=own)
        self._events: dict[str, list[tuple[Path, PastReport]]] = {}
        self._hosts: dict[str, str] = {}

    def history(self, name: str) -> RetryHistory:
        """Return the retry history of a task on other workers, since it was last trained or given up.

        `NEW` without failures.
        """
        return history_of(event for _, event in self._reports().get(name, ()))

    def failures(self) -> Mapping[TaskId, tuple[Failure, ...]]:
        """Return by task the failures that concern this machine; a task without such failures has an empty tuple.

        Such a failure occurred on a worker of this host, or has a cause that all workers share.

        Raises:
            LaterFormatError: a later version of splatbatch wrote a heartbeat file.
        """
        told = {
            name: [event for path, event in found if self._concerns_us(path, event)]
            for name, found in self._reports().items()
        }
        return {TaskId.of_folder(name): history_of(found).failures for name, found in told.items()}

    def _concerns_us(self, ledger: Path, event: PastReport) -> bool:
        """Return whether an event is of a worker on this host, or of a cause that all workers share."""
        is_shared = not isinstance(event, AttemptEnded) or event.cause in OF_ALL_MACHINES
        return is_shared or self._host(ledger.stem) == socket.gethostname()

    def _host(self, worker: str) -> str:
        if worker not in self._hosts:
            known = Watcher(self._output).read(worker)
            self._hosts[worker] = known.host if known else ""
        return self._hosts[worker]

    def _reports(self) -> Mapping[str, Sequence[tuple[Path, PastReport]]]:
        """Return the events of each task, each with its ledger, ordered by generation and then as in the ledger."""
        for path, event in self._tail.read():
            if isinstance(event, PastReport):
                found = self._events.setdefault(event.patch, [])
                insort(found, (path, event), key=lambda one: one[1].generation or 0)
        return self._events


def history_of(events: Iterable[PastReport]) -> RetryHistory:
    """Return the retry history that follows from the events of a task, the oldest first; `NEW` without failures.

    A product made, or giving up, begins a new history. Failures of adopted attempts do not count.
    """
    history = NEW
    for event in events:
        match event:
            case GaveUp() | AttemptEnded(outcome="trained" | "made"):
                history = NEW
            case AttemptEnded(outcome="failed", adopted=False, diagnosis=diagnosis) if diagnosis is not None:
                history = replace(history, failures=(*history.failures, Failure(diagnosis, history.rungs)))
            case RetryScheduled(ladder=ladder, changes=changes) if ladder:
                rungs = {**history.rungs, ladder: history.rungs.get(ladder, 0) + 1}
                settings = {key: value for key, value in changes.items() if key != "slots"}
                history = replace(history, rungs=rungs, changes={**history.changes, **settings})
    return history
