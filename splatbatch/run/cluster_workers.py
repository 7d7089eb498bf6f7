"""Training by workers that an engine such as Slurm starts: requests them, follows them, and requests new ones.

New workers are requested if all end before the batch is done. The process that follows the workers can die and be
started again: its whole state is in files.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

from splatbatch.cluster.job import NEVER_BEGAN, WorkerJob
from splatbatch.cluster.workers import RequestedWorkers
from splatbatch.errors import ConfigError, ExecutorError, Interrupted, OutputError, SceneError, TrainerError
from splatbatch.files import read_tail
from splatbatch.monitor.messages import print_err
from splatbatch.output.events import AttemptEnded, Notice
from splatbatch.output.exclusive import hold
from splatbatch.output.ledger import Tail
from splatbatch.output.records.run import WorkerRecord
from splatbatch.output.submissions import Submission
from splatbatch.output.workers import LOCAL, Watcher, title
from splatbatch.run.context import RunContext, RunResult, RunSummary
from splatbatch.run.detach import work_command
from splatbatch.run.follow_ups import After, Show
from splatbatch.run.inspection import not_inspected
from splatbatch.run.interruption import Interruption
from splatbatch.scheduler.work.claimer import left_over, progress_of
from splatbatch.scheduler.work.exclusive_output import lock_output_alone
from splatbatch.tasks.batch import Batch
from splatbatch.text import one_line, plural

AGAIN = 75
"""Exit code of a worker that was told to stop or whose time is up; such a worker may be started again."""
REFUSING = {error.exit_code for error in (ConfigError, SceneError, TrainerError, ExecutorError, OutputError)}
"""Exit codes of a worker that cannot train at all: another worker with the same YAML would end the same way."""
LOG_BYTES = 2000
LOOK_S = 8.0
"""Pause in seconds between two queries of an engine."""
BEAT_S = 1.0
MOST_IDLE = 2
"""Number of times in a row that all workers end without training a patch, after which no more workers are requested."""


def train_elsewhere(batch: Batch, show: Show, after: After, *, verify: bool) -> RunSummary:
    """Request workers for the untrained patches, follow them to their end, and run the follow-ups.

    Args:
        batch: the patches to train.
        show: is called with each product of the follow-ups, and with the summary of the run.
        after: runs the follow-ups.
        verify: whether the workers audit the patches first.

    Returns:
        The summary of the run.

    Raises:
        ConfigError: the YAML came from standard input.
        ExecutorError: the engine refuses the workers, or they cannot train where the engine starts them.
        OutputError: another `train` holds the output folder, it cannot be written, or a later version wrote it.
        OSError: the job script cannot be written.
        Interrupted: following the workers was interrupted; the workers keep running.
        SceneError: the shared decisions have changed, and partition.json is broken.
    """
    training = ClusterTraining(batch, verify=verify)
    if said := training.start():
        print_err(said)
    with Interruption() as interruption:
        with RunContext.open(batch, interruption, show) as context:
            if said:
                training.follow(context)
            if interruption.signal:
                print_err(
                    "the workers keep running:"
                    " follow them with `splatbatch status --watch`, end with `splatbatch cancel`"
                )
                raise Interrupted(interruption.exit_code)
            context.shown.forget()
            ended = context.follow(
                RunResult(tuple(batch.names)),
                not_inspected(batch.whole(), "workers of a batch do not inspect splats"),
                after,
                partial(lock_output_alone, batch, print_err),
            )
        return context.end(ended)


class ClusterTraining:
    """The training of a batch by requested workers: `start` requests them, `follow` follows and replaces them."""

    def __init__(self, batch: Batch, *, verify: bool) -> None:
        """Create the output folder, and note the progress of each patch: a patch that fails later is not tried again.

        `verify`: whether the workers audit the patches first.

        Raises:
            OutputError: the output folder cannot be made.
        """
        batch.output.create()
        self.batch, self.verify = batch, verify
        self.workers = RequestedWorkers(batch.output)
        self.watcher = Watcher(batch.output)
        self.before = progress_of(batch)

    def start(self) -> str:
        """Request workers unless some are running or queued; return a line that says what was done.

        Empty: no task is left, and no worker was requested.

        Raises:
            ConfigError: the YAML came from standard input.
            ExecutorError: the engine would refuse the workers, or workers run under another YAML.
            OutputError: another `train` is requesting workers just now, or trains into the folder; or the folder cannot
                be written.
            OSError: the job script cannot be written.
            SceneError: the shared decisions have changed, and partition.json is broken.
        """
        batch, workers = self.batch, self.workers
        with hold(batch.output, batch.plan_hash, print_err):
            workers.settle()
            workers.close()
            self._check_same_terms()
            if workers.lives() or self._living():
                return f"workers are already running or queued; nothing was started. {'; '.join(workers.in_words())}"
            left = left_over(batch, self.before, batch.standing("content"))
            if not left:
                return ""
            asked = workers.start(batch, work_command(batch, verify=self.verify), len(left))
        handles, num_workers = asked.record.handles, plural(asked.record.num_workers, "worker")
        jobs = handles[0] if len(handles) == 1 else f"{handles[0]} to {handles[-1]}"
        return f"{asked.record.engine}: requested {num_workers}: {jobs}; logs: {asked.path}"

    def follow(self, context: RunContext) -> None:
        """Follow workers, and request new ones, until no task or worker is left, or a stop is requested.

        No new ones are requested after a `cancel`, or if the last ones only failed.

        Raises:
            ExecutorError: all workers ended `MOST_IDLE` times without training a patch, or none can train at all.
            ConfigError, OutputError, OSError: new workers cannot be requested; see `start`.
            SceneError: the shared decisions have changed, and partition.json is broken.
        """
        tail, outcomes = Tail(self.batch.output), Counter[str]()
        num_idle, next_look, shown = 0, 0.0, ""
        tail.skip()
        while not context.interruption.reason():
            outcomes += _heard(tail, context)
            if time.monotonic() >= next_look:
                self.workers.look()
                next_look = time.monotonic() + LOOK_S
                if (words := "; ".join(self.workers.in_words())) != shown:
                    context.hear(Notice("workers_seen", words))
                    shown = words
                if not self._living() and not (self.workers.lives() and self._left()):
                    outcomes += _heard(tail, context)
                    num_idle = 0 if outcomes["trained"] or outcomes["stopped"] else num_idle + 1
                    if not self._goes_on(context, num_idle, outcomes["failed"]):
                        return
                    outcomes.clear()
            time.sleep(BEAT_S)

    def _goes_on(self, context: RunContext, num_idle: int, num_failed: int) -> bool:
        """Request new workers after all have ended, if tasks are left and were not cancelled; return whether it did.

        Args:
            context: shows why new workers are requested.
            num_idle: how many times in a row all workers have ended without training a patch.
            num_failed: attempts that failed since workers were requested last.

        Raises:
            ExecutorError: the workers trained nothing, and new ones would not either.
        """
        workers, ended = self.workers, self.workers.ended()
        if (
            any(one.cancelled.exists() for one in workers.submissions)
            or any(one.how.startswith("CANCELLED") for _, one in ended)
            or not self._left()
        ):
            workers.stop(only_waiting=True)
            workers.close()
            return False
        workers.close()
        if num_failed and num_idle:
            return False  # as in a local training: patches that fail on every machine are not repeated
        words, hint, is_for_good = _why_ended(ended)
        if num_idle >= MOST_IDLE or (num_idle and is_for_good):
            raise ExecutorError(f"all workers ended without training a patch: {words}", hint)
        context.hear(Notice("workers_seen", f"all workers ended before the batch was done; starting new ones: {words}"))
        return bool(self.start())

    def _living(self) -> list[WorkerRecord]:
        """Return the workers that neither their heartbeat nor their engine reports as dead."""
        return [one for one in self.watcher.living(but=LOCAL) if not self.workers.is_dead(one.job)]

    def _left(self) -> list[str]:
        return left_over(self.batch, self.before, self.batch.standing())

    def _check_same_terms(self) -> None:
        """Check that no worker runs or waits under another YAML or version.

        Raises:
            ExecutorError: a worker does.
        """
        terms = self.batch.plan_hash
        others = [title(one) for one in self._living() if one.terms != terms and self.watcher.lives(one)]
        asked = [one for one in self.workers.submissions if one.record.terms not in ("", terms)]
        if others := others + [f"submission {one.path.name} to {one.record.engine}" for one in asked]:
            raise ExecutorError(
                f"{self.batch.output.path}: {others[0]} uses another YAML or version of splatbatch",
                "End those workers with `splatbatch cancel`, or restore the YAML: all must use one YAML and version.",
            )


def _heard(tail: Tail, context: RunContext) -> Counter[str]:
    """Show the new events of the workers' ledgers; return how many attempts have ended, by outcome."""
    events = [event for _, event in tail.read()]
    for event in events:
        context.hear(event)
    context.tick()
    return Counter(event.outcome for event in events if isinstance(event, AttemptEnded))


def _weight(ended: tuple[Submission, WorkerJob]) -> tuple[bool, bool, bool]:
    """Return how telling the end of a worker is, to sort by: a refusal most, a clean end least.

    Among equal ends, the one with a known node tells more.
    """
    one = ended[1]
    return one.code in REFUSING or NEVER_BEGAN in one.how, one.code not in (0, AGAIN), bool(one.where)


def _why_ended(ended: Sequence[tuple[Submission, WorkerJob]]) -> tuple[str, str, bool]:
    """Return why workers have ended, a hint, and whether new workers would end the same way.

    The reason is that of the most telling worker, by `_weight`.
    """
    if not ended:
        return "the engine gives no reason", "", False
    submission, one = max(ended, key=_weight)
    said = one_line(read_tail(submission.log(submission.record.handles.index(one.job)), LOG_BYTES).strip())
    where = f" on {one.where}" if one.where else ""
    code = f" with exit code {one.code}" if one.code is not None else ""
    words = f"worker {one.job}{where}: {one.how}{code}; its log {f'ends with: {said}' if said else 'is empty'}"
    hint = f"See {submission.path}."
    if NEVER_BEGAN in one.how:
        hint = f"Check that {submission.path} is visible and writable on that node."
    elif one.code == AGAIN:
        hint = "If a task needs more time than a worker has, increase `executor.worker_time`."
    return words, hint, _weight((submission, one))[0]
