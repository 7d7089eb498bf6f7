"""The loop of a batch: start what is due on slots that are fit, look at what runs, judge what has ended.

One thread, one loop over poll; no thread per attempt. In a test its clock is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from splatbatch import isolated
from splatbatch.errors import OutputError
from splatbatch.files import Record, is_out_of_space
from splatbatch.isolated import CallQueue
from splatbatch.machine.protocol import Slot
from splatbatch.outcome import COLLECT, Cancelled, Exit, Exited, Failed, Outcome, Stopped, Trained
from splatbatch.output.events import AttemptEnded, FileNotAnswering, GaveUp, Notice, PatchRejected, SlotNotReady
from splatbatch.scheduler import judge, launch, standby
from splatbatch.scheduler.cancel import Cancellations
from splatbatch.scheduler.disk_guard import DISK_FULL, DiskGuard
from splatbatch.scheduler.finalize import collect, write_down
from splatbatch.scheduler.loop_state import LoopState
from splatbatch.scheduler.packing import GpuSharing
from splatbatch.scheduler.retry_handling import RetryHandling
from splatbatch.scheduler.running_attempt import Collection, Execution, RunningAttempt, ask_to_end, handles_of
from splatbatch.tasks.task import Task

POLL_S = 0.05
PATIENCE_S = 20.0
"""So long after the grace an attempt that was asked to end may take to say how it ended."""
COLLECTING_S = 2.0
"""Besides the grace: how long an ended attempt may take to be collected after a request to stop."""
KEEPS_SLOT_S = 1.0
"""So long an attempt that has ended keeps its slot while it is collected; a splat of gigabytes takes a minute."""


@dataclass
class Loop(LoopState):
    """Trains tasks until every one is trained, given up or stopped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._patience_s = self.config.limits.grace_s + PATIENCE_S
        self._disk = DiskGuard(self.output.path, self.config.limits, self.ledger)
        self._sharing = GpuSharing(self.slots, self.config, self.ledger, self.queue)
        self._retries = RetryHandling(self)
        self._cancellations = Cancellations(self, self._retries)

    def run(self) -> Mapping[str, Outcome]:
        """Train the tasks; return the last outcome of each that was tried."""
        try:
            while self.queue or self.attempts:
                self._cancellations.look()
                if reason := self.hooks.stop():
                    self._cancellations.take_requests()
                    self._stop_all(reason)
                    break
                num_before = len(self.attempts)
                self._look_at_attempts()
                has_news = len(self.attempts) < num_before
                self._say_what_waits()
                self._sharing.look(self.clock.now(), self.running())
                self._start_due()
                if not self._disk.reason:
                    standby.top_up(self, self.clock.now())
                    standby.open_contexts(self)
                self._retries.release_finished()
                self.ledger.flush()
                self.hooks.tick()
                if not has_news:
                    self.clock.sleep(POLL_S, self._readings())
        except BaseException:  # the ledger cannot be written, say: nothing of ours may run on
            self._end_all()
            raise
        return self._retries.outcomes

    def _look_at_attempts(self) -> None:
        """Begin what is prepared, collect what has ended, take in what is collected."""
        gone = self.executor.poll(handles_of(self.attempts.values()))
        for key, one in list(self.attempts.items()):
            is_on_slot = isinstance(one.stage, Execution)
            if isinstance(one.stage, Collection):
                self._collect(one, one.stage)
            elif one.reading is not None:
                self._begin(one, one.reading)
            elif (end := one.how_it_ended(gone[key])) is not None:
                self._end(one, end)
            elif is_on_slot and not self.slots.gate_of(key).has_seat() and standby.first(self) and one.is_finalizing():
                self.slots.gate_of(key).finalizes(key, self._sharing.holds(one))  # the next may start beside it
        for task in self._waiting() if self._retries.why_stopped else ():  # what failed twice lies in the machine
            self.ledger.write(GaveUp(task.name, self._retries.why_stopped))

    def _begin(self, one: RunningAttempt, reading: CallQueue[Any]) -> None:
        """Start the process of an attempt once it is prepared; one that will not begin leaves its slot."""
        if (why := launch.begin(self, one, reading)) is None:
            return
        if not isinstance(one.stage, Execution):  # why is told when the turn of its task comes
            standby.discard(self, one)
            return
        del self.attempts[one.key]
        self.slots.release(one.key, self.clock.now())
        match why:
            case Stopped():
                self._retries.note(one.task, why)
                self.ledger.write(AttemptEnded.of(one.task.name, one.attempt.folder.number, why))
            case PatchRejected():
                launch.discard(self, one)
                self._retries.drop([one.task])
                self.ledger.write(why)
            case Exception():
                if is_out_of_space(why):
                    launch.discard(self, one)
                self._handle_error(one.task, why)

    def _end(self, one: RunningAttempt, end: Exit) -> None:
        """Have an attempt collected that has ended; a standby that has died counts for nothing, also if told to go."""
        is_on_slot, now = isinstance(one.stage, Execution), self.clock.now()
        if is_on_slot and (isinstance(end, Cancelled) or not judge.died_on_standby(one.attempt.folder)):
            self._collect(one, one.end(end, now))
            return
        if is_on_slot:
            self.slots.release(one.key, now)
        standby.discard(self, one)

    def _collect(self, one: RunningAttempt, ended: Collection) -> None:
        """Have a reader collect an attempt; it keeps its slot until then, but not for long.

        While a full disk does not take its result it waits; nor is anything started then.
        """
        now = self.clock.now()
        if one.reading is None and (self._disk.takes_writes(now) or self._disk.given_up(now)):
            one.read_by(isolated.start(partial(collect, end=ended.end, task=one.task), [one.attempt]))
        is_over = one.reading is not None and self._take_in(one, ended.end, one.reading)
        if ended.has_slot and (is_over or now >= ended.since + KEEPS_SLOT_S):
            ended.has_slot = False
            self.slots.release(one.key, now)
        if is_over:
            del self.attempts[one.key]

    def _take_in(self, one: RunningAttempt, end: Exit, reading: CallQueue[Any]) -> bool:
        """Take in what a reader has collected; return whether its attempt is done with."""
        try:
            if found := reading.look():
                self._record(one, end, found[0][1].result(COLLECT))
            return bool(found)
        except Exception as error:  # noqa: BLE001 - the wall: see `_handle_error`
            if not is_out_of_space(error):
                self._handle_error(one.task, error, COLLECT)
                return True
            now = self.clock.now()
            self._disk.shut(now, str(error))
            self._retries.note(one.task, Failed(self._disk.diagnosis()))
            one.read_by(None)
            return self._disk.given_up(now)

    def _record(self, one: RunningAttempt, end: Exit, collected: Record) -> None:
        """Write the outcome of an attempt down, and decide what follows from it."""
        task, outcome = one.task, write_down(one.attempt, end, collected, self.ledger)
        self._retries.note(task, outcome)
        if isinstance(outcome, Trained):
            self._sharing.note(one)
        if end != Exited(0):
            standby.discard_contexts(self, [one.slot.name])
        if isinstance(outcome, Failed):
            if (cause := outcome.diagnosis.cause) == DISK_FULL:
                self._disk.shut(self.clock.now(), f"the disk is full ({task.name})")
            if cause == "cuda_oom" and one.num_company:
                self._sharing.ran_out_of_memory(1 + one.num_company)
            self._retries.failed(one, outcome.diagnosis, self.clock.now())

    def _handle_error(self, task: Task, error: Exception, phase: str = "start") -> None:
        """Put a task back that a full disk does not let begin; record any other error as its own: the others go on.

        A failed ledger is no task's: without it nothing goes on.
        """
        if phase != COLLECT and is_out_of_space(error):
            self.queue.put_back(task)
            self._disk.shut(self.clock.now(), str(error))
            return
        if isinstance(error, OutputError):
            raise error
        diagnosis, traceback = isolated.diagnose(error, task.home.path, phase)
        self._retries.handle_fault(task, diagnosis, self.clock.now(), traceback)

    def _start_due(self) -> None:
        while self._start_beside():
            pass
        if not self.slots.names and next(self.queue.due(self.clock.now(), beside=True), None) is None:
            # whatever waits, also what comes back from a GPU that was given up
            self._retries.give_up_waiting(self._waiting(), self.slots.diagnosis())
        while self._start_next():
            pass

    def _start_beside(self) -> bool:
        """Start what takes no GPU, or takes one only if it is ready; return whether there was such a task, and room."""
        now = self.clock.now()
        if not any(map(self.queue.starts_beside, self.queue)) or not self._has_room():
            return False
        cores = self.slots.offer_cores(now, or_gpu=False)  # before: nothing is claimed that others could start sooner
        if cores is None or (task := next(self.queue.due(now, beside=True), None)) is None:
            return False
        self._start(task, self.slots.offer_cores(now, or_gpu=task.takes == "any") or cores)
        return True

    def _start_next(self) -> bool:
        """Start whatever is next, if there is a slot for it; return whether there was."""
        if not self.slots.with_seat():  # nothing is claimed that others could start sooner
            return False
        now = self.clock.now()
        ready, task = standby.next_task(self, now)
        alone = task is not None and self._retries.is_alone(task)
        if task is None or not self.slots.with_seat(alone=alone) or not self._has_room():
            return False
        offer = self.slots.offer(self._sharing.of(task), now, alone=alone, on=ready.context if ready else None)
        if offer is None:
            for name, reason in self.slots.give_up_overdue(now).items():
                self.ledger.write(Notice("slot_given_up", reason, slot=name))
            return False
        if self._choose_budget_again():
            return True
        if ready:
            return self._go(ready, offer)
        self._start(task, offer)
        return True

    def _choose_budget_again(self) -> bool:
        """Let the deadline choose again for all that has not begun; standbys under an earlier choice end."""
        if (deadline := self.hooks.deadline) is None:
            return False
        ready = [one.task for one in self.attempts.values() if not isinstance(one.stage, Execution | Collection)]
        waiting = list({task.id: task for task in (*ready, *self.queue)}.values())
        num_slots = len(self.slots.names) * self.slots.seats
        if is_other := deadline.choose_again(self.clock.now(), waiting, self.running(), num_slots):
            standby.retire(self)
        return is_other

    def _go(self, ready: RunningAttempt, slot: Slot) -> bool:
        """Let a standby begin; if it cannot be told, it stands by until there is room again."""
        try:
            judge.write_go(ready.attempt.folder.go, slot)
        except OSError as error:
            if is_out_of_space(error):
                self._disk.shut(self.clock.now(), str(error))
            else:
                standby.dismiss(self, ready, task_waits=False)
                self._handle_error(ready.task, error)
            return False
        ready.go(slot)
        launch.tell(self, ready)
        self._take_slot(ready, slot)
        return True

    def _start(self, task: Task, slot: Slot) -> None:
        """Take a slot for a task, and have its attempt prepared; it begins once that is done."""
        self.queue.take(task)
        try:
            one = launch.start(self, task, slot)
        except Exception as error:  # noqa: BLE001 - the wall: see `_handle_error`
            self._handle_error(task, error)
            return
        self.add(one)
        self._take_slot(one, slot)
        if one.reading is not None:
            self._begin(one, one.reading)

    def _take_slot(self, one: RunningAttempt, slot: Slot) -> None:
        alone = self._retries.is_alone(one.task)
        if wait := self.slots.take(one.key, slot, self._sharing.of(one.task), alone=alone):
            waited_s, number = round(self.clock.now() - wait.since, 2), one.attempt.folder.number
            self.ledger.write(SlotNotReady(one.task.name, number, slot.name, waited_s, wait.reason))
        company = [self.attempts[key] for key in self.slots.gate_of(one.key).tenants]
        for beside in company:
            beside.num_company = max(beside.num_company, len(company) - 1)

    def _has_room(self) -> bool:
        if not (is_open := self._disk.is_open(now := self.clock.now())) and self._disk.given_up(now):
            self._retries.give_up_waiting(self._waiting(), self._disk.diagnosis())
        return is_open

    def _say_what_waits(self) -> None:
        """Say now and then which file keeps a task waiting."""
        for one in self.attempts.values():
            wait = one.reading.wait if one.reading and isinstance(one.stage, Execution | Collection) else None
            if wait is None:
                one.said_s = 0.0
            elif wait.seconds >= 2 * one.said_s:
                one.said_s = wait.seconds
                self.ledger.write(FileNotAnswering(one.task.name, wait.path, round(wait.seconds, 1)))

    def _readings(self) -> list[CallQueue[Any]]:
        """Return what reads for us now."""
        return [one.reading for one in self.attempts.values() if one.reading is not None]

    def _waiting(self) -> list[Task]:
        """Return whatever has not begun, and forget it."""
        standby.retire(self)
        return self.queue.clear()

    def _stop_all(self, reason: str) -> None:
        """End what runs, wait for its records, and write them down; a reader that hangs is not waited for."""
        self._waiting()
        ask_to_end(self.executor, self.running(), reason)
        give_up_at = self.clock.now() + self._patience_s
        while self.attempts:
            since = [one.stage.since for one in self.attempts.values() if isinstance(one.stage, Collection)]
            if len(since) == len(self.attempts):  # what is only read is waited for no longer than a training
                give_up_at = min(give_up_at, max(since) + self.config.limits.grace_s + COLLECTING_S)
            if self.clock.now() >= give_up_at:
                break
            self._look_at_attempts()
            self.queue.clear()
            self.clock.sleep(POLL_S, self._readings())
        for reading in self._readings():
            reading.end()
        for one in self.attempts.values():
            if isinstance(one.stage, Execution | Collection):
                self._retries.note(one.task, Stopped(reason))

    def _end_all(self) -> None:
        """End what runs, and wait until it has ended; nothing is written down."""
        for reading in self._readings():
            reading.end()
        ask_to_end(self.executor, [one for one in self.attempts.values() if not isinstance(one.stage, Collection)])
        handles, give_up_at = handles_of(self.attempts.values()), self.clock.now() + self._patience_s
        while handles and self.clock.now() < give_up_at:
            self.clock.sleep(POLL_S)
            gone = self.executor.poll(handles)
            handles = {key: handle for key, handle in handles.items() if not gone[key]}
