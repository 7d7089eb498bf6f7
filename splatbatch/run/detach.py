"""Starting a worker in the background of this machine, and waiting until it has begun to train."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from splatbatch.errors import ExecutorError, OutputError
from splatbatch.files import read_tail
from splatbatch.machine import background_command
from splatbatch.machine.background_command import Detached
from splatbatch.output.events import BatchStarted
from splatbatch.output.exclusive import holder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import events_in
from splatbatch.output.records.run import WorkerRecord
from splatbatch.output.workers import LOCAL, Watcher
from splatbatch.tasks.batch import Batch
from splatbatch.text import plain_text

LOOK_S = 0.1
SETTLE_S = 10.0
"""Seconds after which a living worker counts as started: most errors that keep a worker from training show earlier."""
PATIENCE_S = 60.0
"""Longest time in seconds from the start of a worker to its first heartbeat."""


def start_worker(batch: Batch, *, verify: bool) -> tuple[Path, str] | WorkerRecord:
    """Start a worker in the background and wait until it has begun; if a worker is already running, return its record.

    Returned are the absolute path of the log and the name of the worker. The name is empty if the worker has ended
    since there was nothing to train.

    Raises:
        ConfigError: the YAML came from standard input.
        OutputError: a `train` holds the folder, or the folder cannot be made.
        ExecutorError: the worker ended at once, with the end of its log, or did not start within `PATIENCE_S`.
    """
    output = batch.output
    output.create()
    if run := holder(output):
        raise OutputError(
            f"{output.path}: process {run.pid} on {run.host} is training into this folder",
            "Wait until that process has ended, or end it with `splatbatch cancel`.",
        )
    if living := Watcher(output).living(but=LOCAL):
        return living[0]
    output.worker(LOCAL).parent.mkdir(exist_ok=True)
    log = output.worker(f"work-{uuid.uuid4().hex[:8]}").with_suffix(".log")
    return log, _await(background_command.start(work_command(batch, verify=verify), log), output, log)


def work_command(batch: Batch, *, verify: bool) -> tuple[str, ...]:
    """Return the command line that starts a worker for the patches of a batch, as a user would type it.

    Raises:
        ConfigError: the YAML came from standard input.
    """
    names = batch.names if len(batch.tasks) < len(batch.every) else ()
    no_verify = () if verify else ("--no-verify",)
    return background_command.command_of(("work", "--config", str(batch.file), *no_verify, *names))


def _await(worker: Detached, output: OutputFolder, log: Path) -> str:
    """Wait until a worker has begun to train, or lives after `SETTLE_S`; return its name, empty if it found no work."""
    watcher, began = Watcher(output), time.monotonic()
    while (passed_s := time.monotonic() - began) < PATIENCE_S:
        if (code := worker.poll()) == 0:
            return ""
        if code is not None:
            words = read_tail(log).strip() or f"no output, exit code {code}"
            raise ExecutorError(f"the worker ended at once: {plain_text(words)}", f"See {log}.")
        mine = [one.worker for one in watcher.living(but=LOCAL) if one.pid == worker.pid]
        if mine and (passed_s > SETTLE_S or any(events_in(output.ledger_of(mine[0]), (BatchStarted,)))):
            return mine[0]
        time.sleep(LOOK_S)
    raise ExecutorError(f"worker process {worker.pid} did not start within {PATIENCE_S:.0f} s", f"See {log}.")
