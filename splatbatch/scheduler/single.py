"""Runs single tasks for commands such as `inspect` and `evaluate`, by the loop of a batch; a failure is an error."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping, Sequence

from splatbatch.config import Config
from splatbatch.errors import HINT, ConfigError, ExecutorError, OutputError, SceneError, SplatbatchError, TrainerError
from splatbatch.failures.causes import title
from splatbatch.files import read_tail
from splatbatch.isolated import StopRequested
from splatbatch.machine.local import LocalExecutor
from splatbatch.outcome import Diagnosis, Exited, Failed, Made, Outcome, Stopped
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Ledger
from splatbatch.processes import num_cores
from splatbatch.scheduler.disk_guard import DISK_FULL, when_there_is_room
from splatbatch.scheduler.loop import Loop
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.tasks.estimates import CORES_EACH, MOST_AT_ONCE
from splatbatch.tasks.task import Task
from splatbatch.text import one_line

SAYS = "splatbatch: "
"""Begin of the log line in which a process of splatbatch gives the reason of its end."""
KNOWN = {
    kind.exit_code: kind
    for kind in (SplatbatchError, ConfigError, SceneError, TrainerError, ExecutorError, OutputError)
}
"""Class of the error for each exit code of a process of splatbatch."""
UNWRITTEN = Ledger(None)
"""Ledger without a file, for tasks that a user starts by a command such as `inspect`."""


def make(config: Config, task: Task, hooks: RunHooks, verb: str, ledger: Ledger = UNWRITTEN) -> AttemptFolder:
    """Make the product of a task, which is no splat; return the folder of the attempt that made it.

    The limit on free disk space is not applied: the product is small, or its program checks the space.

    Args:
        config: config of the batch.
        task: task to run.
        hooks: hooks for the loop.
        verb: begin of the message of an error; empty: the message begins with the reason.
        ledger: ledger for the events of the attempts.

    Raises:
        SplatbatchError: the product could not be made, or the run was stopped. The message has the reason; the hint is
            that of the process, or names the log of a failed attempt.
        OutputError: the ledger cannot be written.
        ExecutorError: there is no slot (GPU or share of the CPU) for the task on this machine, or none became free.
    """
    found = make_all(config, [task], hooks, {task.name: verb}, ledger)[task.name]
    if isinstance(found, SplatbatchError):
        raise found
    return found


def make_all(
    config: Config, tasks: Sequence[Task], hooks: RunHooks, verbs: Mapping[str, str], ledger: Ledger = UNWRITTEN
) -> Mapping[str, AttemptFolder | SplatbatchError]:
    """Make the products of several tasks of one kind, as `make` does for a single task.

    A failure is returned, not raised.

    Several run on a GPU at once if their memory is known and fits, since each leaves the GPU idle most of the time.

    Args:
        config: config of the batch.
        tasks: tasks to run, each with a folder of its own; empty: nothing happens.
        hooks: hooks for the loop.
        verbs: begin of the message of an error, by task.
        ledger: ledger for the events of the attempts.

    Returns:
        For each task, by name, the folder of the attempt that made its product, or the error why it could not be made.

    Raises:
        ExecutorError: there is no slot (GPU or share of the CPU) for the tasks on this machine.
        OutputError: the ledger cannot be written.
    """
    if not tasks:
        return {}
    output = OutputFolder(config.output.folder)
    before = {task.name: len(task.home.attempts()) for task in tasks}
    limits = config.limits.model_copy(update={"free_disk_mib": 0})
    # an inspection keeps twice as many cores busy as a training
    at_once = max(1, min(MOST_AT_ONCE, num_cores() // (2 * CORES_EACH)))
    # the loop alone packs: an executor would start MPS first, which takes as long as two inspections
    packed = config.executor.model_copy(update={"patches_per_gpu": at_once})
    with contextlib.closing(_executor(config, tasks[0])) as executor:
        packing, outcomes = config.model_copy(update={"limits": limits, "executor": packed}), dict[str, Outcome]()

        def make_left() -> None:
            left = [task for task in tasks if not isinstance(outcomes.get(task.name), Made)]
            outcomes.update(Loop(packing, executor, ledger, left, hooks).run())
            ends = (one.diagnosis for one in outcomes.values() if isinstance(one, Failed))
            if ledger is not UNWRITTEN and any(why.cause == DISK_FULL for why in ends):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(output.path))

        with contextlib.suppress(StopRequested, OSError):  # the outcomes say so
            when_there_is_room(make_left, output.path, hooks)
    found = dict[str, AttemptFolder | SplatbatchError]()
    for task in tasks:
        name, made, begins = task.name, task.home.attempts(), f"{verb}: " if (verb := verbs[task.name]) else ""
        match outcomes.get(name, Stopped(hooks.stop())):
            case Failed(diagnosis=why):
                found[name] = _failure(begins, made[before[name] :], why)
            case Stopped(reason=by):
                error = SplatbatchError(f"{begins}stopped ({by})", "Run the command again; finished parts are kept.")
                found[name] = error
            case _:
                found[name] = made[-1]
    return found


def _executor(config: Config, task: Task) -> LocalExecutor:
    """Return an executor with GPU slots, or with slots on the CPU if the task can do without a GPU.

    Raises:
        ExecutorError: there is no GPU on this machine, and the task needs one.
    """
    if task.takes != "cpu":
        try:
            return LocalExecutor(config.executor, config.training.device)
        except ExecutorError:
            if task.takes == "gpu":
                raise
    return LocalExecutor(config.executor, "cpu")


def _failure(begins: str, attempts: list[AttemptFolder], why: Diagnosis) -> SplatbatchError:
    """Return the error for a failed task: the reason in the log of its process, else that of the diagnosis."""
    if not attempts:
        reason = one_line("; ".join(why.evidence) or why.advice)
        return ExecutorError(
            f"no GPU or CPU slot became free: {reason}", "Check the GPU with `nvidia-smi`, or raise cooldown.longest_s."
        )
    folder = attempts[-1]
    place, told = f"See the log of its process: {folder.log}", folder.read_exit()
    said = [line for line in read_tail(folder.log).splitlines() if line.startswith(SAYS)]
    if told and isinstance(told.end, Exited) and told.end.code in KNOWN and said:
        words, _, hint = said[-1].removeprefix(SAYS).partition(HINT)
        return KNOWN[told.end.code](f"{begins}{words}", hint or place)
    if why.cause == "no_record":
        return SplatbatchError(f"{begins}{why.advice}", place)
    evidence = f" ({one_line(why.evidence[-1])})" if why.evidence else ""
    advice = why.advice.partition(" Try: ")[0]  # the command to type is only valid for a training
    return SplatbatchError(f"{begins}{title(why.cause)}: {advice}{evidence}", place)
