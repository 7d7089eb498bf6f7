"""Adopts the attempts of a dead run or worker, which have no recorded end: judges them, and accepts their splats."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace

from splatbatch import isolated
from splatbatch.config import Config
from splatbatch.errors import ConfigError, SplatbatchError
from splatbatch.files import Record, is_out_of_space, sweep
from splatbatch.hashing import FileDifference
from splatbatch.isolated import ENDLESS, WaitHooks, answers
from splatbatch.machine.local import LocalExecutor, stop_orphans
from splatbatch.machine.protocol import verdict
from splatbatch.outcome import COLLECT, Diagnosis, Exit, Failed
from splatbatch.output.attempt_folder import Attempt, AttemptFolder, CachedAttemptDir
from splatbatch.output.endings import TaskHistory
from splatbatch.output.events import AttemptEnded
from splatbatch.output.folders import is_standby_only
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.attempt import JobSpec
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.output.records.record import read_as
from splatbatch.output.records.result import Result
from splatbatch.scheduler import judge
from splatbatch.scheduler.finalize import CollectResult, collect, write_down
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.fingerprint import fingerprint
from splatbatch.tasks.shared_decisions.decisions import is_trained_otherwise
from splatbatch.tasks.task import Task


def adopt(batch: Batch, ledger: Ledger, hooks: WaitHooks = ENDLESS) -> dict[str, Diagnosis]:
    """Judge all attempts of a batch without a recorded end, and accept up-to-date splats; called when a run begins.

    Attempts that still run are stopped first; those that never started are barred from starting late. Attempts that
    were only prepared ahead (standbys) are removed. Return by task the failures of attempts that could not be
    collected; these tasks must not be trained again for that. Empty: none.

    Args:
        batch: the batch.
        ledger: ledger of this run.
        hooks: functions called while waiting, which may request a stop.

    Raises:
        ExecutorError: an attempt may still run, but the config names GPUs that cannot be used here.
        StopRequested: a stop was requested.
        OSError, SplatbatchError: the disk is full, an attempt does not end, or the ledger cannot be written.
    """
    for task in batch.tasks:  # also those without open attempts: their manifests are rewritten at times
        sweep(task.home.path)
    with (endings := TaskHistory(batch.output)).as_of_now():
        left = [(task, folder) for task in batch.tasks for folder in left_of(task, endings)]
    if any(not folder.exit.exists() for _, folder in left):
        _stop(batch.config, "", batch.config.training.device, ledger, hooks.tick)
    return _adopt_all(left, ledger, hooks)


def adopt_task(task: Task, ledger: Ledger, endings: TaskHistory, beat: Callable[[], None]) -> None:
    """Judge the open attempts at a task that this worker has just claimed from a dead worker.

    Attempts that run on this machine are ended first. On another machine they are requested to end by their cancel
    files; if they still make a splat, it cannot replace one accepted later. Attempts that cannot be collected are
    recorded as failed.

    Args:
        task: the task.
        ledger: ledger of this worker.
        endings: latest events of all tasks, from the ledgers.
        beat: writes the heartbeat by which others see that this worker lives; called while waiting.

    Raises:
        OSError, SplatbatchError: the disk is full, an attempt does not end, or the ledger cannot be written.
    """
    sweep(task.home.path, spares_living=True)
    left = left_of(task, endings)
    if any(one.start.exists() and not one.has_exited() for one in left):
        _stop(task.yaml_settings.config, task.name, "cpu", ledger, beat)
    for folder in left:
        if folder.start.exists() and not folder.has_exited():
            folder.cancel.touch()
    _adopt_all([(task, folder) for folder in left], ledger, WaitHooks(beat))


def left_of(task: Task, endings: TaskHistory) -> list[AttemptFolder]:
    """Return the attempts at a task that may have begun and have no recorded end, in the order of their numbers."""
    open_ones = (one for one in task.home.attempts() if not endings.is_judged(task.name, one.number))
    return [one for one in open_ones if one.start.exists() or not one.cancel.exists()]


def _stop(config: Config, task: str, device: str, ledger: Ledger, beat: Callable[[], None]) -> None:
    with contextlib.closing(LocalExecutor(config.executor, device)) as executor:
        stop_orphans(executor, OutputFolder(config.output.folder), ledger, config.limits.grace_s, beat, task=task)


def _adopt_all(left: Sequence[tuple[Task, AttemptFolder]], ledger: Ledger, hooks: WaitHooks) -> dict[str, Diagnosis]:
    """Collect attempts one by one in a reader process, and record their ends; return by task what failed."""
    ended, faults = [], {}
    for task, folder in left:
        with contextlib.suppress(OSError):  # the error recurs, and is recorded, when the patch's turn comes
            if (end := _end_of(folder)) is not None:
                attempt = Attempt(task.name, CachedAttemptDir(folder.path), folder.read_job() or JobSpec())
                ended.append((task, attempt, end))
    for (task, attempt, end), found in answers(isolated.start(_collect, ended), hooks):
        try:
            write_down(attempt, end, read_as(CollectResult, found.result(COLLECT)), ledger, adopted=True)
        except (OSError, SplatbatchError, isolated.TaskFault) as error:
            if is_out_of_space(error):
                raise
            faults[task.name], traceback = isolated.diagnose(error, task.home.path, COLLECT)
            said = {"phase": COLLECT, "traceback": traceback, "adopted": True}
            ledger.write(AttemptEnded.of(task.name, attempt.folder.number, Failed(faults[task.name]), **said))
    return faults


def _end_of(folder: AttemptFolder) -> Exit | None:
    """Return how an attempt has ended; None for one that never began, which is barred from starting late."""
    judge.remove_leftovers(folder)
    if is_standby_only(folder):
        shutil.rmtree(folder.path, ignore_errors=True)
    elif folder.start.exists():
        return verdict(folder.read_exit(), "the run of this attempt has died")
    else:
        folder.cancel.touch()
    return None


def _collect(left: tuple[Task, Attempt, Exit]) -> Record:
    """Collect an attempt of an earlier run, in a reader process; its splat is accepted only if it is up to date."""
    task, attempt, end = left
    task = replace(task, next_settings=task.yaml_settings)
    then, tried = attempt.job.depends_on, task.changed(attempt.job.changes)
    try:
        _ = tried.program
    except ConfigError:  # settings of another version, or invalid ones: their splat cannot be up to date
        then, tried = Fingerprint(), task

    def counts() -> bool:
        """Return whether the attempt's settings and inputs are those of now, and no later attempt is accepted.

        Otherwise an attempt whose end the ledger has lost could replace the splat of a later one.
        """
        now, accepted = fingerprint(task.patch, task.recipe), task.home.read_result() or Result()
        is_same = then.recipe in task.yaml_settings.acceptable_hashes and then.inputs == now.inputs
        if not is_same or is_trained_otherwise(then, now):
            return False
        later = (one.path.name for one in task.home.attempts() if one.number > attempt.folder.number)
        return accepted.attempt not in later and task.input_files().compare(then.files, now.files) == FileDifference()

    return collect(attempt, end, tried, counts)
