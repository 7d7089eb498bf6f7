"""From a task to an attempt that runs: its folder made, prepared by a reader process, its supervisor started."""

from __future__ import annotations

import errno
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from splatbatch import isolated
from splatbatch.config import Config, Limits
from splatbatch.files import Record
from splatbatch.machine.protocol import AttemptExecutor, Slot
from splatbatch.output import results
from splatbatch.output.attempt_folder import Attempt
from splatbatch.output.events import AttemptStarted, SlotNotReady
from splatbatch.output.folders import PatchFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.attempt import Claimed
from splatbatch.output.records.fingerprint import Fingerprint
from splatbatch.scheduler import judge
from splatbatch.scheduler.judge import SupervisorOrder
from splatbatch.scheduler.running_attempt import RunningAttempt, take_prepared
from splatbatch.scheduler.step_budget import DeadlineBudget
from splatbatch.tasks.fingerprints.inputs import state_of
from splatbatch.tasks.task import Task


class ChangedInputs(Exception):
    """The files of a patch are others than those that were audited, and the audit refuses them."""

    def __init__(self, reason: str, inputs: str) -> None:
        super().__init__(reason)
        self.reason, self.inputs = reason, inputs


def prepare(limits: Limits, audited: str, running: RunningAttempt, *, standby: bool) -> Record:
    """Write all that the supervisor and the trainer of an attempt read; return what it depends on.

    Args:
        limits: of the attempt.
        audited: state of the files of its patch when they were audited; others are audited again. Empty: nobody has.
        running: the attempt, not begun.
        standby: it is to stand by.
    """
    task, attempt = running.task, running.attempt
    depends_on = task.kind.depends_on(task)
    state = state_of(depends_on.files)
    if audited not in ("", state) and (reason := task.kind.why_unfit(task)):
        return {"refused": reason, "inputs": state}
    argv = task.maker.command(task.patch, attempt.folder)
    order = SupervisorOrder(running.key, argv, running.slot, standby)
    judge.write_job(replace(attempt, depends_on=depends_on), order, limits)
    return {"depends_on": depends_on.to_record()}


def check_destination(folder: PatchFolder) -> None:
    """See before anything is trained that a splat can be put where it belongs.

    Raises:
        OSError: something else stands there.
    """
    for path in (folder.splat, folder.result):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))


class Launcher:
    """Starts attempts, at once or ahead of their turn."""

    def __init__(self, config: Config, executor: AttemptExecutor, ledger: Ledger, *, is_retry: bool) -> None:
        self._config = config
        self._executor = executor
        self._ledger = ledger
        self._output = OutputFolder(config.output.folder)
        self._batch = results.batch_name(self._output)
        self._is_retry = is_retry
        self._discarded: Counter[str] = Counter()
        self.audited: Mapping[str, str] = {}
        """State of the files of each task when they were audited."""
        self.pacer: DeadlineBudget | None = None
        """Says how many steps what begins now is given; None: as many as it asks for."""

    def start(self, task: Task, slot: Slot) -> RunningAttempt:
        """Make the folder of an attempt that is to begin, and let a reader prepare it.

        Raises:
            SplatbatchError, OSError: its folder cannot be made.
        """
        return self._made(task, slot, standby=False)

    def stand_by(self, task: Task, slot: Slot) -> RunningAttempt:
        """Make the folder of an attempt that is to stand by, and let a reader prepare it.

        Raises:
            SplatbatchError, OSError: its folder cannot be made.
        """
        return self._made(task, replace(slot, environment=()), standby=True)  # which slot it will be, go.json says

    def is_prepared(self, running: RunningAttempt, *, standby: bool = False) -> bool:
        """Start the process of an attempt once it has been prepared; return whether that is so by now.

        Raises:
            Unfit: its files are others than those that were audited, and no good.
            SplatbatchError, OSError: it could not be prepared, or its process cannot be started.
            TaskFault: preparing it has failed in a way that nobody expected, or hangs.
        """
        if running.preparing is None:
            return True
        if not (found := running.preparing.look()):
            return False
        record = found[0][1].result("prepare")
        if refusal := record.get("refused"):
            raise ChangedInputs(refusal, record["inputs"])
        take_prepared(running, Fingerprint.from_record(record["depends_on"]))
        if not standby:
            self._tell(running)
        running.handle = self._executor.submit(running.key, running.attempt.folder)
        return True

    def go(self, running: RunningAttempt, slot: Slot) -> None:
        """Let an attempt that stands by begin, on a slot that is free now."""
        judge.write_go(running.attempt.folder, slot)
        running.slot = slot
        self._tell(running)

    def discard(self, running: RunningAttempt) -> None:
        """Remove what is left of a standby that has ended: it never was an attempt."""
        self._discarded[running.task.name] += 1
        shutil.rmtree(running.attempt.folder.path, ignore_errors=True)

    def _made(self, task: Task, slot: Slot, *, standby: bool) -> RunningAttempt:
        """Make the folder of an attempt; what its supervisor and its trainer read is written by a reader."""
        task = self.pacer.budgeted(task) if self.pacer else task
        home = task.home(self._output)
        check_destination(home)
        with judge.next_attempt(home) as folder:
            claim = task.claim or Claimed(follows=home.newest_accepted())
            attempt = Attempt(
                task.name, folder, dict(task.next_settings.all_changes), is_retry=self._is_retry, claim=claim
            )
        key, audited = self._key(attempt), self.audited.get(task.name, "")
        limits = self._config.limits.model_copy(update=dict(task.kind.limits))
        bare = RunningAttempt(task, attempt, key, handle="", slot=slot)
        running = replace(bare, preparing=isolated.start(partial(prepare, limits, audited, standby=standby), [bare]))
        if self.pacer:
            self.pacer.newest.append(running)
        return running

    def _key(self, attempt: Attempt) -> str:
        # the number of a discarded standby is used again, its key never
        discarded = self._discarded[attempt.patch]
        return f"{self._batch}.{attempt.patch}.a{attempt.folder.number}" + (f"s{discarded}" if discarded else "")

    def tell_wait(self, running: RunningAttempt, waited_s: float, reason: str) -> None:
        """Write down for how long, and for what, the gate of its slot kept an attempt waiting."""
        name, number = running.task.name, running.attempt.folder.number
        self._ledger.write(SlotNotReady(name, number, running.slot.name, round(waited_s, 2), reason))

    def _tell(self, running: RunningAttempt) -> None:
        task, number = running.task, running.attempt.folder.number
        self._ledger.write(
            AttemptStarted(task.name, number, running.key, running.slot.name, dict(task.next_settings.all_changes))
        )
