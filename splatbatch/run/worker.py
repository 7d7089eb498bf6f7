"""Work of the command `work`: one of any number of workers of a batch, on all machines that see the output folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from splatbatch import __version__
from splatbatch.cluster import slurm
from splatbatch.cluster.job import JOB, TERMS
from splatbatch.errors import ExecutorError, OutputError, SplatbatchError
from splatbatch.files import sweep
from splatbatch.isolated import WaitHooks
from splatbatch.monitor.messages import log_line, print_err
from splatbatch.monitor.sinks import BatchOutcome
from splatbatch.output.claims import Claims
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.attempt import Claim
from splatbatch.output.submissions import open_submissions
from splatbatch.output.workers import Watcher, WorkerFile
from splatbatch.run.cluster_workers import AGAIN
from splatbatch.run.context import RunContext, RunSummary, status, write_the_report
from splatbatch.run.decide import TrainOptions, refresh_states_if_possible, restore_missing_products
from splatbatch.run.follow_ups import FinishedBatch, Show, publish_as_configured, run_follow_ups
from splatbatch.run.inspection import not_inspected, patches_to_inspect
from splatbatch.run.interruption import Interruption
from splatbatch.run.train import BatchWorker, create_and_lock
from splatbatch.scheduler.work.adopt import adopt_task, left_of
from splatbatch.scheduler.work.claimer import left_over, progress_of
from splatbatch.scheduler.work.exclusive_output import lock_output_alone, preparation
from splatbatch.scheduler.work.other_workers import OtherWorkers
from splatbatch.scheduler.work.time_left import TimeLeft
from splatbatch.tasks.batch import Batch, open_batch

CANCELLED = 143
"""Exit code of a worker that `cancel` ended: it should not be started again."""


def work(
    batch: Batch, for_s: float | None, options: TrainOptions, show: Show, reopen: Callable[[], Batch] | None = None
) -> int:
    """Claim and train tasks until none is left, the time is up, or a stop is requested; return the exit code.

    0: every task is done; 1: some are not; 3: the audit refused all. `AGAIN`, 75: start it again; `CANCELLED`, 143: do
    not. The last worker to end runs the follow-ups, unless it was stopped.

    Args:
        batch: the patches to train.
        for_s: time limit of this worker in seconds; None: none but the end of its Slurm job, which counts in any case.
        options: whether patches are audited, and which are trained again.
        show: is called with each product, and with the summary of the run.
        reopen: returns the current state of the batch; None: the batch is opened from its YAML again.

    Raises:
        ExecutorError: other workers train into the folder with another YAML or version.
        SplatbatchError: the output folder cannot be made or is held by another run, or nothing can be trained here.
        OSError: the disk stays full for an hour.
        Interrupted: a signal came while a full disk kept the worker from joining.
    """
    watcher, asked = Watcher(batch.output), os.environ.get(TERMS, "")
    if asked not in ("", batch.plan_hash):
        raise ExecutorError(
            f"{batch.path}: this worker was requested with another YAML or version of splatbatch ({__version__} here)",
            "Restore the YAML; or end the other workers with `splatbatch cancel`, then run `splatbatch train`.",
        )
    with Interruption() as interruption:
        with create_and_lock(batch, interruption, partial(WorkerFile, batch.output, terms=batch.plan_hash)) as presence:
            OtherWorkers(watcher, log_line).check_same_plan(presence.record, presence.heartbeat)
            name, before = presence.record.worker, progress_of(batch)
            claims = Claims(batch.output, presence, watcher.is_dead)
            with RunContext.open(batch, interruption, show, claims, worker=name) as context:
                times = TimeLeft.of(batch, for_s)
                worker = JoinedWorker(context, options, claims, watcher, name, times, reopen=reopen)
                run = worker.rounds(batch)
                if not (is_stopped := bool(worker.stop())):
                    context.finish_contents(WaitHooks(context.tick, worker.stop, log_line))
            refresh_states_if_possible(batch.whole(), context.shown)
            if is_stopped:
                context.tell_the_end(BatchOutcome(""))
                return CANCELLED if worker.is_cancelled() else AGAIN
            by_all = replace(run, fresh=tuple(batch.names))  # whichever worker trained them
            code = context.end(RunSummary(batch, by_all, status(batch.whole(), context.shown))).code
            if not left_over(batch, before, context.shown):
                _cancel_waiting_jobs(batch, os.environ.get(JOB, ""))
        if code and worker.is_over:
            return AGAIN
        if code in (0, SplatbatchError.exit_code):
            alone = partial(lock_output_alone, batch, print_err)
            ledger = Ledger(batch.output.ledger_of(name))
            _follow(FinishedBatch(batch, code, interruption, show, alone, log_line, ledger=ledger))
    return code


def _follow(trained: FinishedBatch) -> None:
    """Run the follow-ups and write them into the report, unless another worker is still training."""
    batch, whole = trained.batch, trained.batch.whole()
    if not (batch.config.publish.formats or patches_to_inspect(whole)):
        return
    try:
        OtherWorkers(Watcher(batch.output), print_err).check_none(lambda: None)
    except OutputError:
        what = "publishes" if batch.config.publish.formats else "lists in the report which patches are not inspected"
        print_err(f"other workers are still training; the last one {what}")
        return
    afterwards = run_follow_ups(
        trained, not_inspected(whole, "workers of a batch do not inspect splats"), publish_as_configured
    )
    write_the_report(whole, whole.standing(), trained.interruption.reason)
    for one in afterwards:
        trained.show(one)


@dataclass
class JoinedWorker(BatchWorker):
    """One of several workers: it claims each task before training it, and takes its turn to prepare the batch."""

    reopen: Callable[[], Batch] | None = None
    """Function that returns the current state of the batch; None: the batch is opened from its YAML again."""
    was_cancelled: bool = False
    """Whether `cancel` has asked this worker to end."""
    is_alone: ClassVar[bool] = False
    say: ClassVar = staticmethod(log_line)
    """Function that prints what the worker waits for, with the time, since the worker's stderr is a log."""

    @contextmanager
    def prepared(self, batch: Batch) -> Iterator[Batch]:
        """Yield the batch with the decisions and results of all workers so far; only one worker at a time prepares.

        Before that, attempts of dead workers are judged, and lost products restored. The turn is waited for without
        limit.

        Raises:
            SplatbatchError: the batch cannot be opened again, or an attempt of a dead worker does not end.
            StopRequested: a stop was requested meanwhile.
            OSError: no claim can be made, or the disk is full.
        """
        context, others = self.context, OtherWorkers(self.watcher, self.context.ledger.tell_wait)
        with preparation(self.claims, others, WaitHooks(context.tick, self.stop).tick_or_stop):
            batch = self.reopen() if self.reopen else open_as_worker(batch.path, batch.names)
            endings = batch.standing().endings
            for task in batch.tasks:  # files and attempts of dead workers
                sweep(batch.output.patch(task.name).path, spares_living=True)
                if left_of(task, endings) and isinstance(self.claims.take(task.name), Claim):
                    adopt_task(task, context.ledger, endings, context.keep)
            restore_missing_products(batch, context.ledger, self.patience)
            yield batch

    def is_cancelled(self) -> bool:
        """Return whether `cancel` asked this worker to end.

        Its request file is read here, too, as the signal may come before the file was seen.

        Raises:
            LaterFormatError: a later version of splatbatch wrote a request.
        """
        self.requests()
        return self.was_cancelled

    def requests(self) -> list[Path]:
        """Return the request files of `cancel` to this worker; note whether one of them asks the worker to end.

        Raises:
            LaterFormatError: a later version of splatbatch wrote a request.
        """
        output = self.context.batch.output
        requests = output.cancels(self.name)
        self.was_cancelled |= any(not output.read_cancel(one).patches for one in requests)
        return requests


def open_as_worker(config: Path | None, names: Sequence[str]) -> Batch:
    """Return a batch opened as a worker needs it: with the tasks that the named ones require.

    Raises:
        SplatbatchError: the batch cannot be opened; see `open_batch`.
    """
    return open_batch(config, names).with_required()


def _cancel_waiting_jobs(batch: Batch, handle: str) -> None:
    """Cancel the waiting Slurm jobs of the submission that started this worker: no task is left for them."""
    for one in open_submissions(batch.output):
        has_more = handle in one.record.handles and len(one.record.handles) > one.record.num_workers
        if has_more and one.mark(one.dropped):  # marked first: sites forbid frequent calls
            slurm.cancel([one], only_pending=True)
