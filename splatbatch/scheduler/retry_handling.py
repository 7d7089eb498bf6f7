"""What follows from the end of an attempt: again and with which change, given up, or nothing more started at all."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from splatbatch.config import Config, TaskId
from splatbatch.errors import ConfigError
from splatbatch.failures import retry
from splatbatch.failures.causes import title
from splatbatch.machine.slots import Slots
from splatbatch.outcome import COLLECT, INTERNAL_FAULT, Diagnosis, Failed, Made, Outcome, Trained
from splatbatch.output.attempt_folder import Attempt
from splatbatch.output.events import AttemptEnded, GaveUp, Notice, RetryScheduled
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Ledger
from splatbatch.scheduler.queue import Claimer, Queue
from splatbatch.scheduler.running_attempt import RunningAttempt
from splatbatch.tasks import given_up
from splatbatch.tasks.task import TRAINING, Task

GPU_FAULT = "gpu_hardware_fault"
OF_COMPANY = frozenset(
    {
        "cuda_oom",
        "cublas_cudnn_error",
        "cuda_busy_or_unavailable",
        "cuda_init_unknown",
        "cuda_launch_failure",
        "cuda_illegal_access",
    }
)
"""Causes that another attempt on the same GPU may have brought about; under MPS a fault of one ends them all."""
OF_ENGINE = frozenset({"cuda_busy_or_unavailable", "cuda_init_unknown", "cuda_invalid_device"})
"""Causes that an MPS daemon may have which runs, but serves nobody: in some containers it does."""


class RetryHandling:
    """Keeps the outcomes of a batch, and decides after each what is next."""

    def __init__(self, config: Config, ledger: Ledger, slots: Slots, queue: Queue, claimer: Claimer) -> None:
        self._config, self._ledger, self._slots, self._queue, self._claimer = config, ledger, slots, queue, claimer
        self._output = OutputFolder(config.output.folder)
        self._histories: dict[TaskId, retry.RetryHistory] = {}
        self._noted: list[Task] = []
        self._trained: list[str] = []
        self._random = random.Random(str(config.output.folder))  # noqa: S311 - jitter, the same in every run
        self.outcomes: dict[str, Outcome] = {}
        self.hopeless = ""
        """Why nothing more is to be started; empty as long as it is."""

    def note(self, task: Task, outcome: Outcome) -> None:
        """Keep the last outcome of a task; whoever was trained is a witness for the GPU to those that failed before."""
        self.outcomes[task.name] = outcome
        self._noted.append(task)
        if isinstance(outcome, Trained | Made):
            self._trained.append(task.name)

    def leave(self, tasks: Iterable[Task]) -> None:
        """Take tasks for done with that nothing came of."""
        self._noted += tasks

    def let_go(self) -> None:
        """Tell other workers which tasks we are done with: they neither wait nor run any more."""
        for task in self._noted:
            if not self._queue.is_open(task.id):
                self._claimer.close(task.name)
        self._noted.clear()

    def is_alone(self, task: Task) -> bool:
        """Return whether a task must have its GPU to itself."""
        return self._history(task).is_alone

    def failed(self, running: RunningAttempt, diagnosis: Diagnosis, now: float) -> None:
        """Decide on a task whose attempt has failed."""
        task = running.task
        if not self._excuse(running, diagnosis):
            self._count(task, diagnosis, now, running.attempt)
            return
        self._queue.put_back(task)
        self._ledger.write(RetryScheduled(task.name, 0.0, "", {}, ()))

    def _excuse(self, running: RunningAttempt, diagnosis: Diagnosis) -> bool:
        """Change what has brought a failure about beside its task; return whether that excuses the task.

        A GPU that faulted goes out of service, and its task elsewhere, once.
        """
        task, slot, cause = running.task, running.slot, diagnosis.cause
        past, evidence = self._history(task), "; ".join(diagnosis.evidence)
        if cause == GPU_FAULT and slot.gpu and self._slots.has_other(slot):
            self._slots.give_up(slot)
            self._ledger.write(Notice("slot_given_up", f"{title(GPU_FAULT)}: {evidence}", slot=slot.name))
            self._learn(task, has_moved=True)
            return not past.has_moved
        if cause in OF_ENGINE and slot.environment:
            self._slots.share_nothing()
            self._ledger.write(Notice("mps_off", evidence))
            return True
        if cause in OF_COMPANY and running.num_company and not past.is_alone:
            self._learn(task, is_alone=True)
            return True
        return False

    def could_not(self, task: Task, diagnosis: Diagnosis, now: float, traceback: str = "") -> None:
        """Decide on a task that could not be started, or whose result could not be kept; the others go on.

        What an attempt has left is not trained anew: the next run collects it once more.
        """
        self._not_started(task, diagnosis, traceback)
        if diagnosis.action == "retry" and diagnosis.phase != COLLECT:
            self._count(task, diagnosis, now)
        elif diagnosis.cause == INTERNAL_FAULT:
            self._learn(task, failures=(*self._history(task).failures, retry.Failure(diagnosis)))
            self.hopeless = self.hopeless or self._why_stop()

    def none_started(self, tasks: Iterable[Task], diagnosis: Diagnosis) -> None:
        """Give up tasks that waited for what is not to be had."""
        for task in tasks:
            self._not_started(task, diagnosis)
            self._ledger.write(GaveUp(task.name, "; ".join(diagnosis.evidence)))

    def _not_started(self, task: Task, diagnosis: Diagnosis, traceback: str = "") -> None:
        """Record the failure of a task that no attempt could be made at."""
        self.note(task, Failed(diagnosis))
        number = max((folder.number for folder in task.home(self._output).attempts()), default=0)
        said = {"phase": diagnosis.phase or "start", "traceback": traceback}
        self._ledger.write(AttemptEnded.of(task.name, number, Failed(diagnosis), **said))

    def _history(self, task: Task) -> retry.RetryHistory:
        return self._histories.get(task.id) or self._claimer.history(task.name)

    def _learn(self, task: Task, **facts: Any) -> None:
        self._histories[task.id] = replace(self._history(task), **facts)

    def _count(self, task: Task, diagnosis: Diagnosis, now: float, attempt: Attempt | None = None) -> None:
        """Hold a failure against its task: it is tried again, given up, or the last that is tried at all."""
        name, past = task.name, self._history(task)
        failures = (*past.failures, retry.Failure(diagnosis, past.rungs))
        witnesses = tuple(self._trained[past.num_trained_before :]) if past.failures else ()
        self._learn(task, failures=failures, num_trained_before=len(self._trained))
        current = {**task.kind.settings(task), "slots": len(self._slots)}
        decision = retry.decide(failures, task.kind.retry(task, self._config), self._random.random(), current)
        if reason := self._why_stop():
            self._ledger.write(GaveUp(name, reason))
            self.hopeless = reason
            return
        match decision:
            case retry.RetryAfter(wait_s=wait_s, ladder=ladder) as again:
                try:
                    task, changes = self._take_rung(task, again, current)
                except ConfigError as error:  # of a patch with settings of its own: those of the YAML were checked
                    self._ledger.write(GaveUp(name, error.message, witnesses))
                    return
                self._queue.put_last(task, now + wait_s)
                self._ledger.write(RetryScheduled(name, round(wait_s, 1), ladder, changes, witnesses))
            case retry.GiveUp(reason=reason) if (
                attempt and task.kind is TRAINING and diagnosis.cause not in given_up.OF_MACHINE
            ):
                key = given_up.key_of(task.requested_settings, attempt.depends_on.files)
                self._ledger.write(GaveUp(name, reason, witnesses, key, diagnosis.cause))
            case retry.GiveUp(reason=reason):  # another night may do
                self._ledger.write(GaveUp(name, reason, witnesses))

    def _why_stop(self) -> str:
        own = {key: one.failures for key, one in self._histories.items()}
        return retry.why_stop_batch({**self._claimer.failures(), **own})

    def _take_rung(
        self, task: Task, again: retry.RetryAfter, current: Mapping[str, Any]
    ) -> tuple[Task, dict[str, Any]]:
        """Change a task's settings, or the number of slots, as a rung says; return the task and what was changed.

        Raises:
            ConfigError: the task's settings cannot be changed so.
        """
        if not again.ladder:
            return task, {}
        changes = retry.resolve(again.rung, current)
        task = task.kind.changed(task, {key: value for key, value in changes.items() if key != "slots"})
        _ = task.next_settings.recipe  # for its errors
        self._learn(task, rungs={**self._history(task).rungs, again.ladder: again.taken})
        if "slots" in changes:
            self._slots.keep(max(1, int(changes["slots"])))
        return task, changes
