"""The loop of a batch: start what is due on slots that are fit, look at what runs, judge what has ended.

One thread, one loop over poll; no thread per attempt. In a test its clock is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from splatbatch import isolated
from splatbatch.config import Config
from splatbatch.errors import OutputError
from splatbatch.files import Record, is_out_of_space
from splatbatch.isolated import CallQueue
from splatbatch.machine.protocol import AttemptExecutor, Key, Slot
from splatbatch.machine.slots import ClosedGate, Slots
from splatbatch.outcome import COLLECT, Cancelled, Exit, Failed, Outcome, Stopped, Trained
from splatbatch.output.events import AttemptEnded, FileNotAnswering, GaveUp, PatchRejected, SlotGivenUp
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Ledger
from splatbatch.scheduler import judge
from splatbatch.scheduler.cancel import Cancellations
from splatbatch.scheduler.disk_guard import DISK_FULL, DiskGuard
from splatbatch.scheduler.finalize import (
    FinishedAttempt,
    collect,
    write_down,
)
from splatbatch.scheduler.launch import ChangedInputs, Launcher
from splatbatch.scheduler.packing import MemoryModel, SeatTuner
from splatbatch.scheduler.queue import Queue
from splatbatch.scheduler.retry_handling import RetryHandling
from splatbatch.scheduler.run_hooks import RunHooks
from splatbatch.scheduler.running_attempt import (
    Clock,
    RunningAttempt,
    SystemClock,
    ask_to_end,
    end_all,
    handles_of,
    how_it_ended,
    leave,
)
from splatbatch.scheduler.standby import Standbys
from splatbatch.tasks.fingerprints.inputs import places
from splatbatch.tasks.task import Task

POLL_S = 0.05
PATIENCE_S = 20.0
"""So long after the grace an attempt that was asked to end may take to say how it ended."""
COLLECTING_S = 2.0
"""Besides the grace: so long an attempt that has ended may take to be collected once somebody wants us to stop."""
KEEPS_SLOT_S = 1.0
"""So long an attempt that has ended keeps its slot while it is collected; a splat of gigabytes takes a minute."""


@dataclass
class CollectingAttempt:
    """An attempt that has ended and is collected."""

    running: RunningAttempt
    end: Exit
    since: float
    """By the clock of the loop."""
    reading: CallQueue[FinishedAttempt] | None = None
    """None: there is no room on the disk to begin."""
    has_slot: bool = True


class Runner:
    """Trains tasks until every one is trained, given up or stopped."""

    def __init__(
        self,
        config: Config,
        executor: AttemptExecutor,
        ledger: Ledger,
        clock: Clock | None = None,
        *,
        is_retry: bool = False,
    ) -> None:
        self._config = config
        self._executor = executor
        self._ledger = ledger
        self._clock = clock or SystemClock()
        self._output = OutputFolder(config.output.folder)
        self._room = DiskGuard(self._output.path, config.limits, ledger)
        self._slots = Slots(executor.slots(), config.cooldown, executor.shared_mib)
        self._packer = SeatTuner(self._slots, config.executor, ledger)
        self._launcher = Launcher(config, executor, ledger, is_retry=is_retry)
        self._standbys = Standbys(executor, self._launcher)
        self._memory = MemoryModel()
        self._retries = RetryHandling(config, ledger, self._clock, self._slots)
        self._cancellations = Cancellations(self._output, executor, ledger, self._retries)
        self._queue = Queue((), longest_first=False)
        self._running: dict[Key, RunningAttempt] = {}
        self._collecting: dict[Key, CollectingAttempt] = {}
        self._said: dict[Key, float] = {}
        """For how long it was said last that a reader waits."""
        self._patience_s = config.limits.grace_s + PATIENCE_S

    def run(self, tasks: Sequence[Task], rounds: RunHooks) -> Mapping[str, Outcome]:
        """Train tasks; return the last outcome of each that was tried."""
        self._queue = Queue(
            tasks,
            longest_first=len(self._slots) > 1,
            claimer=rounds.claimer,
            begun=self._begun,
            needs_no_gpu=self._needs_no_gpu,
        )
        self._retries.claimer = rounds.claimer
        self._launcher.pacer = rounds.pacer
        self._launcher.audited = rounds.audited
        self._cancellations.listen(rounds)
        try:
            self._train_all(rounds)
        except BaseException:  # the ledger cannot be written, say: nothing of ours may run on
            self._abandon_readers()
            end_all(self._executor, self._running | self._standbys.everyone(), self._clock, self._patience_s)
            raise
        return self._retries.outcomes

    def _begun(self) -> Sequence[Task]:
        """Return what was taken from the queue and has not ended."""
        collecting = (one.running for one in self._collecting.values())
        begun = (*self._running.values(), *collecting, *self._standbys.everyone().values())
        return [running.task for running in begun]

    def _train_all(self, rounds: RunHooks) -> None:
        while self._queue or self._running or self._collecting or self._standbys:
            self._cancellations.look(self._queue, self._standbys, self._running)
            self._cancellations.leave(rounds.claimer.lost(), self._queue, self._standbys)
            self._cancellations.refuse(rounds.refused(), self._queue, self._standbys)
            if reason := rounds.stop():
                self._stop_all(reason)
                break
            has_news = self._harvest()
            self._say_what_waits()
            self._packer.look(self._clock.now(), self._running.values())
            self._start_due()
            self._stand_by()
            self._retries.let_go(self._queue, self._begun())
            self._ledger.flush()
            rounds.tick()
            if not has_news:
                self._clock.sleep(POLL_S, self._readings())

    def _has_other_budget(self) -> bool:
        """Let the deadline choose again for all that has not begun; standbys under an earlier choice end."""
        if (pacer := self._launcher.pacer) is None:
            return False
        ready = [one.task for one in self._standbys.everyone().values()]
        waiting = list({task.id: task for task in (*ready, *self._queue)}.values())
        num_slots = len(self._slots) * self._slots.seats
        if not pacer.choose_again(self._clock.now(), waiting, self._running.values(), num_slots):
            return False
        for task in reversed(self._standbys.retire()):
            self._queue.put_back(task)
        return True

    def _needs_no_gpu(self, task: Task) -> bool:
        """Return whether a task starts whatever the GPUs do."""
        return task.kind.takes != "gpu" and self._slots.has_cores

    def _start_due(self) -> None:
        while self._starts_beside():
            pass
        if not len(self._slots) and next(self._queue.due(self._clock.now(), beside=True), None) is None:
            # whatever waits, also what comes back from a GPU that was given up
            self._retries.none_started(self._waiting(), self._slots.diagnosis())
        while self._starts_next():
            pass

    def _starts_beside(self) -> bool:
        """Start what takes no GPU, or takes one only if it is ready; return whether there was such a task, and room."""
        now = self._clock.now()
        if not any(map(self._needs_no_gpu, self._queue)) or not self._has_room():
            return False
        if self._slots.offer_cores(now, or_gpu=False) is None:  # nothing is claimed that others could start sooner
            return False
        if (task := next(self._queue.due(now, beside=True), None)) is None:
            return False
        if slot := self._slots.offer_cores(now, or_gpu=task.kind.takes == "any"):
            self._queue.take(task)
            self._start(task, slot)
        return slot is not None

    def _starts_next(self) -> bool:
        """Start whatever is next, if there is a slot for it; return whether there was."""
        if not self._slots.has_seat():  # nothing is claimed that others could start sooner
            return False
        now = self._clock.now()
        standby, task = self._standbys.next(self._queue, self._slots, now)
        alone = task is not None and self._retries.is_alone(task)
        if task is None or not self._slots.has_seat(alone=alone) or not self._has_room():
            return False
        offer = self._slots.offer(self._memory.of(task), now, alone=alone, on=self._standbys.place(standby))
        if isinstance(offer, ClosedGate):
            for name, reason in self._slots.give_up_overdue(now).items():
                self._ledger.write(SlotGivenUp(name, reason))
            return False
        if self._has_other_budget():
            return True
        if standby:
            return self._go(standby, offer)
        self._queue.take(task)
        self._start(task, offer)
        return True

    def _go(self, standby: RunningAttempt, slot: Slot) -> bool:
        """Let a standby begin; if it cannot be told, it stands by until there is room again."""
        try:
            self._standbys.go(standby, slot)
        except OSError as error:
            if is_out_of_space(error):
                self._room.shut(self._clock.now(), str(error))
            else:
                self._standbys.dismiss(standby)
                self._fail_at_the_door(standby.task, error)
            return False
        self._took(slot, standby)
        return True

    def _start(self, task: Task, slot: Slot) -> None:
        """Take a slot for a task, and have its attempt prepared; it begins once that is done."""
        try:
            running = self._launcher.start(task, slot)
        except Exception as error:  # noqa: BLE001 - the wall: see `_fail_at_the_door`
            self._not_begun(task, error)
            return
        self._took(slot, running)
        if not self._begins(running):
            self._free(running.key)

    def _free(self, key: Key) -> None:
        """Leave the slot of an attempt that did not begin."""
        del self._running[key]
        self._slots.release(key, self._clock.now())

    def _begins(self, running: RunningAttempt) -> bool:
        """Let an attempt begin that has been prepared; return whether it waits, or runs, still."""
        try:
            if running.attempt.folder.is_cancelled():
                self._retries.note(running.task, stopped := Stopped("cancelled before the attempt began"))
                self._ledger.write(AttemptEnded.of(running.task.name, running.attempt.folder.number, stopped))
            else:
                self._launcher.is_prepared(running)
                return True
        except ChangedInputs as unfit:
            self._launcher.discard(running)
            self._ledger.write(PatchRejected(running.task.name, unfit.reason, unfit.inputs))
            self._retries.leave([running.task])
        except Exception as error:  # noqa: BLE001 - the wall: see `_fail_at_the_door`
            if is_out_of_space(error):
                self._launcher.discard(running)
            self._not_begun(running.task, error)
        leave(running)
        return False

    def _not_begun(self, task: Task, error: Exception) -> None:
        """Put a task back that a full disk does not let begin; any other error is its own."""
        if is_out_of_space(error):
            self._queue.put_back(task)
            self._room.shut(self._clock.now(), str(error))
        else:
            self._fail_at_the_door(task, error)

    def _took(self, slot: Slot, running: RunningAttempt) -> None:
        if wait := self._slots.waited(slot):
            self._launcher.tell_wait(running, self._clock.now() - wait.since, wait.reason)
        self._slots.take(running.key, slot, self._memory.of(running.task), alone=self._retries.is_alone(running.task))
        self._running[running.key] = running
        for key in (company := self._slots.company(running.key)):
            beside = self._running.get(key) or self._collecting[key].running
            beside.num_company = max(beside.num_company, len(company) - 1)

    def _fail_at_the_door(self, task: Task, error: Exception, phase: str = "start") -> None:
        """Record a task that something was to be done for, and could not; the others go on.

        A failed ledger is no task's: without it nothing goes on.
        """
        if isinstance(error, OutputError):
            raise error
        diagnosis, traceback = isolated.diagnose(error, task.home(self._output).path, phase)
        self._retries.could_not(task, diagnosis, self._queue, traceback)

    def _stand_by(self) -> None:
        """Replace standbys that have died, and have one ready for each GPU at work."""
        for task in self._standbys.look():
            self._queue.put_back(task)
        if not self._room.reason:
            self._standbys.top_up(self._queue, self._slots, self._clock.now())
            self._standbys.open_contexts(self._slots, self._running)

    def _has_room(self) -> bool:
        if not (is_open := self._room.is_open(now := self._clock.now())) and self._room.given_up(now):
            self._retries.none_started(self._waiting(), self._room.diagnosis())
        return is_open

    def _harvest(self) -> bool:
        """Begin what is prepared, collect what has ended; return whether anything had."""
        num = len(self._running) + len(self._collecting)
        seen = self._executor.poll(handles) if (handles := handles_of(self._running)) else {}
        for key, running in list(self._running.items()):
            if running.preparing is not None:
                if not self._begins(running):
                    self._free(key)
            elif (end := how_it_ended(running, seen[key])) is None:
                self._see_whether_it_finalizes(running)
            elif self._never_began(running, end):
                self._free(key)
            else:
                self._collecting[key] = CollectingAttempt(self._running.pop(key), end, self._clock.now())
        self._collect()
        for task in self._waiting() if self._retries.hopeless else ():  # what failed twice lies in the machine
            self._ledger.write(GaveUp(task.name, self._retries.hopeless))
        return len(self._running) + len(self._collecting) < num

    def _collect(self) -> None:
        """Take in what readers have collected; free the slots of what has ended."""
        for key, one in list(self._collecting.items()):
            is_over = self._is_collected(one)
            if one.has_slot and (is_over or self._clock.now() >= one.since + KEEPS_SLOT_S):
                one.has_slot = False
                self._slots.release(key, self._clock.now())
            if is_over:
                del self._collecting[key]

    def _see_whether_it_finalizes(self, running: RunningAttempt) -> None:
        """Let the next attempt start beside one that only evaluates and exports; asked only if there is a next one."""
        if (
            self._slots.is_full(running.key)
            and self._standbys.first()
            and running.attempt.folder.last_progress().phase in judge.FINALIZING
        ):
            self._slots.finalizes(running.key, self._memory.holds(running))

    def _never_began(self, running: RunningAttempt, end: Exit) -> bool:
        """Put a standby back in the queue that had died when it was told to go: it counts for nothing."""
        if has_not_begun := not isinstance(end, Cancelled) and judge.died_on_standby(running.attempt.folder):
            self._standbys.discard(running)
            self._queue.put_back(running.task)
        return has_not_begun

    def _is_collected(self, one: CollectingAttempt) -> bool:
        """Return whether an attempt that has ended is done with.

        While a full disk does not take its result it is not; nor is anything started then.
        """
        now, running = self._clock.now(), one.running
        if one.reading is None:
            if not self._room.takes_writes(now) and not self._room.given_up(now):
                return False
            one.reading = isolated.start(collect, [self._ending(running, one.end)])
        try:
            if not (found := one.reading.look()):
                return False
            self._judge(running, one.end, found[0][1].result(COLLECT))
        except Exception as error:  # noqa: BLE001 - the wall: see `_fail_at_the_door`
            if not is_out_of_space(error):
                self._fail_at_the_door(running.task, error, COLLECT)
                return True
            self._room.shut(now, str(error))
            self._retries.note(running.task, Failed(self._room.diagnosis()))
            one.reading = None
            return self._room.given_up(now)
        return True

    def _ending(self, running: RunningAttempt, end: Exit) -> FinishedAttempt:
        task = running.task
        keeps_better, place = self._config.retry.keep == "better", places(task.patch, task.recipe)
        return FinishedAttempt(running.attempt, end, task, task.home(self._output), keeps_better, place)

    def _judge(self, running: RunningAttempt, end: Exit, found: Record) -> None:
        task, outcome = running.task, write_down(running.attempt, end, found, self._ledger)
        self._retries.note(task, outcome)
        if isinstance(outcome, Trained):
            self._memory.note(running)
        self._standbys.judged(running, end)
        if isinstance(outcome, Failed):
            if (cause := outcome.diagnosis.cause) == DISK_FULL:
                self._room.shut(self._clock.now(), f"the disk is full ({task.name})")
            if cause == "cuda_oom" and running.num_company:
                self._packer.ran_out_of_memory(1 + running.num_company)
            self._retries.failed(running, outcome.diagnosis, self._queue)

    def _say_what_waits(self) -> None:
        """Say now and then which file keeps a task waiting."""
        readings = {key: (one.task.name, one.preparing) for key, one in self._running.items()}
        readings |= {key: (one.running.task.name, one.reading) for key, one in self._collecting.items()}
        for key, (name, reading) in readings.items():
            wait = reading.wait if reading is not None else None
            if wait is None:
                self._said.pop(key, None)
            elif wait.seconds >= 2 * self._said.get(key, 0.0):
                self._said[key] = wait.seconds
                self._ledger.write(FileNotAnswering(name, wait.path, round(wait.seconds, 1)))

    def _readings(self) -> list[CallQueue[Any]]:
        """Return what reads for us now."""
        found = [one.preparing for one in self._running.values()] + [one.reading for one in self._collecting.values()]
        return [reading for reading in found if reading is not None]

    def _abandon_readers(self) -> None:
        for reading in self._readings():
            reading.end()

    def _waiting(self) -> list[Task]:
        """Return whatever has not begun, and forget it."""
        return [*self._standbys.retire(), *self._queue.clear()]

    def _stop_all(self, reason: str) -> None:
        """End what runs, wait for its records, and write them down; a reader that hangs is not waited for."""
        self._waiting()
        ask_to_end(self._executor, self._running, reason)
        give_up_at = self._clock.now() + self._patience_s
        while self._running or self._collecting or self._standbys:
            if not self._running and not self._standbys:  # what is only read is waited for no longer than a training
                collected_by = max(one.since for one in self._collecting.values()) + self._config.limits.grace_s
                give_up_at = min(give_up_at, collected_by + COLLECTING_S)
            if self._clock.now() >= give_up_at:
                break
            self._harvest()
            self._standbys.look()
            self._queue.clear()
            self._clock.sleep(POLL_S, self._readings())
        self._abandon_readers()
        for running in (*self._running.values(), *(one.running for one in self._collecting.values())):
            self._retries.note(running.task, Stopped(reason))
