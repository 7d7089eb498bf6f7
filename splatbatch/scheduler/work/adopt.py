"""What a run or a worker that died has left: its attempts are settled, and what they trained is accepted."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable

from splatbatch.errors import ConfigError
from splatbatch.files import is_out_of_space, sweep
from splatbatch.identity import FileFacts
from splatbatch.machine.local import LocalExecutor
from splatbatch.machine.orphans import earlier_run
from splatbatch.machine.protocol import Seen, verdict
from splatbatch.scheduler import judge
from splatbatch.scheduler.finalize import Ending, Rules, settle
from splatbatch.store.attempt_folder import Attempt, AttemptFolder, EndedAttempt
from splatbatch.store.endings import Endings
from splatbatch.store.folders.patch import PatchFolder, never_went
from splatbatch.store.ledger import Ledger, judged_attempts
from splatbatch.store.records.attempt import JobSpec
from splatbatch.store.records.fingerprint import Fingerprint
from splatbatch.store.records.result import Result
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.colors.tones import why_moved
from splatbatch.tasks.fingerprints.fingerprint import fingerprint, hashes_of
from splatbatch.tasks.fingerprints.inputs import differences, places
from splatbatch.tasks.task import Task


def adopt(batch: Batch, ledger: Ledger, beat: Callable[[], None] = lambda: None) -> None:
    """Settle attempts whose parent died before it could, and accept what they trained; nothing is trained twice.

    Those that still run are stopped first; those that never started are barred from starting late.

    Raises:
        ExecutorError: an attempt may still run, and the engine that could tell cannot be asked here.
    """
    for name in batch.names:  # also of what was settled: its result is written again when more is known of it
        sweep(batch.output.patch(name).path)
    settled = judged_attempts(batch.output)
    left = [
        (task, folder)
        for task in batch.tasks
        for folder in batch.output.patch(task.name).attempts()
        if (task.name, folder.number) not in settled and not folder.never_starts()
    ]
    if any(not folder.exit.exists() for _, folder in left):
        with contextlib.closing(LocalExecutor(batch.config.executor, batch.config.training.device)) as executor:
            grace_s, orphans = batch.config.limits.grace_s, earlier_run.Orphans(batch.output)
            earlier_run.stop_orphans(orphans, executor, ledger, grace_s, beat)
    for task, folder in left:
        try:
            _adopt(batch, task, folder, ledger)
        except OSError as error:
            if is_out_of_space(error):
                raise  # of others its patch is told when its turn comes


def adopt_task(batch: Batch, task: Task, ledger: Ledger, endings: Endings, beat: Callable[[], None]) -> None:
    """Settle what is left of the attempts at a task that is ours now, whoever made them.

    What runs on this machine is ended first. On another it is asked to end by its cancel file, and whatever it still
    makes can follow no record that is accepted by then.
    """
    output, place = batch.output, batch.output.patch(task.name)
    sweep(place.path, spares_living=True)
    folders = [one for one in place.attempts() if not endings.is_judged(task.name, one.number)]
    left = [one for one in folders if not one.never_starts()]
    if any(one.start.exists() and not one.has_ended() for one in left):
        with contextlib.closing(LocalExecutor(batch.config.executor, "cpu")) as executor:
            grace_s, orphans = batch.config.limits.grace_s, earlier_run.Orphans(output, task.name)
            earlier_run.stop_orphans(orphans, executor, ledger, grace_s, beat)
    for folder in left:
        if folder.start.exists() and not folder.has_ended():
            folder.cancel.touch()
        with contextlib.suppress(OSError):
            _adopt(batch, task, folder, ledger)


def _adopt(batch: Batch, task: Task, folder: AttemptFolder, ledger: Ledger) -> None:
    judge.tidy(folder)
    if never_went(folder):
        shutil.rmtree(folder.path, ignore_errors=True)
    elif folder.start.exists():
        _adopt_attempt(batch, task, EndedAttempt(folder.path), ledger)
    else:
        folder.cancel.touch()


def _adopt_attempt(batch: Batch, task: Task, folder: AttemptFolder, ledger: Ledger) -> None:
    end = verdict(folder.read_exit(), Seen(is_running=False, reason="the run that started it has died"))
    if end is None:
        return
    job = folder.read_job() or JobSpec()
    then = job.depends_on
    attempt = Attempt(task.name, folder, job.changes, then, job.is_retry, job.claim)
    setup = task.today.changed(attempt.changes)
    try:
        trainer = setup.trainer
    except ConfigError:  # settings of another version, or of nobody: what they made is not what would be trained today
        then, setup, trainer = Fingerprint(), task.today, task.today.trainer
    outcome = judge.judge(folder, trainer, end, setup.differences)
    # what it trained counts only if it is what would be trained today
    product = batch.output.patch(task.name)
    counts = _is_of_today(then, task) and not _is_superseded(folder, product)
    rules = Rules(counts, batch.config.retry.keep == "better", places(task.patch, task.recipe))
    settle(Ending(attempt, end, outcome), product, ledger, rules, adopted=True)


def _is_superseded(folder: AttemptFolder, product: PatchFolder) -> bool:
    """Return whether a later attempt is accepted: the ledger has lost this one's end, which brings no splat back."""
    accepted = product.read_result() or Result()
    return any(one.path.name == accepted.attempt and one.number > folder.number for one in product.attempts())


def _is_of_today(then: Fingerprint, task: Task) -> bool:
    now = fingerprint(task.patch, task.recipe)
    facts = ("inputs", "offset", "border", "backdrop")
    is_same = then.recipe in hashes_of(task.today.counting) and all(
        getattr(then, name) == getattr(now, name) for name in facts
    )
    has_moved = why_moved(then.tones, now.tones, now.tones.keys() | then.tones.keys())
    if not is_same or has_moved:
        return False
    return differences(then.files, now.files, places(task.patch, task.recipe), FileFacts()).is_none
