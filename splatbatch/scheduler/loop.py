"""The loop of a batch: start what is due on slots that are fit, look at what runs, judge what has ended.

One thread, one loop over poll; no thread per attempt. In a test its clock is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from splatbatch import isolated
from splatbatch.config import Config
from splatbatch.errors import OutputError
from splatbatch.files import Record, is_out_of_space
from splatbatch.isolated import CallQueue
from splatbatch.machine.protocol import AttemptExecutor, Key, Slot
from splatbatch.machine.slots import ClosedGate, Slots
from splatbatch.outcome import COLLECT, Cancelled, Exit, Exited, Failed, Outcome, Stopped, Trained
from splatbatch.output.events import AttemptEnded, FileNotAnswering, GaveUp, Notice, PatchRejected, SlotNotReady
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Ledger
from splatbatch.scheduler import judge
from splatbatch.scheduler.cancel import Cancellations
from splatbatch.scheduler.disk_guard import DISK_FULL, DiskGuard
from splatbatch.scheduler.finalize import FinishedAttempt, collect, write_down
from splatbatch.scheduler.launch import Launcher
from splatbatch.scheduler.packing import MemoryModel, SeatTuner
from splatbatch.scheduler.queue import Queue
from splatbatch.scheduler.retry_handling import RetryHandling
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.running_attempt import (
    Clock,
    Collection,
    Execution,
    RunningAttempt,
    ask_to_end,
    handles_of,
)
from splatbatch.scheduler.standby import Standbys
from splatbatch.tasks.fingerprint import places
from splatbatch.tasks.task import Task

POLL_S = 0.05
PATIENCE_S = 20.0
"""So long after the grace an attempt that was asked to end may take to say how it ended."""
COLLECTING_S = 2.0
"""Besides the grace: so long an attempt that has ended may take to be collected once somebody wants us to stop."""
KEEPS_SLOT_S = 1.0
"""So long an attempt that has ended keeps its slot while it is collected; a splat of gigabytes takes a minute."""


@dataclass
class Loop:
    """Trains tasks until every one is trained, given up or stopped."""

    config: Config
    executor: AttemptExecutor
    ledger: Ledger
    tasks: Sequence[Task]
    hooks: RunHooks
    clock: Clock = field(default_factory=Clock)
    is_retry: bool = False

    def __post_init__(self) -> None:
        config, executor, ledger, hooks = self.config, self.executor, self.ledger, self.hooks
        self._output = OutputFolder(config.output.folder)
        self._attempts: dict[Key, RunningAttempt] = {}
        self._said: dict[Key, float] = {}
        """For how long it was said last that a reader waits."""
        self._patience_s = config.limits.grace_s + PATIENCE_S
        self._disk = DiskGuard(self._output.path, config.limits, ledger)
        self._slots = slots = Slots(executor.slots(), config.cooldown, executor.shared_mib)
        self._packer = SeatTuner(slots, config.executor, ledger)
        self._memory = MemoryModel()
        longest_first, has_cores = len(slots) > 1, slots.has_cores
        self._queue = Queue(self.tasks, self._attempts, hooks.claimer, longest_first=longest_first, has_cores=has_cores)
        self._launcher = Launcher(config, executor, ledger, hooks, is_retry=self.is_retry)
        self._standbys = Standbys(executor, self._launcher, self._queue, slots, self._attempts)
        self._retries = RetryHandling(config, ledger, slots, self._queue, hooks.claimer)
        self._cancellations = Cancellations(self._output, executor, ledger, hooks, self._standbys, self._retries)

    def run(self) -> Mapping[str, Outcome]:
        """Train the tasks; return the last outcome of each that was tried."""
        try:
            while self._queue or self._attempts:
                self._cancellations.look(self._running().values())
                if reason := self.hooks.stop():
                    self._stop_all(reason)
                    break
                num_before = len(self._attempts)
                self._look_at_attempts()
                has_news = len(self._attempts) < num_before
                self._say_what_waits()
                self._packer.look(self.clock.now(), self._running().values())
                self._start_due()
                if not self._disk.reason:
                    self._standbys.top_up(self.clock.now())
                    self._standbys.open_contexts()
                self._retries.let_go()
                self.ledger.flush()
                self.hooks.tick()
                if not has_news:
                    self.clock.sleep(POLL_S, self._readings())
        except BaseException:  # the ledger cannot be written, say: nothing of ours may run on
            self._end_all()
            raise
        return self._retries.outcomes

    def _running(self) -> dict[Key, RunningAttempt]:
        return {key: one for key, one in self._attempts.items() if isinstance(one.stage, Execution)}

    def _look_at_attempts(self) -> None:
        """Begin what is prepared, collect what has ended, take in what is collected."""
        seen = self.executor.poll(handles_of(self._attempts))
        for key, one in list(self._attempts.items()):
            is_on_slot = isinstance(one.stage, Execution)
            if isinstance(one.stage, Collection):
                self._collect(one, one.stage)
            elif one.reading is not None:
                self._begin(one, one.reading)
            elif (end := one.how_it_ended(seen[key])) is not None:
                self._end(one, end)
            elif is_on_slot and self._slots.is_full(key) and self._standbys.first() and judge.is_finalizing(one):
                self._slots.finalizes(key, self._memory.holds(one))  # the next may start beside it
        for task in self._waiting() if self._retries.hopeless else ():  # what failed twice lies in the machine
            self.ledger.write(GaveUp(task.name, self._retries.hopeless))

    def _begin(self, one: RunningAttempt, reading: CallQueue[Any]) -> None:
        """Start the process of an attempt once it is prepared; one that will not begin leaves its slot."""
        if (why := self._launcher.begin(one, reading)) is None:
            return
        if not isinstance(one.stage, Execution):  # why is told when the turn of its task comes
            self._standbys.discard(one)
            return
        del self._attempts[one.key]
        self._slots.release(one.key, self.clock.now())
        match why:
            case Stopped():
                self._retries.note(one.task, why)
                self.ledger.write(AttemptEnded.of(one.task.name, one.attempt.folder.number, why))
            case PatchRejected():
                self._launcher.discard(one)
                self._retries.leave([one.task])
                self.ledger.write(why)
            case Exception():
                if is_out_of_space(why):
                    self._launcher.discard(one)
                self._could_not(one.task, why)

    def _end(self, one: RunningAttempt, end: Exit) -> None:
        """Have an attempt collected that has ended; a standby that has died counts for nothing, also if told to go."""
        is_on_slot = isinstance(one.stage, Execution)
        if is_on_slot and (isinstance(end, Cancelled) or not judge.died_on_standby(one.attempt.folder)):
            self._collect(one, one.end(end, self.clock.now()))
            return
        if is_on_slot:
            self._slots.release(one.key, self.clock.now())
        self._standbys.discard(one)

    def _collect(self, one: RunningAttempt, ended: Collection) -> None:
        """Have a reader collect an attempt; it keeps its slot until then, but not for long.

        While a full disk does not take its result it waits; nor is anything started then.
        """
        now = self.clock.now()
        if one.reading is None and (self._disk.takes_writes(now) or self._disk.given_up(now)):
            task, home = one.task, one.task.home(self._output)
            keeps_better, place = self.config.retry.keep == "better", places(task.patch, task.recipe)
            ending = FinishedAttempt(one.attempt, ended.end, task, home, keeps_better, place)
            one.read_by(isolated.start(collect, [ending]))
        is_over = one.reading is not None and self._take_in(one, ended.end, one.reading)
        if ended.has_slot and (is_over or now >= ended.since + KEEPS_SLOT_S):
            ended.has_slot = False
            self._slots.release(one.key, now)
        if is_over:
            del self._attempts[one.key]

    def _take_in(self, one: RunningAttempt, end: Exit, reading: CallQueue[Any]) -> bool:
        """Take in what a reader has collected; return whether its attempt is done with."""
        try:
            if found := reading.look():
                self._record(one, end, found[0][1].result(COLLECT))
            return bool(found)
        except Exception as error:  # noqa: BLE001 - the wall: see `_could_not`
            if not is_out_of_space(error):
                self._could_not(one.task, error, COLLECT)
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
            self._memory.note(one)
        if end != Exited(0):
            self._standbys.discard_contexts([one.slot.name])
        if isinstance(outcome, Failed):
            if (cause := outcome.diagnosis.cause) == DISK_FULL:
                self._disk.shut(self.clock.now(), f"the disk is full ({task.name})")
            if cause == "cuda_oom" and one.num_company:
                self._packer.ran_out_of_memory(1 + one.num_company)
            self._retries.failed(one, outcome.diagnosis, self.clock.now())

    def _could_not(self, task: Task, error: Exception, phase: str = "start") -> None:
        """Put a task back that a full disk does not let begin; record any other error as its own: the others go on.

        A failed ledger is no task's: without it nothing goes on.
        """
        if phase != COLLECT and is_out_of_space(error):
            self._queue.put_back(task)
            self._disk.shut(self.clock.now(), str(error))
            return
        if isinstance(error, OutputError):
            raise error
        diagnosis, traceback = isolated.diagnose(error, task.home(self._output).path, phase)
        self._retries.could_not(task, diagnosis, self.clock.now(), traceback)

    def _start_due(self) -> None:
        while self._start_beside():
            pass
        if not len(self._slots) and next(self._queue.due(self.clock.now(), beside=True), None) is None:
            # whatever waits, also what comes back from a GPU that was given up
            self._retries.none_started(self._waiting(), self._slots.diagnosis())
        while self._start_next():
            pass

    def _start_beside(self) -> bool:
        """Start what takes no GPU, or takes one only if it is ready; return whether there was such a task, and room."""
        now = self.clock.now()
        if not any(map(self._queue.starts_beside, self._queue)) or not self._has_room():
            return False
        if self._slots.offer_cores(now, or_gpu=False) is None:  # nothing is claimed that others could start sooner
            return False
        if (task := next(self._queue.due(now, beside=True), None)) is None:
            return False
        if slot := self._slots.offer_cores(now, or_gpu=task.kind.takes == "any"):
            self._start(task, slot)
        return slot is not None

    def _start_next(self) -> bool:
        """Start whatever is next, if there is a slot for it; return whether there was."""
        if not self._slots.has_seat():  # nothing is claimed that others could start sooner
            return False
        now = self.clock.now()
        standby, task = self._standbys.next(now)
        alone = task is not None and self._retries.is_alone(task)
        if task is None or not self._slots.has_seat(alone=alone) or not self._has_room():
            return False
        only = standby.context if standby else None
        offer = self._slots.offer(self._memory.of(task), now, alone=alone, on=only)
        if isinstance(offer, ClosedGate):
            for name, reason in self._slots.give_up_overdue(now).items():
                self.ledger.write(Notice("slot_given_up", reason, slot=name))
            return False
        if self._choose_budget_again():
            return True
        if standby:
            return self._go(standby, offer)
        self._start(task, offer)
        return True

    def _choose_budget_again(self) -> bool:
        """Let the deadline choose again for all that has not begun; standbys under an earlier choice end."""
        if (pacer := self.hooks.pacer) is None:
            return False
        running, num_slots = self._running(), len(self._slots) * self._slots.seats
        ready = [one.task for one in self._attempts.values() if not isinstance(one.stage, Execution | Collection)]
        waiting = list({task.id: task for task in (*ready, *self._queue)}.values())
        if not pacer.choose_again(self.clock.now(), waiting, running.values(), num_slots):
            return False
        self._standbys.retire()
        return True

    def _go(self, standby: RunningAttempt, slot: Slot) -> bool:
        """Let a standby begin; if it cannot be told, it stands by until there is room again."""
        try:
            self._launcher.go(standby, slot)
        except OSError as error:
            if is_out_of_space(error):
                self._disk.shut(self.clock.now(), str(error))
            else:
                self._standbys.dismiss(standby, task_waits=False)
                self._could_not(standby.task, error)
            return False
        self._take_slot(standby, slot)
        return True

    def _start(self, task: Task, slot: Slot) -> None:
        """Take a slot for a task, and have its attempt prepared; it begins once that is done."""
        self._queue.take(task)
        try:
            one = self._launcher.start(task, slot)
        except Exception as error:  # noqa: BLE001 - the wall: see `_could_not`
            self._could_not(task, error)
            return
        self._attempts[one.key] = one
        self._take_slot(one, slot)
        if one.reading is not None:
            self._begin(one, one.reading)

    def _take_slot(self, one: RunningAttempt, slot: Slot) -> None:
        if wait := self._slots.waited(slot):
            waited_s, number = round(self.clock.now() - wait.since, 2), one.attempt.folder.number
            self.ledger.write(SlotNotReady(one.task.name, number, slot.name, waited_s, wait.reason))
        self._slots.take(one.key, slot, self._memory.of(one.task), alone=self._retries.is_alone(one.task))
        company = [self._attempts[key] for key in self._slots.company(one.key)]
        for beside in company:
            beside.num_company = max(beside.num_company, len(company) - 1)

    def _has_room(self) -> bool:
        if not (is_open := self._disk.is_open(now := self.clock.now())) and self._disk.given_up(now):
            self._retries.none_started(self._waiting(), self._disk.diagnosis())
        return is_open

    def _say_what_waits(self) -> None:
        """Say now and then which file keeps a task waiting."""
        for key, one in self._attempts.items():
            wait = one.reading.wait if one.reading and isinstance(one.stage, Execution | Collection) else None
            if wait is None:
                self._said.pop(key, None)
            elif wait.seconds >= 2 * self._said.get(key, 0.0):
                self._said[key] = wait.seconds
                self.ledger.write(FileNotAnswering(one.task.name, wait.path, round(wait.seconds, 1)))

    def _readings(self) -> list[CallQueue[Any]]:
        """Return what reads for us now."""
        return [one.reading for one in self._attempts.values() if one.reading is not None]

    def _waiting(self) -> list[Task]:
        """Return whatever has not begun, and forget it."""
        self._standbys.retire()
        return self._queue.clear()

    def _stop_all(self, reason: str) -> None:
        """End what runs, wait for its records, and write them down; a reader that hangs is not waited for."""
        self._waiting()
        ask_to_end(self.executor, self._running(), reason)
        give_up_at = self.clock.now() + self._patience_s
        while self._attempts:
            since = [one.stage.since for one in self._attempts.values() if isinstance(one.stage, Collection)]
            if len(since) == len(self._attempts):  # what is only read is waited for no longer than a training
                give_up_at = min(give_up_at, max(since) + self.config.limits.grace_s + COLLECTING_S)
            if self.clock.now() >= give_up_at:
                break
            self._look_at_attempts()
            self._queue.clear()
            self.clock.sleep(POLL_S, self._readings())
        for reading in self._readings():
            reading.end()
        for one in self._attempts.values():
            if isinstance(one.stage, Execution | Collection):
                self._retries.note(one.task, Stopped(reason))

    def _end_all(self) -> None:
        """End what runs, and wait until it has ended; nothing is written down."""
        for reading in self._readings():
            reading.end()
        ask_to_end(
            self.executor, {k: one for k, one in self._attempts.items() if not isinstance(one.stage, Collection)}
        )
        handles, give_up_at = handles_of(self._attempts), self.clock.now() + self._patience_s
        while handles and self.clock.now() < give_up_at:
            self.clock.sleep(POLL_S)
            seen = self.executor.poll(handles)
            handles = {key: handle for key, handle in handles.items() if seen[key].is_running}
