"""Training on this machine, as the only `train` of an output folder: judge earlier attempts, decide, train."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from splatbatch.config import Executor
from splatbatch.errors import SplatbatchError
from splatbatch.isolated import StopRequested, WaitHooks
from splatbatch.monitor.messages import log_line, print_err
from splatbatch.monitor.sinks import BatchOutcome
from splatbatch.outcome import Failed, Outcome
from splatbatch.output.claims import Claims
from splatbatch.output.events import Notice
from splatbatch.output.workers import LOCAL, Watcher
from splatbatch.run.context import RunContext, RunResult, RunSummary, tracking
from splatbatch.run.decide import (
    Decisions,
    TrainOptions,
    assess_and_audit,
    make_shared_decisions,
    record_rejections,
    record_unreadable_tasks,
    refresh_file_facts,
    refresh_states,
    refresh_states_if_possible,
    restore_missing_products,
)
from splatbatch.run.decode_ahead import start_decoding, take_undecodable
from splatbatch.run.follow_ups import After, Show, publish_as_configured
from splatbatch.run.inspection import inspect_as_configured
from splatbatch.run.interruption import Interruption
from splatbatch.scheduler import session
from splatbatch.scheduler.disk_guard import Written, when_there_is_room
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.work.adopt import adopt
from splatbatch.scheduler.work.claimer import TaskClaimer, TaskProgress, progress_of
from splatbatch.scheduler.work.exclusive_output import lock_output, pause_workers
from splatbatch.scheduler.work.other_workers import OtherWorkers
from splatbatch.scheduler.work.other_workers_history import OtherWorkersHistory
from splatbatch.scheduler.work.time_left import TimeLeft
from splatbatch.tasks.batch import Batch

USUAL = TrainOptions()


def is_elsewhere(executor: Executor) -> bool:
    """Return whether workers that an engine starts train the batch, not `train` itself."""
    return executor.engine != "local" or executor.workers > 1


def train(
    batch: Batch, options: TrainOptions = USUAL, show: Show = lambda made: None, after: After = publish_as_configured
) -> RunSummary:
    """Train every patch that is not up to date, and run the follow-ups.

    Patches are trained here, by requested workers, or through a store, as the YAML says. A retry starts no workers of
    an engine.

    Args:
        batch: the patches to train.
        options: whether patches are audited, and whether up-to-date or given-up patches are trained again.
        show: is called with each product of the follow-ups, and with the summary of the run.
        after: runs the follow-ups; by default the scene is merged and published if the YAML says so.

    Returns:
        The summary: state of all patches, results of the follow-ups, exit code. A patch that fails raises nothing.

    Raises:
        SplatbatchError: another run trains into the output folder, or no patch can be trained.
        OSError: the disk stays full for an hour.
        Interrupted: the run was interrupted before it could train, or following requested workers was; they keep
            running.
    """
    if is_elsewhere(batch.config.executor) and not (options.is_retry or batch.config.executor.store):
        from splatbatch.run.cluster_workers import train_elsewhere

        return train_elsewhere(batch, show, after, verify=options.verify)
    return _train_here(batch.with_required(), options, show, after)


def _train_here(batch: Batch, options: TrainOptions, show: Show, after: After) -> RunSummary:
    with Interruption() as interruption:
        hold = partial(lock_output, batch, print_err)
        with (
            create_and_lock(batch, interruption, hold) as ours,
            RunContext.open(batch, interruption, show, ours, sinks=(tracking(batch), *options.sinks)) as context,
        ):
            worker = BatchWorker(context, options, ours, Watcher(batch.output))
            try:
                run = worker.train()
            except SplatbatchError as error:  # such as a lost GPU: notifications go out, too
                context.tell_the_end(BatchOutcome(f"ended with an error: {error.message}"))
                raise
            inspected = inspect_as_configured(
                batch, RunHooks(context.tick, worker.stop, context.ledger.tell_wait), context.ledger
            )
            if not run.stopped:
                context.finish_contents(WaitHooks(context.tick, worker.stop, print_err))
            refresh_states_if_possible(batch.whole(), context.shown)
            ended = context.follow(run, inspected, after, partial(pause_workers, batch.output, ours, print_err))
        return context.end(ended)


@contextmanager
def create_and_lock(
    batch: Batch, interruption: Interruption, hold: Callable[[], AbstractContextManager[Written]]
) -> Iterator[Written]:
    """Create the output folder and hold it by `hold`; while the disk is full, wait for room, an hour at most.

    Yielded is what the context of `hold` yields.

    Raises:
        OutputError: the folder cannot be created, or another run holds it; also if the disk stays full.
        StopRequested: a stop was requested during the wait.
        OSError: a file of the lock cannot be written, as on a disk that stays full.
    """

    def hold_it() -> Written:
        batch.output.create()
        return stack.enter_context(hold())

    with ExitStack() as stack:
        yield when_there_is_room(hold_it, batch.output.path, WaitHooks(stop=interruption.reason, tell=print_err))


@dataclass
class BatchWorker:
    """A worker that decides and trains in rounds; this class is the worker of `train`, alone in its output folder."""

    context: RunContext
    options: TrainOptions
    claims: Claims
    """The claims of this worker on tasks."""
    watcher: Watcher
    """Tells which other workers of the output folder live."""
    name: str = LOCAL
    """Name of this worker, by which its ledger is found."""
    time_left: TimeLeft | None = None
    """Time limit of this worker; None: no limit."""
    is_over: bool = False
    """Whether a task was left undone since it did not fit the time left."""
    is_alone: ClassVar[bool] = True
    """Whether no other worker trains into the output folder."""
    say: ClassVar = staticmethod(print_err)
    """Function that prints what the worker waits for."""

    def train(self) -> RunResult:
        """Judge the attempts that an earlier run left, and train; return the result of the run.

        A task whose earlier attempt could not be judged fails and is not trained, unless this is a retry.

        Raises:
            SplatbatchError: nothing can be trained, as without a GPU, or an earlier attempt does not end.
            OSError: the disk stays full for an hour.
        """
        batch, ledger = self.context.batch, self.context.ledger
        try:
            faults = when_there_is_room(partial(adopt, batch, ledger, self.patience), batch.output.path, self.patience)
            restore_missing_products(batch, ledger, self.patience)
        except StopRequested as stop:
            return RunResult(stopped=str(stop))
        kept = {name: Failed(fault) for name, fault in faults.items() if not self.options.is_retry}
        run = self.rounds(batch.only(name for name in batch.names if name not in kept))
        return replace(run, outcomes={**kept, **run.outcomes})

    def rounds(self, batch: Batch) -> RunResult:
        """Decide and train in rounds, until no patch was outdated by a product made anew, or a stop is requested.

        Returned is the joint result of all rounds.

        Raises:
            SplatbatchError: nothing can be trained, as without a GPU, or a shared decision cannot be made.
            OSError: the disk stays full for an hour.
        """
        run = self._round(batch)
        while run.outdated and not self.stop():
            self.options = replace(self.options, force=False)
            run = run.then(self._round(batch.with_dependents(run.outdated)))
        return run

    def stop(self) -> str:
        """Return the reason to stop: a signal, or the end of the time limit; empty: go on."""
        is_up = self.time_left is not None and self.time_left.is_up()
        return self.context.interruption.reason() or ("the time of this worker is up" if is_up else "")

    def requests(self) -> list[Path]:
        """Return the request files of `cancel` to this worker: to end, or to stop some patches; [] without any."""
        return self.context.batch.output.cancels()

    @property
    def patience(self) -> WaitHooks:
        """Hooks for waits before the display begins: they write heartbeats and obey requests to stop."""
        return WaitHooks(self.context.keep, self.stop, self.say)

    @contextmanager
    def prepared(self, batch: Batch) -> Iterator[Batch]:
        """Yield the batch as it is to be decided on; the only worker of a folder takes it unchanged."""
        yield batch

    def _round(self, batch: Batch) -> RunResult:
        """Decide what is due, and train it; return the result of this round."""
        context, ledger = self.context, self.context.ledger
        try:
            decide = partial(self._decide, batch)
            decisions, before, outdated = when_there_is_room(decide, batch.output.path, self.patience)
        except StopRequested as stop:
            return RunResult(stopped=str(stop))
        if self.is_alone:  # else each worker would do it
            for name in outdated:
                context.contents.want(name)
            for name, reason in decisions.given_up.items():
                ledger.write(Notice("still_given_up", reason, patch=name))
        outcomes, todo = dict(record_unreadable_tasks(decisions, ledger)), decisions.todo
        if todo.tasks:
            rejected = record_rejections(decisions, ledger, verify=self.options.verify)
            todo = todo.only(name for name in todo.names if name not in rejected)
        claimer = TaskClaimer(
            context.tick,
            self.stop,
            ledger.tell_wait,
            requests=self.requests,
            is_alone=self.is_alone,
            audited=decisions.audited,
            past=None if self.is_alone else OtherWorkersHistory(batch.output, batch.output.ledger_of(self.name)),
            claims=self.claims,
            ledger=ledger,
            before=before,
            standing=decisions.standing,
            others=OtherWorkers(self.watcher, ledger.tell_wait),
            time_left=self.time_left,
        )
        for name in set(self.claims.mine()) - set(todo.names):  # settling attempts of dead workers finished these tasks
            claimer.close(name)
        if todo.tasks:
            decoding = start_decoding(todo.tasks if self.options.verify and self.is_alone else ())
            claimer.refused = partial(take_undecodable, decoding)
            try:
                outcomes |= self._run_tasks(todo, claimer)
            finally:
                decoding.end()
        self.is_over |= claimer.is_over
        fresh = tuple(decisions.up_to_date)
        return RunResult((*fresh, *claimer.trained_elsewhere), outcomes, self.stop(), claimer.outdated(fresh))

    def _decide(self, batch: Batch) -> tuple[Decisions, Mapping[str, TaskProgress], list[str]]:
        """Decide what to train; return the decisions, the progress of each task before, and the updated patches.

        Updated patches are up to date, but their recorded file facts were not; see `refresh_file_facts`.
        """
        context, patience = self.context, self.patience
        with self.prepared(batch) as opened:
            before = progress_of(opened)
            decisions = make_shared_decisions(assess_and_audit(opened, self.options, patience), patience)
            outdated = refresh_file_facts(decisions, patience)
            refresh_states(context.batch.whole(), context.shown, patience)  # for the display
            refresh_states(decisions.batch, decisions.standing, patience)
        return decisions, before, outdated

    def _run_tasks(self, todo: Batch, claimer: TaskClaimer) -> Mapping[str, Outcome]:
        """Train the tasks here, or through the store of the YAML; return the outcome of each task tried here."""
        ledger, is_retry, store = self.context.ledger, self.options.is_retry, todo.config.executor.store
        if not (store and self.is_alone):
            return session.run(todo, ledger, claimer, is_retry=is_retry)
        from splatbatch.run.store_home import HomeSide
        from splatbatch.transfer.schemes import absolute_url

        url, hooks = absolute_url(store, todo.path.resolve().parent), WaitHooks(claimer.tick, claimer.stop, log_line)
        claimer.trained_elsewhere += HomeSide(todo, url, ledger, hooks, is_retry=is_retry).follow(packs=True)
        return {}
