"""Trains a batch on this machine, for `train` and `work`: checks and forecast first, then the loop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from splatbatch import config as configuration
from splatbatch import isolated
from splatbatch.doctor.preflight import preflight
from splatbatch.files import Record, write_text
from splatbatch.isolated import Returned, StopRequested, WaitHooks, answers
from splatbatch.machine.local import LocalExecutor, stop_orphans
from splatbatch.outcome import Made, Outcome, Trained
from splatbatch.output.events import BatchEnded, BatchStarted, Notice
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.record import object_of, read_as
from splatbatch.scene import memory_estimate
from splatbatch.scene.memory_estimate import MemoryEstimate, PatchSize
from splatbatch.scene.patches import Patch
from splatbatch.scheduler.disk_guard import when_there_is_room
from splatbatch.scheduler.loop import Loop
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.step_budget import DeadlineBudget
from splatbatch.tasks import estimates
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.deadline import decision_in_words
from splatbatch.tasks.estimates import check_place, forecast, seats_per_gpu
from splatbatch.tasks.task import TrainTask, patches_of


def run(batch: Batch, ledger: Ledger, hooks: RunHooks, *, is_retry: bool = False) -> Mapping[str, Outcome]:
    """Train the patches of a batch; return the last outcome of each task that was tried, by name.

    The output folder must be held, or the tasks be claimed through `hooks`. Failed attempts raise nothing.

    Args:
        batch: the batch.
        ledger: ledger of this run.
        hooks: functions that the loop calls in every round.
        is_retry: whether the user asked for this by `retry`; a new splat then may replace an up-to-date splat.

    Raises:
        TrainerError, ExecutorError: nothing can be trained on this machine.
        OutputError: the ledger cannot be written.
        OSError: the output folder or a temporary folder cannot be written, or no process can be started.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
        SplatbatchError: an attempt of an earlier run does not end.
    """
    recipes = batch.only(task.name for task in batch.tasks if isinstance(task, TrainTask)).recipes()
    expected = _footprints(batch, hooks)
    outlook = forecast(batch, batch.names, expected)
    check_place(batch, outlook)
    unwell = preflight(batch.config, recipes, expected)
    shares_gpus = len(batch.tasks) > 1 and seats_per_gpu(batch.config, expected.values()) > 1
    machine = LocalExecutor(batch.config.executor, batch.config.training.device, shares_gpus=shares_gpus)
    with contextlib.closing(machine) as executor:
        with contextlib.suppress(StopRequested):  # the first round stops
            text = configuration.to_yaml(batch.config)
            when_there_is_room(partial(write_text, batch.output.config, text), batch.output.path, hooks)
        slots = tuple(slot.name for slot in executor.slots)
        ledger.write(BatchStarted(tuple(batch.names), slots, dict(batch.changes), batch.noun))
        choice = batch.shared.deadline
        for line in decision_in_words(choice, batch.tasks) if choice else ():
            ledger.write(Notice("deadline", line))
        ledger.write(Notice("forecast", outlook.in_words(), facts=vars(outlook)))
        for finding in unwell:
            ledger.write(Notice("unwell", f"{finding.message}. {finding.remedy}", facts={"check": finding.check}))
        estimates.record(expected, batch.config, ledger)
        if hooks.is_alone:
            stop_orphans(executor, batch.output, ledger, batch.config.limits.grace_s, hooks.tick)
        tasks = [replace(task, memory_estimate=expected.get(task.name)) for task in batch.tasks]
        left_s = (choice.ends_at or 0.0) - time.time() if choice else 0.0
        if choice and left_s > 0 and hooks.is_alone:  # with several workers, none knows how many tasks are left for it
            hooks.deadline = DeadlineBudget(batch, choice, ledger, time.monotonic() + left_s)
        outcomes = Loop(batch.config, executor, ledger, tasks, hooks, is_retry=is_retry).run()
    trained = sum(isinstance(outcome, Trained | Made) for outcome in outcomes.values())
    ledger.write(BatchEnded(trained, len(batch.tasks), hooks.stop()))
    return outcomes


def _footprints(batch: Batch, hooks: RunHooks) -> dict[str, MemoryEstimate]:
    """Return the memory estimate of each task; a task whose model cannot be read in time gets none.

    After a request to stop the estimates are incomplete; the loop then stops in its first round.
    """
    reading, extents = isolated.start(_measured, patches_of(batch.tasks)), dict[Path, PatchSize]()
    with contextlib.suppress(StopRequested):
        for patch, answer in answers(reading, WaitHooks(hooks.tick, hooks.stop)):
            if isinstance(answer, Returned):
                extents[patch.sparse] = read_as(PatchSize, answer.value)
    return estimates.footprints_of(batch.config, batch.tasks, extents)


def _measured(patch: Patch) -> Record:
    return object_of(memory_estimate.measure(patch))
