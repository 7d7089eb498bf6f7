"""A batch trained from its first attempt to its last, and what a run that died has left of it taken over."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace

from splatbatch import config as configuration
from splatbatch.doctor.preflight import preflight
from splatbatch.errors import ConfigError
from splatbatch.files import is_out_of_space, sweep, write_text
from splatbatch.machine.local import LocalExecutor
from splatbatch.machine.orphans import earlier_run
from splatbatch.machine.protocol import Seen, verdict
from splatbatch.outcome import Outcome, Trained
from splatbatch.scheduler import judge
from splatbatch.scheduler.finalize import Ending, Rules, settle
from splatbatch.scheduler.loop import Rounds, Runner
from splatbatch.store.attempt_folder import Attempt, AttemptFolder, EndedAttempt
from splatbatch.store.events import BatchEnded, BatchStarted, Forecasted, Unwell
from splatbatch.store.layout import PatchFolder, never_went
from splatbatch.store.ledger import Ledger, judged_attempts
from splatbatch.store.records.attempt import JobSpec
from splatbatch.store.records.fingerprint import Fingerprint
from splatbatch.store.records.result import Result
from splatbatch.tasks import footprints
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.colors.tones import why_moved
from splatbatch.tasks.fingerprints.fingerprint import fingerprint
from splatbatch.tasks.fingerprints.inputs import with_content
from splatbatch.tasks.forecast import check_place, forecast
from splatbatch.tasks.task import Task
from splatbatch.trainers.usable import check_usable


def run(batch: Batch, ledger: Ledger, rounds: Rounds, *, is_retry: bool = False) -> Mapping[str, Outcome]:
    """Train the patches of a batch; the output lock must be held.

    Raises:
        TrainerError, ExecutorError: nothing can be trained on this machine.
    """
    recipes = batch.recipes()
    check_usable(recipes.values())
    expected = footprints.footprints_of(batch.config, batch.tasks)
    outlook = forecast(batch, batch.names, expected)
    check_place(batch, outlook)
    unwell = preflight(batch.config, recipes, expected)
    with contextlib.closing(LocalExecutor(batch.config.executor, batch.config.training.device)) as executor:
        write_text(batch.output.config, configuration.to_yaml(batch.config))
        slots = tuple(slot.name for slot in executor.slots())
        ledger.write(BatchStarted(tuple(batch.names), slots, dict(batch.changes)))
        ledger.write(Forecasted(outlook.seconds, outlook.basis, outlook.patches, outlook.in_words()))
        for finding in unwell:
            ledger.write(Unwell(finding.check, finding.message))
        footprints.record(expected, batch.config, ledger)
        earlier_run.stop_orphans(executor, batch.output, ledger, batch.config.limits.grace_s, rounds.beat)
        tasks = [replace(task, footprint=expected.get(task.name)) for task in batch.tasks]
        outcomes = Runner(batch.config, executor, ledger, is_retry=is_retry).run(tasks, rounds)
    trained = sum(isinstance(outcome, Trained) for outcome in outcomes.values())
    ledger.write(BatchEnded(trained, len(batch.tasks), rounds.stop()))
    return outcomes


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
        if (task.name, folder.number) not in settled and not (folder.cancel.exists() and not folder.start.exists())
    ]
    if any(not folder.exit.exists() for _, folder in left):
        with contextlib.closing(LocalExecutor(batch.config.executor, batch.config.training.device)) as executor:
            earlier_run.stop_orphans(executor, batch.output, ledger, batch.config.limits.grace_s, beat)
    for task, folder in left:
        try:
            _adopt(batch, task, folder, ledger)
        except OSError as error:
            if is_out_of_space(error):
                raise  # of others its patch is told when its turn comes


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
    attempt = Attempt(task.name, folder, job.changes, then, job.is_retry)
    setup = task.today.changed(attempt.changes)
    try:
        trainer = setup.trainer
    except ConfigError:  # settings of another version, or of nobody: what they made is not what would be trained today
        then, setup, trainer = Fingerprint(), task.today, task.today.trainer
    outcome = judge.judge(folder, trainer, end, setup.differences)
    # what it trained counts only if it is what would be trained today
    product = batch.output.patch(task.name)
    counts = _is_of_today(then, task) and not _is_superseded(folder, product)
    settle(
        Ending(attempt, end, outcome), product, ledger, Rules(counts, batch.config.retry.keep == "better"), adopted=True
    )


def _is_superseded(folder: AttemptFolder, product: PatchFolder) -> bool:
    """Return whether a later attempt is accepted: the ledger has lost this one's end, which brings no splat back."""
    accepted = product.read_result() or Result()
    return any(one.path.name == accepted.attempt and one.number > folder.number for one in product.attempts())


def _is_of_today(then: Fingerprint, task: Task) -> bool:
    now = fingerprint(task.patch, task.recipe)
    facts = ("recipe", "inputs", "offset", "border", "backdrop")
    is_same = all(getattr(then, name) == getattr(now, name) for name in facts)
    has_moved = why_moved(then.tones, now.tones, now.tones.keys() | then.tones.keys())
    return is_same and not has_moved and not with_content(now.files, then.files, task.patch, task.recipe)[1]
