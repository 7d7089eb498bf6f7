"""The loop of a batch: start due tasks on free slots, poll running attempts, collect ended ones.

One thread polls all attempts; there is no thread per attempt. Tests replace the clock. A slot is a GPU or a share of
the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from splatbatch import isolated
from splatbatch.errors import OutputError
from splatbatch.files import Record, is_out_of_space
from splatbatch.machine.protocol import Slot
from splatbatch.outcome import COLLECT, Cancelled, Exit, Exited, Failed, Outcome, Stopped, Trained
from splatbatch.output.events import AttemptEnded, FileNotAnswering, GaveUp, Notice, PatchRejected, SlotNotReady
from splatbatch.output.records.record import read_as
from splatbatch.scheduler import judge, launch, standby
from splatbatch.scheduler.cancel import Cancellations
from splatbatch.scheduler.disk_guard import DISK_FULL, DiskGuard
from splatbatch.scheduler.finalize import CollectResult, collect, write_down
from splatbatch.scheduler.loop_state import LoopState
from splatbatch.scheduler.packing import GpuSharing
from splatbatch.scheduler.retry_handling import RetryHandling
from splatbatch.scheduler.running_attempt import Collection, Reading, RunningAttempt, ask_to_end, handles_of
from splatbatch.tasks.task import Task

POLL_S = 0.05
"""Seconds between two rounds of the loop, if no attempt has ended and no reader process answers."""
PATIENCE_S = 20.0
"""Seconds after `limits.grace_s` within which a stopped attempt must have written its exit.json."""
COLLECTING_S = 2.0
"""Seconds in addition to `limits.grace_s` within which ended attempts are still collected after a request to stop."""
KEEPS_SLOT_S = 1.0
"""Longest time in seconds that an ended attempt keeps its slot while it is collected; a large splat takes a minute."""


@dataclass
class Loop(LoopState):
    """The loop of a batch, which runs until every task is trained, given up or stopped; call `run` once.

    Making it raises OutputError if the ledger cannot be written.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._patience_s = self.config.limits.grace_s + PATIENCE_S
        self._disk = DiskGuard(self.output.path, self.config.limits, self.ledger)
        self._sharing = GpuSharing(self.slots, self.config, self.ledger, self.queue)
        self._retries = RetryHandling(self)
        self._cancellations = Cancellations(self, self._retries)

    def run(self) -> Mapping[str, Outcome]:
        """Train the tasks; return the last outcome of each task that was tried, by name.

        On an unexpected error all processes are ended before it is raised. A failed attempt raises nothing.
        Tasks of other workers are waited for without a limit of time.

        Raises:
            OutputError: the ledger cannot be written.
            OSError: deadline.json cannot be written, or a request to cancel cannot be removed.
            LaterFormatError: a later version of splatbatch wrote a request to cancel, or a heartbeat file.
            SplatbatchError: an attempt of a dead worker does not end.
        """
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
        except BaseException:  # for example an unwritable ledger: no process of ours may run on
            self._end_all()
            raise
        return self._retries.outcomes

    def _look_at_attempts(self) -> None:
        """Advance each attempt: begin a prepared one, collect an ended one, record a collected one."""
        gone = self.executor.poll(handles_of(self.attempts.values()))
        for key, one in list(self.attempts.items()):
            is_on_slot = one.stage == "running"
            if isinstance(one.stage, Collection):
                self._collect(one, one.stage)
            elif one.reading is not None:
                self._begin(one, one.reading)
            elif (end := one.how_it_ended(gone[key])) is not None:
                self._end(one, end)
            elif is_on_slot and not self.slots.gate_of(key).has_seat() and self.ready() and one.is_finalizing():
                self.slots.gate_of(key).finalizes(key, self._sharing.holds(one))  # the next may start beside it
        for task in self._waiting() if self._retries.why_stopped else ():  # the cause would fail these tasks, too
            self.ledger.write(GaveUp(task.name, self._retries.why_stopped))

    def _begin(self, one: RunningAttempt, reading: Reading) -> None:
        """Start the process of an attempt once it is prepared; if it cannot begin, free its slot and record why."""
        if (why := launch.begin(self, one, reading)) is None:
            return
        if one.stage != "running":  # a standby: the next attempt at its task records the reason
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
        """Collect an ended attempt; discard a standby that has died, even if go.json was written."""
        is_on_slot, now = one.stage == "running", self.clock.now()
        if is_on_slot and (isinstance(end, Cancelled) or not judge.died_on_standby(one.attempt.folder)):
            self._collect(one, one.end(end, now))
            return
        if is_on_slot:
            self.slots.release(one.key, now)
        standby.discard(self, one)

    def _collect(self, one: RunningAttempt, ended: Collection) -> None:
        """Have a reader process collect an ended attempt, and record the result; called in every round until then.

        The attempt keeps its slot meanwhile, for 1 s at most. On a full disk it waits, and no attempt starts.
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

    def _take_in(self, one: RunningAttempt, end: Exit, reading: Reading) -> bool:
        """Record the result of a reader process that collects; return whether the attempt is finished with.

        On a full disk it is collected again later, until the disk guard gives up.
        """
        try:
            if found := reading.look():
                self._record(one, end, found[0][1].result(COLLECT))
            return bool(found)
        except Exception as error:  # noqa: BLE001 - of one task only: see `_handle_error`
            if not is_out_of_space(error):
                self._handle_error(one.task, error, COLLECT)
                return True
            now = self.clock.now()
            self._disk.shut(now, str(error))
            self._retries.note(one.task, Failed(self._disk.diagnosis()))
            one.read_by(None)
            return self._disk.given_up(now)

    def _record(self, one: RunningAttempt, end: Exit, collected: Record) -> None:
        """Record the outcome of an attempt in the ledger, and act on it: learn its memory, or handle its failure."""
        found, is_crowded = read_as(CollectResult, collected), False
        task, outcome = one.task, found.outcome
        if isinstance(outcome, Failed) and outcome.diagnosis.cause == "cuda_oom":
            is_crowded = self.slots.is_crowded(one.slot, one.key)
            if is_crowded or one.num_company:  # memory that others hold is waited for, with the same settings
                outcome = Failed(replace(outcome.diagnosis, action="retry"))
        write_down(one.attempt, end, replace(found, outcome=outcome), self.ledger)
        self._retries.note(task, outcome)
        if isinstance(outcome, Trained):
            self._sharing.note(one)
        if end != Exited(0):
            standby.discard_contexts(self, [one.slot.name])
        if isinstance(outcome, Failed):
            diagnosis = outcome.diagnosis
            if diagnosis.cause == DISK_FULL:
                self._disk.shut(self.clock.now(), f"the disk is full, as the attempt at {task.name} shows")
            elif diagnosis.cause == "cuda_oom" and one.num_company and not is_crowded:
                self._sharing.ran_out_of_memory(1 + one.num_company)
            self._retries.failed(one, diagnosis, self.clock.now())

    def _handle_error(self, task: Task, error: Exception, phase: str = "start") -> None:
        """Record an error as a failure of its task, so that all other tasks go on.

        A task that cannot begin on a full disk is put back instead. An error of the ledger ends the batch.
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
            # all waiting tasks, also those put back from a GPU that was given up
            self._retries.give_up_waiting(self._waiting(), self.slots.diagnosis())
        while self._start_next():
            pass

    def _start_beside(self) -> bool:
        """Start one task that needs no GPU, on free cores or an idle GPU; return whether one was started."""
        now = self.clock.now()
        if not any(map(self.queue.starts_beside, self.queue)) or not self._has_room():
            return False
        cores = self.slots.offer_cores(now, or_gpu=False)  # first: no task is claimed that another worker could start
        if cores is None or (task := next(self.queue.due(now, beside=True), None)) is None:
            return False
        return self._start(task, self.slots.offer_cores(now, or_gpu=task.takes == "any") or cores)

    def _start_next(self) -> bool:
        """Start the next task if there is a slot for it; return whether to try again at once.

        A task that must have a GPU to itself waits for the one with the fewest attempts, where no other task starts
        until then. On the other GPUs the tasks behind it start. A standby that is nearly prepared is waited for; one
        whose reader process waits for a file is passed over.
        """
        now, free = self.clock.now(), self.slots.with_seat()
        # without a seat no task is claimed that another worker could start sooner
        for ready, task in standby.in_turn(self, now) if free else ():
            among = free & {ready.context.name} if ready and ready.context else free
            reading = ready and ready.reading
            if not among or (reading and reading.wait):
                continue
            if reading or not self._has_room():
                return False
            alone = self._retries.is_alone(task)
            if offer := self.slots.offer(self._sharing.of(task), now, alone=alone, among=among):
                if self._choose_budget_again():
                    return True
                return self._go(ready, offer) if ready else self._start(task, offer)
            for name, reason in self.slots.give_up_overdue(now).items():
                self.ledger.write(Notice("slot_given_up", reason, slot=name))
            free.discard(self.slots.emptiest())  # where this task waits; those behind it may start on the other slots
            if not (alone and free):
                return False
        return False

    def _choose_budget_again(self) -> bool:
        """Let the deadline adjust the step budget of attempts not begun; return whether it did, which ends standbys."""
        if (deadline := self.hooks.deadline) is None:
            return False
        ready = [one.task for one in self.attempts.values() if not one.has_begun]
        waiting = list({task.id: task for task in (*ready, *self.queue)}.values())
        num_slots = len(self.slots.names) * self.slots.seats
        if is_other := deadline.choose_again(self.clock.now(), waiting, self.running(), num_slots):
            standby.retire(self)
        return is_other

    def _go(self, ready: RunningAttempt, slot: Slot) -> bool:
        """Order a standby to begin on a slot; return whether that succeeded. On a full disk it stays a standby."""
        try:
            launch.write_go(ready.attempt.folder.go, slot)
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

    def _start(self, task: Task, slot: Slot) -> bool:
        """Start an attempt at a task on a slot: a reader process prepares it, and it begins once that is done.

        True is returned, also after an error, which is recorded: another task may start at once.
        """
        self.queue.take(task)
        try:
            one = launch.start(self, task, slot)
        except Exception as error:  # noqa: BLE001 - of one task only: see `_handle_error`
            self._handle_error(task, error)
            return True
        self.add(one)
        self._take_slot(one, slot)
        if one.reading is not None:
            self._begin(one, one.reading)
        return True

    def _take_slot(self, one: RunningAttempt, slot: Slot) -> None:
        if wait := self.slots.take(one.key, slot, self._sharing.of(one.task), alone=self._retries.is_alone(one.task)):
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
        """Write an event for each reader process that waits for a file, again whenever its wait has doubled."""
        for one in self.attempts.values():
            wait = one.reading.wait if one.reading and one.has_begun else None
            if wait is None:
                one.said_s = 0.0
            elif wait.seconds >= 2 * one.said_s:
                one.said_s = wait.seconds
                self.ledger.write(FileNotAnswering(one.task.name, wait.path, round(wait.seconds, 1)))

    def _readings(self) -> list[Reading]:
        """Return the calls to reader processes that are under way."""
        return [one.reading for one in self.attempts.values() if one.reading is not None]

    def _waiting(self) -> list[Task]:
        """End all standbys, empty the queue, and return the tasks that have not begun."""
        standby.retire(self)
        return self.queue.clear()

    def _stop_all(self, reason: str) -> None:
        """End all running attempts, wait for their ends and record them; a hung reader process is not waited for."""
        self._waiting()
        ask_to_end(self.executor, self.running(), reason)
        give_up_at = self.clock.now() + self._patience_s
        while self.attempts:
            since = [one.stage.since for one in self.attempts.values() if isinstance(one.stage, Collection)]
            if len(since) == len(self.attempts):  # all have ended: readers alone get less time
                give_up_at = min(give_up_at, max(since) + self.config.limits.grace_s + COLLECTING_S)
            if self.clock.now() >= give_up_at:
                break
            self._look_at_attempts()
            self.queue.clear()
            self.clock.sleep(POLL_S, self._readings())
        for reading in self._readings():
            reading.end()
        for one in self.attempts.values():
            if one.has_begun:
                self._retries.note(one.task, Stopped(reason))

    def _end_all(self) -> None:
        """End all processes after an unexpected error, and wait until they have ended; their ends are not recorded."""
        for reading in self._readings():
            reading.end()
        ask_to_end(self.executor, [one for one in self.attempts.values() if not isinstance(one.stage, Collection)])
        handles, give_up_at = handles_of(self.attempts.values()), self.clock.now() + self._patience_s
        while handles and self.clock.now() < give_up_at:
            self.clock.sleep(POLL_S)
            gone = self.executor.poll(handles)
            handles = {key: handle for key, handle in handles.items() if not gone[key]}
