"""Patches taken out of a running batch: cancelled by a file in its output folder, or refused before their turn."""

from __future__ import annotations

import getpass
import os
import signal
import socket
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path

from splatbatch import processes
from splatbatch.files import write_json
from splatbatch.machine.protocol import AttemptExecutor, Key
from splatbatch.outcome import Stopped
from splatbatch.output.events import AttemptEnded, CancelRequested, PatchRejected
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.run import CancelRequest, RunIdentity, WorkerRecord
from splatbatch.output.workers import LOCAL
from splatbatch.scheduler.queue import Queue
from splatbatch.scheduler.retry_handling import RetryHandling
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.running_attempt import RunningAttempt, ask_to_end
from splatbatch.scheduler.standby import Standbys
from splatbatch.tasks.task import Task

LOOK_S = 0.3


def ask(output: OutputFolder, run: WorkerRecord, patches: Sequence[str]) -> Path:
    """Ask a run or a worker to end, or to leave some patches; return the request: it is gone once it has obeyed.

    Args:
        output: the folder that it trains into.
        run: the `train` that holds it, or a worker. No other obeys: a request that is left over stops no later run.
        patches: that it should leave; none: all.
    """
    request = output.new_cancel("" if run.worker == LOCAL else run.worker)
    by = f"{_user()} on {socket.gethostname()}"
    request.parent.mkdir(parents=True, exist_ok=True)
    write_json(request, CancelRequest(run.identity(), tuple(patches), by).to_record())
    is_here = run.host == socket.gethostname() and run.identity().boot_id == processes.boot_id()
    if not patches and is_here and run.pid is not None and processes.start_ticks(run.pid) == run.ticks:
        processes.send(signal.SIGTERM, [run.pid])
        processes.send(signal.SIGCONT, [run.pid])  # one that was stopped (Ctrl-Z) hears nothing else
    return request


class Cancellations:
    """What of a batch is not wanted any more, and its end."""

    def __init__(self, output: OutputFolder, executor: AttemptExecutor, ledger: Ledger, retries: RetryHandling) -> None:
        self._output, self._executor, self._ledger, self._retries = output, executor, ledger, retries
        self.requests: Callable[[], list[Path]] = output.cancels
        """Says where requests to this run lie."""
        self.is_shared = False
        """Others train into the folder, too."""
        self._audited: Mapping[str, str] = {}
        self._next_look = 0.0
        self._unwanted: dict[str, str] = {}
        """Patch, and who does not want it."""
        self._asked: set[Key] = set()

    def listen(self, rounds: RunHooks) -> None:
        """Take requests from where a run, or a worker, is sent them."""
        self.requests = rounds.requests or self._output.cancels
        self.is_shared = not rounds.is_alone
        self._audited = rounds.audited

    def look(self, queue: Queue, standbys: Standbys, running: Mapping[Key, RunningAttempt]) -> None:
        """Obey requests: patches that wait are not started, attempts that run are stopped; asked in every round."""
        requests = self._requests()
        for request in requests:
            self._hear(request)
        if self._unwanted:
            for task in _withdrawn(self._unwanted, queue, standbys):
                self._record(task)
            self._stop(running.values())
        for request in requests:  # only now: who asked waits for that
            request.unlink(missing_ok=True)

    def _requests(self) -> list[Path]:
        if time.monotonic() < self._next_look:
            return []
        self._next_look = time.monotonic() + LOOK_S
        return self.requests()

    def _hear(self, request: Path) -> None:
        """Take in a request; one that was meant for an earlier run is left over, and only removed."""
        asked, me = self._output.read_cancel(request), os.getpid()
        if asked.run != RunIdentity(me, processes.boot_id(), processes.start_ticks(me)):
            return
        self._ledger.write(CancelRequested(asked.by, asked.patches))
        if not asked.patches:
            signal.raise_signal(signal.SIGTERM)  # from here on as if somebody here had sent it
        self._unwanted |= dict.fromkeys(asked.patches, asked.by)

    def leave(self, lost: Mapping[str, str], queue: Queue, standbys: Standbys) -> None:
        """Leave to others what they have taken over, by name with who has: it runs here no longer than it must."""
        self._unwanted |= lost
        if lost:
            self._retries.leave(_withdrawn(lost, queue, standbys))

    def refuse(self, reasons: Mapping[str, str], queue: Queue, standbys: Standbys) -> None:
        """Drop patches that cannot be trained, by name with the reasons; what runs already says so itself."""
        for task in _withdrawn(reasons, queue, standbys) if reasons else ():
            self._ledger.write(PatchRejected(task.name, reasons[task.name], self._audited.get(task.name)))
            self._retries.leave([task])

    def _record(self, task: Task) -> None:
        name = task.name
        reason = f"cancelled by {self._unwanted[name]}"
        self._retries.note(task, Stopped(reason))
        if self.is_shared and task.claim is None:
            return  # its attempts are another worker's to tell of
        number = max((folder.number for folder in task.home(self._output).attempts()), default=0)
        self._ledger.write(AttemptEnded.of(name, number, Stopped(reason)))

    def _stop(self, running: Iterable[RunningAttempt]) -> None:
        unwanted = [one for one in running if one.task.name in self._unwanted and one.key not in self._asked]
        self._asked |= {one.key for one in unwanted}
        if unwanted:
            ask_to_end(self._executor, {one.key: one for one in unwanted})


def _withdrawn(names: Container[str], queue: Queue, standbys: Standbys) -> list[Task]:
    """Take the named tasks out of what waits; return them."""
    first = standbys.first()
    if first and first.task.name in names:
        for task in reversed(standbys.retire()):
            queue.put_back(task)
    found = [task for task in queue if task.name in names]
    for task in found:
        queue.take(task)
    return found


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in many containers
        return str(os.getuid())
