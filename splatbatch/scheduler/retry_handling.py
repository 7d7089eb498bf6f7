"""Applies decisions on failed tasks to the loop: queue, slots (GPUs or shares of the CPU) and ledger.

`failures.retry` decides from the history of a task whether it is tried again, with which change and after how long.
Decided here is which failures do not count, since another task or the GPU caused them; and whether the batch stops.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from splatbatch.config import TaskId
from splatbatch.errors import ConfigError
from splatbatch.failures import retry
from splatbatch.failures.causes import title
from splatbatch.outcome import COLLECT, INTERNAL_FAULT, Diagnosis, Failed, Made, Outcome, Trained
from splatbatch.output.attempt_folder import Attempt
from splatbatch.output.events import AttemptEnded, GaveUp, Notice, RetryScheduled
from splatbatch.output.folders import latest_number
from splatbatch.scheduler.loop_state import LoopState
from splatbatch.scheduler.running_attempt import RunningAttempt
from splatbatch.tasks import given_up
from splatbatch.tasks.task import Task, TrainTask

GPU_FAULT = "gpu_hardware_fault"
"""Cause of a failure for which a GPU is taken out of service."""
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
"""Causes that another attempt on the same GPU may bring about.

Under MPS (NVIDIA's service for sharing a GPU) a fault of one attempt ends all attempts on that GPU.
"""
OF_MPS = frozenset({"cuda_busy_or_unavailable", "cuda_init_unknown", "cuda_invalid_device"})
"""Causes that arise if the daemon of MPS accepts no client, as in some containers."""


@dataclass
class RetryHandling:
    """Keeps the outcomes and retry histories of a batch, and puts failed tasks back, or gives them up."""

    loop: LoopState
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """Last outcome of each task that was tried, by name."""
    why_stopped: str = ""
    """Reason why no further attempt starts in this batch; empty while attempts may start."""
    _histories: dict[TaskId, retry.RetryHistory] = field(default_factory=dict)
    _noted: list[Task] = field(default_factory=list)
    _trained: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(str(self.loop.output.path))  # noqa: S311 - jitter, the same in every run

    def note(self, task: Task, outcome: Outcome) -> None:
        """Keep the last outcome of a task; a trained task also proves to the retry decision that the GPU works."""
        self.outcomes[task.name] = outcome
        self._noted.append(task)
        if isinstance(outcome, Trained | Made):
            self._trained.append(task.name)

    def drop(self, tasks: Iterable[Task]) -> None:
        """Count tasks as finished without an outcome: they were rejected, or another worker took them over."""
        self._noted += tasks

    def release_finished(self) -> None:
        """Close the claims of this worker on finished tasks, which neither wait nor have an open attempt.

        The loop calls this in every round.
        """
        for task in self._noted:
            if not self.loop.queue.is_open(task.id):
                self.loop.hooks.close(task.name)
        self._noted.clear()

    def is_alone(self, task: Task) -> bool:
        """Return whether a task must have its GPU to itself, since it failed beside another attempt."""
        return self._history(task).is_alone

    def failed(self, running: RunningAttempt, diagnosis: Diagnosis, now: float) -> None:
        """Put a task back whose attempt has failed, or count the failure.

        A counted failure leads to a retry, gives the task up, or stops the batch. A failure that the task did not cause
        does not count. A GPU fault takes the slot out of service, if another slot is left; a second fault of the same
        task counts. After an MPS error, further attempts start without MPS. After a failure that an attempt beside it
        may have caused (`OF_COMPANY`), the task gets a GPU to itself.

        Args:
            running: the failed attempt.
            diagnosis: its diagnosis.
            now: time by the clock of the loop, in seconds.

        Raises:
            OutputError: the ledger cannot be written.
            LaterFormatError: a later version of splatbatch wrote a heartbeat file.
        """
        if how := self._excuse(running, diagnosis):
            self.loop.queue.put_back(running.task)
            self.loop.ledger.write(RetryScheduled(running.task.name, 0.0, "", {}, (), how))
        else:
            self._count(running.task, diagnosis, now, running.attempt)

    def _excuse(self, running: RunningAttempt, diagnosis: Diagnosis) -> str:
        """Return how a task is tried again that did not cause its failure; empty if the failure counts."""
        loop, task, slot, cause = self.loop, running.task, running.slot, diagnosis.cause
        past, evidence = self._history(task), "; ".join(diagnosis.evidence)
        if cause == GPU_FAULT and slot.gpu and loop.slots.names - {slot.name}:
            loop.slots.give_up([slot.name])
            loop.ledger.write(Notice("slot_given_up", f"{title(GPU_FAULT)}: {evidence}", slot=slot.name))
            self._learn(task, has_moved=True)
            return "" if past.has_moved else "on another GPU"
        if cause in OF_MPS and slot.environment:
            loop.slots.share_nothing()
            loop.ledger.write(Notice("mps_off", evidence))
            return "without CUDA MPS"
        if cause in OF_COMPANY and running.num_company and not past.is_alone:
            self._learn(task, is_alone=True)
            return "with the GPU to itself"
        return ""

    def handle_fault(self, task: Task, diagnosis: Diagnosis, now: float, traceback: str) -> None:
        """Record the failure of a task that could not be started or collected, and put it back if a retry may help.

        An attempt that could not be collected is not trained again: the next run collects it once more. If several
        tasks have the same internal fault, the batch stops.

        Args:
            task: the task.
            diagnosis: diagnosis of the error.
            now: time by the clock of the loop, in seconds.
            traceback: traceback of the error, for the ledger; empty: none.

        Raises:
            OutputError: the ledger cannot be written.
            LaterFormatError: a later version of splatbatch wrote a heartbeat file.
        """
        self._not_started(task, diagnosis, traceback)
        if diagnosis.action == "retry" and diagnosis.phase != COLLECT:
            self._count(task, diagnosis, now)
        elif diagnosis.cause == INTERNAL_FAULT:
            self._learn(task, failures=(*self._history(task).failures, retry.Failure(diagnosis)))
            self.why_stopped = self.why_stopped or self._why_stop()

    def give_up_waiting(self, tasks: Iterable[Task], diagnosis: Diagnosis) -> None:
        """Give up tasks that waited too long for a slot or for free space; the diagnosis says for which.

        Raises:
            OutputError: the ledger cannot be written.
        """
        for task in tasks:
            self._not_started(task, diagnosis)
            self.loop.ledger.write(GaveUp(task.name, "; ".join(diagnosis.evidence)))

    def _not_started(self, task: Task, diagnosis: Diagnosis, traceback: str = "") -> None:
        """Record the failure of a task that could not be started or collected."""
        self.note(task, Failed(diagnosis))
        said, number = {"phase": diagnosis.phase or "start", "traceback": traceback}, latest_number(task.home.files())
        self.loop.ledger.write(AttemptEnded.of(task.name, number, Failed(diagnosis), **said))

    def _history(self, task: Task) -> retry.RetryHistory:
        past = self.loop.hooks.past
        return self._histories.get(task.id) or (past.history(task.name) if past else retry.NEW)

    def _learn(self, task: Task, **facts: Any) -> None:
        self._histories[task.id] = replace(self._history(task), **facts)

    def _why_stop(self) -> str:
        past, own = self.loop.hooks.past, {key: one.failures for key, one in self._histories.items()}
        return retry.why_stop_batch({**past.failures(), **own} if past else own)

    def _count(self, task: Task, diagnosis: Diagnosis, now: float, attempt: Attempt | None = None) -> None:
        """Count a failure of a task, and carry out what `failures.retry` decides: retry, give up, or stop the batch."""
        loop, name, past = self.loop, task.name, self._history(task)
        failures = (*past.failures, retry.Failure(diagnosis, past.rungs))
        witnesses = tuple(self._trained[past.num_trained_before :]) if past.failures else ()
        self._learn(task, failures=failures, num_trained_before=len(self._trained))
        current = {**task.settings(), "slots": len(loop.slots.names)}
        config, jitter = task.retry(), self._random.random()
        decision = retry.decide_retry(failures, config, jitter, current, waits=task.waits)
        if reason := self._why_stop():
            loop.ledger.write(GaveUp(name, reason))
            self.why_stopped = reason
            return
        match decision:
            case retry.RetryAfter(wait_s=wait_s, ladder=ladder, rung=rung, taken=taken):
                try:
                    changes = retry.resolve(rung, current) if ladder else {}
                    task = task.changed({key: value for key, value in changes.items() if key != "slots"})
                    _ = task.next_settings.recipe  # for its errors
                except ConfigError as error:  # possible for settings of a patch; those of the YAML were checked
                    loop.ledger.write(GaveUp(name, error.message, witnesses))
                    return
                if ladder:
                    self._learn(task, rungs={**self._history(task).rungs, ladder: taken})
                if "slots" in changes:
                    loop.slots.keep(max(1, int(changes["slots"])))
                loop.queue.put_last(task, now + wait_s)
                loop.ledger.write(RetryScheduled(name, round(wait_s, 1), ladder, changes, witnesses))
            case retry.GiveUp(reason=reason) if (
                attempt and isinstance(task, TrainTask) and diagnosis.cause not in given_up.OF_MACHINE
            ):
                key = given_up.key_of(task.requested_settings, attempt.job.depends_on.files)
                loop.ledger.write(GaveUp(name, reason, witnesses, key, diagnosis.cause))
            case retry.GiveUp(reason=reason):  # without a key: the next run tries it again
                loop.ledger.write(GaveUp(name, reason, witnesses))
