"""The context of a run: its console, notifications, ledger and interruption, from opening to the written report."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from splatbatch.errors import SceneError, SplatbatchError
from splatbatch.files import is_out_of_space, write_text
from splatbatch.isolated import Answer, Crashed, ExpectedError, Hung, Returned, StopRequested, WaitHooks, answer
from splatbatch.monitor.console import ConsoleListener
from splatbatch.monitor.messages import print_err
from splatbatch.monitor.notify import Notifier
from splatbatch.monitor.prometheus import MetricsFile
from splatbatch.monitor.sinks import BUDGET_S, BatchOutcome, Sink, Sinks
from splatbatch.outcome import Made, Outcome
from splatbatch.outcome import Trained as TrainedOutcome
from splatbatch.output.claims import Claims
from splatbatch.output.events import Event, Notice
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.record import in_json
from splatbatch.output.records.run import FollowUpResult, TodoItem
from splatbatch.output.workers import LOCAL
from splatbatch.run.follow_ups import After, Alone, FinishedBatch, Show, run_follow_ups
from splatbatch.run.interruption import Interruption
from splatbatch.scheduler.disk_guard import when_there_is_room
from splatbatch.scheduler.single import UNWRITTEN
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.freshness import FreshnessChecker
from splatbatch.tasks.status import PatchStatus, read_status, summary
from splatbatch.tasks.upkeep import ContentHasher

AT_ONCE = partial(str, "a full disk")
"""Function that always gives a reason to stop: the report then does not wait for room on a full disk."""
LOADS_REPORT_S = 5.0
"""Seconds after which a run loads what its report needs; patches train by then, and the loop has time for it."""


@dataclass(frozen=True)
class RunResult:
    """Result of one `train`, `work` or `adopt`: patches that need no training, and outcomes of those tried here."""

    fresh: tuple[str, ...] = ()
    """Patches that were up to date, or were trained by other workers or through a store. In the summary of a run by
    requested workers, of `work` and of `adopt`: all requested patches."""
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """Last outcome of each patch that was tried here or could not be examined; refused and given-up ones are left
    out."""
    stopped: str = ""
    """Why the run was stopped: the signal, as "SIGTERM", or the end of a worker's time; empty: it was not stopped."""
    outdated: tuple[str, ...] = ()
    """Patches that were up to date, and became stale since a product they need was made anew during the run."""

    def then(self, later: RunResult) -> RunResult:
        """Return the joint result of this run and a later one that trained the patches outdated by this one."""
        fresh = tuple(name for name in self.fresh if name not in self.outdated)
        every = tuple(dict.fromkeys((*fresh, *later.fresh)))
        return RunResult(every, {**self.outcomes, **later.outcomes}, later.stopped, later.outdated)

    def has_done(self, patch: str) -> bool:
        """Return whether a patch is in `fresh`, or this run made its product.

        False if training failed here, although the patch may have an older splat.
        """
        return patch in self.fresh or isinstance(self.outcomes.get(patch), TrainedOutcome | Made)


@dataclass(frozen=True)
class RunSummary:
    """State of a batch after its training, and the results of the follow-ups."""

    batch: Batch
    run: RunResult
    statuses: tuple[PatchStatus, ...]
    """State of every patch of the batch, also of patches that were not requested."""
    afterwards: tuple[FollowUpResult, ...] = ()
    signal: int = 0
    """Number of the signal that ended the run; 0: none did."""
    todo: tuple[TodoItem, ...] = ()
    """To-do items of the report that concern the requested patches, or the whole batch; those that repeat the words of
    `afterwards` are left out."""

    @cached_property
    def requested(self) -> tuple[PatchStatus, ...]:
        """States of the patches that were requested for training."""
        names = set(self.batch.names)
        return tuple(one for one in self.statuses if one.patch in names)

    @cached_property
    def done(self) -> tuple[PatchStatus, ...]:
        """States of the requested patches whose product is up to date, and for which `RunResult.has_done` is true."""
        return tuple(one for one in self.requested if one.is_made and self.run.has_done(one.patch))

    @property
    def code(self) -> int:
        """Exit code of the run if no signal ended it.

        0: every requested patch is done; 3: the audit refused every one of them; 1: otherwise.
        """
        if {one.state for one in self.requested} == {"refused"}:
            return SceneError.exit_code
        return 0 if len(self.done) == len(self.requested) else SplatbatchError.exit_code

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 128 + the signal if one ended the run, else `code`."""
        return 128 + self.signal if self.signal else self.code


@dataclass
class RunContext:
    """The parts of a run that all its steps share: batch, interruption, console, notifications, claims and ledger.

    A context is made by `open`, once the output folder is locked. With `claims` this process trains and writes the
    ledger; without them it follows requested workers.
    """

    batch: Batch
    interruption: Interruption
    show: Show
    """Function that is called with each product, and with the summary of the run."""
    shown: FreshnessChecker
    """Checker that tells console and other receivers of events which patches are up to date."""
    console: ConsoleListener
    sinks: Sinks
    """Other receivers of events: notifications, the metrics file, and those of the caller."""
    contents: ContentHasher
    """Adds hashes of the input files to the results of patches while others train."""
    claims: Claims | None
    """The claims of this process, which trains; None: requested workers train."""
    ledger: Ledger = UNWRITTEN
    """The ledger of this process; each other worker writes its own."""
    made: list[Any] = field(default_factory=list)
    """Products of the follow-ups, printed by `end` once the live display is closed."""
    opened_at: float = field(default_factory=time.monotonic)
    """Time by time.monotonic(), until a tick, `LOADS_REPORT_S` later, has loaded what the report needs."""

    @classmethod
    @contextmanager
    def open(  # noqa: PLR0913 - a run has these parts
        cls,
        batch: Batch,
        interruption: Interruption,
        show: Show,
        claims: Claims | None = None,
        *,
        worker: str = LOCAL,
        sinks: Sequence[Sink] = (),
    ) -> Iterator[RunContext]:
        """Open console, receivers of events (sinks) and ledger for a run; on leaving, close the display.

        The events that a full disk refused are then written into the ledger. All patches of the batch are shown, also
        if only some are trained.

        Args:
            batch: the patches to train.
            interruption: the signals that may end the run.
            show: is called with each product, and with the summary of the run.
            claims: the claims of this process; None: requested workers train.
            worker: name of this worker; only `train` notifies people, but every worker writes a metrics file.
            sinks: further receivers of the run's events, as for MLflow.
        """
        whole = batch.whole()
        shown = whole.standing()
        people = [Notifier(batch.config.notify, batch.output, whole.names, shown)] if worker == LOCAL else []
        metrics = MetricsFile(batch.output, whole.names, shown, "" if worker == LOCAL else worker)
        receivers, contents = Sinks([metrics, *sinks, *people]), ContentHasher(batch)
        with ConsoleListener(batch.output, whole.names, shown) as console:
            context = cls(batch, interruption, show, shown, console, receivers, contents, claims)
            if claims:
                listeners = (console.tell, contents.tell, receivers.tell)
                context.ledger = Ledger(batch.output.ledger_of(worker), *listeners, generation_of=claims.generation)
            yield context
            with suppress(StopRequested, OSError):  # events that a full disk refused before
                patience = WaitHooks(context.keep, interruption.reason, print_err)
                when_there_is_room(context.ledger.finish, batch.output.path, patience)

    def hear(self, event: Event) -> None:
        """Pass an event from the ledger of another worker to console and sinks (the other receivers of events)."""
        self.console.tell(event)
        self.sinks.tell(event)

    def keep(self) -> None:
        """Write the heartbeat of the claims, if there are any; called in place of `tick` until the display is open."""
        if self.claims:
            self.claims.heartbeat()

    def tick(self) -> None:
        """Write the heartbeat, and update console, file hashes and sinks; called many times a second.

        Sinks are the other receivers of events; a message of theirs that failed is noted in the ledger, or on the
        console. Once, while patches train, it loads what the report needs.
        """
        self.keep()
        self.console.tick()
        self.contents.tick()
        if time.monotonic() > self.opened_at + LOADS_REPORT_S:
            self.opened_at = math.inf
            with suppress(Exception):  # what fails here fails again, and is told, when the report is written
                from splatbatch.report import load

                load()
        for reason in self.sinks.tick():
            (self.ledger.write if self.claims else self.console.tell)(Notice("notify_failed", reason))

    def finish_contents(self, patience: WaitHooks) -> None:
        """Hash the remaining input files of trained patches; after a request to stop, the next run continues."""
        with suppress(StopRequested):
            self.contents.finish(patience)

    def follow(self, run: RunResult, inspected: FollowUpResult | None, after: After, alone: Alone) -> RunSummary:
        """Run the follow-ups; return the state of the batch after training, and the results of the follow-ups.

        Args:
            run: the result of the training.
            inspected: the result of the inspection; None: no inspection was asked for.
            after: runs the follow-ups.
            alone: keeps workers from training during a follow-up.

        Raises:
            LaterFormatError: a later version of splatbatch wrote the output folder.
        """
        ended, say = RunSummary(self.batch, run, status(self.batch.whole(), self.shown)), self.console.say
        trained = FinishedBatch(
            self.batch, ended.code, self.interruption, self.made.append, alone, say, self.tick, self.ledger
        )
        return replace(ended, afterwards=run_follow_ups(trained, inspected, after))

    def end(self, ended: RunSummary) -> RunSummary:
        """Show the products of follow-ups, write the report, show the summary, and notify people.

        Returned is the summary with the signal of the run.

        Called once the live display is closed and the output lock released. A report or notification that fails is
        printed on stderr and raises nothing.
        """
        for one in self.made:
            self.show(one)
        items = write_the_report(self.batch.whole(), self.shown, self.interruption.reason)
        names = {one.patch for one in ended.requested}
        told = {one.words for one in ended.afterwards}
        mine = (one for one in items if names.intersection(one.patches) or not (one.patches or one.what in told))
        self.show(replace(ended, todo=tuple(mine)))
        self.tell_the_end(BatchOutcome(summary(ended.statuses), self.interruption.reason(), ended.afterwards))
        return replace(ended, signal=self.interruption.signal)

    def tell_the_end(self, end: BatchOutcome) -> None:
        """Have all sinks write what is left and notify people; a failure is printed as one line and stops nothing."""
        grace_s = self.batch.config.limits.grace_s
        for reason in self.sinks.finish(end, partial(self.interruption.left_s, time.monotonic(), BUDGET_S, grace_s)):
            print_err(f"notification failed: {reason}")


def status(batch: Batch, standing: FreshnessChecker | None = None) -> tuple[PatchStatus, ...]:
    """Return the current state of every patch of a batch, in natural order of their names.

    Args:
        batch: the batch.
        standing: decides which splats are up to date; None: the files are examined anew.

    Raises:
        LaterFormatError: a later version of splatbatch wrote the output folder.
    """
    return read_status(batch.output, batch.names, standing=standing or batch.standing())


def tracking(batch: Batch) -> Sink:
    """Return the receiver that records attempts in MLflow; without `tracking.mlflow`, a receiver that does nothing.

    Raises:
        TrainerError: MLflow, or a package that it needs, is not installed.
    """
    if not (wanted := batch.config.tracking).mlflow:
        return Sink()
    from splatbatch.monitor.mlflow_runs import MlflowSink

    def settings() -> dict[str, dict[str, Any]]:
        return {task.name: task.requested_settings.recipe.settings() for task in batch.tasks}

    return MlflowSink(wanted, batch.output, batch.path.resolve().parent, settings)


def write_the_report(
    batch: Batch, standing: FreshnessChecker, stop: Callable[[], str] = AT_ONCE
) -> tuple[TodoItem, ...]:
    """Write the report in a reader process, and return its to-do items.

    Never raises: if the report cannot be written, stderr says so and no items are returned, so notifications still go
    out.

    Args:
        batch: the batch of the report.
        standing: tells which of its patches are up to date.
        stop: returns why not to wait any longer for room on a full disk; by default there is no wait.
    """
    names, settings = batch.names, batch.config

    def write(_: str) -> object:
        from splatbatch.report import write_report

        return in_json(
            write_report(batch.output, names, settings.variants.values(), settings.output.previews_mib, standing).todo
        )

    match _answer_in_time(write, batch.output.path, WaitHooks(stop=stop, tell=print_err)):
        case ExpectedError(error=error):
            words = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        case Crashed(words=words, traceback=traceback):
            with suppress(OSError):
                write_text(batch.output.fault, traceback)
            words = f"error in splatbatch itself: {words}; please report it with {batch.output.fault}"
        case Hung(path=path):
            words = f"{path or 'a file'} does not answer"
        case Returned(value=items):
            return tuple(map(TodoItem.from_record, items))
    print_err(f"the report could not be written ({words}); try again with `splatbatch report`")
    return ()


def _answer_in_time(write: Callable[[str], object], folder: Path, patience: WaitHooks) -> Answer:
    """Return the answer of a process that writes; while the disk is full, wait and retry until a request to stop."""

    def written() -> Answer:
        if isinstance(found := answer(write, ""), ExpectedError) and is_out_of_space(found.error):
            raise found.error
        return found

    try:
        return when_there_is_room(written, folder, patience)
    except (StopRequested, OSError):
        return ExpectedError(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
