"""Stopping a running batch, or some of its patches, from any shell that sees the output folder."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from splatbatch import config as configuration
from splatbatch.cluster.workers import RequestedWorkers
from splatbatch.errors import SplatbatchError
from splatbatch.monitor.messages import print_err
from splatbatch.output.events import BatchStarted
from splatbatch.output.exclusive import holder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import events
from splatbatch.output.records.run import WorkerRecord
from splatbatch.output.workers import LOCAL, Watcher
from splatbatch.scheduler import cancel as cancelling
from splatbatch.tasks.batch import named_batch, open_batch
from splatbatch.tasks.freshness import FreshnessChecker
from splatbatch.tasks.status import PatchStatus, read_status
from splatbatch.tasks.task import Names

LOOK_S = 0.1
CANCEL_SILENCE_S = 15.0
"""Seconds without a heartbeat after which a worker on another host counts as dead; a worker writes one every 5 s."""
ENGINE_PAUSES_S = (1.0, 5.0, 5.0, 10.0, 10.0, 10.0)
"""Pauses in seconds between queries of an engine whether all jobs have ended.

Together they are longer than an engine lets a job live after telling it to end."""
PATIENCE_S = 90.0
"""Seconds that a worker gets to end, in addition to `limits.grace_s`.

A process that hangs in a driver is given up after a minute; the report is written after that."""


@dataclass(frozen=True)
class CancelResult:
    """Result of `cancel`: whether a run was stopped, and the state of the cancelled patches after it."""

    output: OutputFolder
    patches: tuple[str, ...] = ()
    """The patches that were named; empty: the whole batch was cancelled, or nothing ran."""
    was_running: bool = True
    """Whether a `train` or worker ran, or workers waited in the queue of an engine; False: nothing was done."""
    statuses: tuple[PatchStatus, ...] = ()
    """State of each cancelled patch after the end; empty if no run was stopped."""


def cancel(config: Path | str | None, wanted: Names = ()) -> CancelResult:
    """Ask the `train` and all workers of a batch to stop the batch, or the named patches, and wait until they have.

    Without names, the jobs of an engine are cancelled, too. A worker on another host whose heartbeat has stopped is not
    waited for. If nothing runs, nothing is done.

    Args:
        config: the YAML, or its folder; None: the default one.
        wanted: names of patches, or one name; the first may name the batch instead. Empty: the whole batch.

    Raises:
        ConfigError: the YAML has mistakes, or a patch does not exist.
        SceneError: patches are named, and the scene cannot be read.
        OutputError: a later version of splatbatch wrote the output folder.
        SplatbatchError: a process still runs after `limits.grace_s` and `PATIENCE_S`.
    """
    config, named = named_batch(config, wanted)
    batch = open_batch(config, named) if named else None  # a whole batch can be cancelled without its scene
    settings = batch.config if batch else configuration.load(configuration.find_config(config))
    patches = batch.names if batch else []
    output = OutputFolder(settings.output.folder)
    watcher, crew = Watcher(output), RequestedWorkers(output)
    crew.look()
    run = holder(output)
    workers = [one for one in watcher.present(but=LOCAL) if not crew.is_dead(one.job)]  # frozen ones may thaw
    asked = ([run] if run else []) + workers
    if not asked and not crew.lives():
        return CancelResult(output, was_running=False)
    if not patches:
        crew.cancel()
    requests = [cancelling.ask(output, each, patches) for each in asked]
    try:
        for each, request in zip(asked, requests, strict=True):
            obeys = partial(_has_obeyed, watcher, each, patches, request)
            _wait(watcher, each, obeys, settings.limits.grace_s + PATIENCE_S)
    finally:
        for request in requests:
            request.unlink(missing_ok=True)
    if not patches:
        _end(crew)
    names = patches or _patches_of(output)
    statuses = read_status(output, names, standing=_standing(config))
    return CancelResult(output, tuple(patches), statuses=tuple(one for one in statuses if one.patch in names))


def _end(crew: RequestedWorkers) -> None:
    """Have the engines end the remaining workers; after `ENGINE_PAUSES_S` list on stderr the workers that still run."""
    if words := crew.stop():
        print_err(f"the cluster could not cancel its workers: {words}; a worker that it starts later ends by itself")
    for pause_s in ENGINE_PAUSES_S:
        crew.look()
        if all(one.state in ("ended", "unknown") for one in crew.jobs.values()):
            break
        time.sleep(pause_s)
    crew.close()
    for words in crew.in_words() if crew.submissions else ():
        print_err(f"workers have not ended yet: {words}; check later with `splatbatch status`")


def _has_obeyed(watcher: Watcher, worker: WorkerRecord, patches: Sequence[str], request: Path) -> bool:
    """Return whether a `train` or worker has ended, or has stopped every patch that it was asked to stop."""
    if not watcher.may_still_write(worker):
        return True
    if not patches or request.exists():
        return False
    awaited = set(patches) & set(_patches_of(watcher.output))
    statuses = read_status(watcher.output, sorted(awaited), 0)
    # the ledgers of workers do not mention a patch that none has begun
    open_states = ("running", "waiting") if worker.worker == LOCAL else ("running",)
    return all(one.state not in open_states for one in statuses if one.patch in awaited)


def _standing(config: Path | str | None) -> FreshnessChecker | None:
    """Return the checker by which `status` decides which splats are stale; None, with a message, if that fails."""
    try:
        return open_batch(config).standing()
    except SplatbatchError as error:
        print_err(f"cannot determine which splats are out of date: {error.message}")
        return None


def _patches_of(output: OutputFolder) -> list[str]:
    """Return the patches of the latest run; an empty list before the first run has begun."""
    latest = deque(events(output, BatchStarted), maxlen=1)
    return [name for event in latest for name in event.patches]


def _wait(watcher: Watcher, worker: WorkerRecord, has_obeyed: Callable[[], bool], limit_s: float) -> None:
    """Wait until a worker has obeyed, or, on another host, has sent no heartbeat for `CANCEL_SILENCE_S`.

    Raises:
        SplatbatchError: it has not obeyed after `limit_s`.
    """
    began = time.monotonic()
    name = f"process {worker.pid}" if worker.worker == LOCAL else f"worker {worker.worker}"
    who = f"{name} on {worker.host}"
    while not has_obeyed():
        if worker.is_elsewhere and watcher.silent_s(worker) > CANCEL_SILENCE_S:
            print_err(f"{who} does not respond: the process has died or its host is unreachable")
            return
        if time.monotonic() - began > limit_s:
            raise SplatbatchError(
                f"{who} was asked to end, but still runs after {limit_s:.0f} s",
                "The process may hang on a disk or GPU driver: use `kill -9`; the next `train` ends orphan processes.",
            )
        time.sleep(LOOK_S)
