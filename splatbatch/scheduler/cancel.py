"""Takes patches out of a running batch: cancelled by `splatbatch cancel`, taken over, or rejected by the audit."""

from __future__ import annotations

import getpass
import os
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from splatbatch import processes
from splatbatch.files import write_json
from splatbatch.machine.protocol import Key
from splatbatch.outcome import Stopped
from splatbatch.output.events import AttemptEnded, CancelRequested, PatchRejected
from splatbatch.output.folders import latest_number
from splatbatch.output.layout import OutputFolder
from splatbatch.output.records.run import CancelRequest, WorkerRecord
from splatbatch.output.workers import LOCAL
from splatbatch.scheduler import standby
from splatbatch.scheduler.loop_state import LoopState
from splatbatch.scheduler.retry_handling import RetryHandling
from splatbatch.scheduler.running_attempt import ask_to_end

LOOK_S = 0.3
"""Seconds between two looks for requests to cancel."""


def ask(output: OutputFolder, run: WorkerRecord, patches: Sequence[str]) -> Path:
    """Request a run or a worker to end, or to drop some patches; return the file of the request, written whole.

    The addressed process removes the file once it has obeyed. No other process obeys it: a request that is left over
    stops no later run. A process on this machine also gets a SIGTERM if the whole run is to end.

    Args:
        output: folder that the run trains into.
        run: the `train` that holds the folder, or a worker.
        patches: patches to drop; empty: the whole run ends.

    Raises:
        OSError: the request cannot be written.
    """
    request = output.new_cancel("" if run.worker == LOCAL else run.worker)
    by = f"{_user()} on {socket.gethostname()}"
    request.parent.mkdir(parents=True, exist_ok=True)
    write_json(request, CancelRequest(run.identity(), tuple(patches), by).to_record())
    if not patches and run.pid is not None and run.is_alive_here:
        processes.send(signal.SIGTERM, [run.pid])
        processes.send(signal.SIGCONT, [run.pid])  # a stopped process (Ctrl-Z) acts on no other signal
    return request


@dataclass
class Cancellations:
    """Reads requests to cancel, and takes unwanted patches out of the queue and the running attempts."""

    loop: LoopState
    retries: RetryHandling
    _next_look: float = 0.0
    _unwanted: dict[str, str] = field(default_factory=dict)
    """Unwanted patches, each with the user who cancelled it, or the worker that took it over."""
    _asked: set[Key] = field(default_factory=set)

    def look(self) -> None:
        """Drop patches that were cancelled, taken over by another worker, or rejected by the audit.

        Waiting patches are not started. Running attempts are stopped, except those of rejected patches. The loop calls
        this several times a second.

        Raises:
            OutputError: the ledger cannot be written.
            OSError: the file of a request cannot be removed.
            LaterFormatError: a later version of splatbatch wrote a request, or a heartbeat file.
        """
        loop, hooks, requests = self.loop, self.loop.hooks, list[Path]()
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_S
            requests = self.take_requests()
        for task in standby.withdraw(loop, self._unwanted):
            stopped = Stopped(f"cancelled by {self._unwanted[task.name]}")
            self.retries.note(task, stopped)
            if hooks.is_alone or task.claim is not None:  # else another worker records the end of its attempts
                loop.ledger.write(AttemptEnded.of(task.name, latest_number(task.home.files()), stopped))
        lost, refused = hooks.lost(), hooks.refused()
        self.retries.drop(standby.withdraw(loop, lost))
        for task in standby.withdraw(loop, refused):
            loop.ledger.write(PatchRejected(task.name, refused[task.name], hooks.audited.get(task.name)))
            self.retries.drop([task])
        self._unwanted |= lost
        if self._unwanted:
            unwanted = [one for one in loop.running() if one.task.name in self._unwanted and one.key not in self._asked]
            self._asked |= {one.key for one in unwanted}
            ask_to_end(loop.executor, unwanted)
        for request in requests:  # only now: `cancel` waits until the file is gone
            request.unlink(missing_ok=True)

    def take_requests(self) -> list[Path]:
        """Read new requests, and record them in the ledger; also called before a stop. Return the files to remove.

        A request for the whole run sends this process a SIGTERM. Requests to an earlier run are only returned.

        Raises:
            OutputError: the ledger cannot be written.
            LaterFormatError: a later version of splatbatch wrote a request.
        """
        requests = (self.loop.hooks.requests or self.loop.output.cancels)()
        for asked in map(self.loop.output.read_cancel, requests):
            if asked.run.is_self:  # a request to an earlier run is only removed
                self.loop.ledger.write(CancelRequested(asked.by, asked.patches))
                self._unwanted |= dict.fromkeys(asked.patches, asked.by)
                if not asked.patches:
                    signal.raise_signal(signal.SIGTERM)  # handled like a SIGTERM from outside
        return requests


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in many containers
        return str(os.getuid())
