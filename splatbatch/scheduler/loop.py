"""The loop of a batch: start what is due on slots that are fit, look at what runs, judge what has ended.

One thread, one loop over poll; no thread per attempt. In a test its clock is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from splatbatch.config import Config
from splatbatch.errors import SplatbatchError
from splatbatch.files import is_out_of_space
from splatbatch.machine.protocol import Executor, Key, Slot
from splatbatch.machine.readiness import Wait
from splatbatch.machine.slots import Slots
from splatbatch.outcome import Cancelled, Exit, Failed, Outcome, Stopped, Trained
from splatbatch.scheduler import judge
from splatbatch.scheduler.cancel import Cancellations
from splatbatch.scheduler.disk_guard import DiskGuard
from splatbatch.scheduler.finalize import Ending, Rules, settle
from splatbatch.scheduler.launch import Launcher
from splatbatch.scheduler.pace.pacing import Pacing
from splatbatch.scheduler.packing import Memory, Packer
from splatbatch.scheduler.queue import Queue
from splatbatch.scheduler.retry_handling import RetryHandling
from splatbatch.scheduler.running import Clock, Rounds, Running, WallClock, ask_to_end, end_all, how_it_ended
from splatbatch.scheduler.standby import Standbys
from splatbatch.store.events import GaveUp, SlotGivenUp
from splatbatch.store.layout import OutputFolder
from splatbatch.store.ledger import Ledger
from splatbatch.store.obstacles import diagnosis_of
from splatbatch.tasks.fingerprints.inputs import places
from splatbatch.tasks.task import Task

POLL_S = 0.05
PATIENCE_S = 20.0
"""So long after the grace an attempt that was asked to end may take to say how it ended."""


class Runner:
    """Trains tasks until every one is trained, given up or stopped."""

    def __init__(
        self, config: Config, executor: Executor, ledger: Ledger, clock: Clock | None = None, *, is_retry: bool = False
    ) -> None:
        self._config = config
        self._executor = executor
        self._ledger = ledger
        self._clock = clock or WallClock()
        self._output = OutputFolder(config.output.folder)
        self._room = DiskGuard(self._output.path, config.limits, ledger)
        self._slots = Slots(executor.slots(), config.cooldown, executor.shared_mib)
        self._packer = Packer(self._slots, config.executor, ledger)
        self._launcher = Launcher(config, executor, ledger, is_retry=is_retry)
        self._standbys = Standbys(config, executor, self._launcher)
        self._pacing = Pacing(executor, self._launcher, self._slots, self._standbys)
        self._memory = Memory()
        self._retries = RetryHandling(config, ledger, self._clock, self._slots)
        self._cancellations = Cancellations(self._output, executor, ledger, self._retries)
        self._queue = Queue((), longest_first=False)
        self._running: dict[Key, Running] = {}
        self._patience_s = config.limits.grace_s + PATIENCE_S
        self._rules = Rules(keeps_better=config.retry.keep == "better")

    def run(self, tasks: Sequence[Task], rounds: Rounds) -> Mapping[str, Outcome]:
        """Train tasks; return the last outcome of each that was tried."""
        self._queue = Queue(tasks, longest_first=len(self._slots) > 1, claimer=rounds.claimer, begun=self._begun)
        self._retries.claimer = rounds.claimer
        self._launcher.pacer = rounds.pacer or self._launcher.pacer
        self._cancellations.listen(rounds)
        try:
            self._train_all(rounds)
        except BaseException:  # the ledger cannot be written, say: nothing of ours may run on
            end_all(self._executor, self._running | self._standbys.everyone(), self._clock, self._patience_s)
            raise
        return self._retries.outcomes

    def _begun(self) -> Sequence[Task]:
        """Return what was taken from the queue and has not ended."""
        return [running.task for running in (*self._running.values(), *self._standbys.everyone().values())]

    def _train_all(self, rounds: Rounds) -> None:
        while self._queue or self._running or self._standbys:
            self._cancellations.look(self._queue, self._standbys, self._running)
            self._cancellations.leave(rounds.claimer.lost(), self._queue, self._standbys)
            self._cancellations.refuse(rounds.refused(), self._queue, self._standbys)
            if reason := rounds.stop():
                self._stop_all(reason)
                break
            has_news = self._harvest()
            self._packer.look(self._clock.now(), self._running.values())
            self._pacing.look(self._clock.now(), self._queue, self._running)
            self._start_due()
            self._stand_by()
            self._retries.let_go(self._queue, self._begun())
            self._ledger.flush()
            rounds.beat()
            if not has_news:
                self._clock.sleep(POLL_S)

    def _start_due(self) -> None:
        if not len(self._slots):  # whatever waits, also what comes back from a GPU that was given up
            self._retries.none_started(self._waiting(), self._slots.diagnosis())
        while self._starts_next():
            pass

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
        if isinstance(offer, Wait):
            for name, reason in self._slots.give_up_overdue(now).items():
                self._ledger.write(SlotGivenUp(name, reason))
            return False
        if standby:
            return self._go(standby, offer)
        self._queue.take(task)
        self._start(task, offer)
        return True

    def _go(self, standby: Running, slot: Slot) -> bool:
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
        try:
            running = self._launcher.start(task, slot)
        except (SplatbatchError, OSError) as error:
            if is_out_of_space(error):
                self._queue.put_back(task)
                self._room.shut(self._clock.now(), str(error))
            else:
                self._fail_at_the_door(task, error)
            return
        self._took(slot, running)

    def _took(self, slot: Slot, running: Running) -> None:
        if wait := self._slots.waited(slot):
            self._launcher.tell_wait(running, self._clock.now() - wait.since, wait.reason)
        self._slots.take(running.key, slot, self._memory.of(running.task), alone=self._retries.is_alone(running.task))
        self._running[running.key] = running
        for key in (company := self._slots.company(running.key)):
            self._running[key].num_company = max(self._running[key].num_company, len(company) - 1)

    def _fail_at_the_door(self, task: Task, error: Exception) -> None:
        """Record a patch that cannot even be handed to its trainer; the others go on."""
        self._retries.could_not(task, diagnosis_of(error, self._output.patch(task.name).path), self._queue)

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
        """Judge what has ended; return whether something had."""
        if not (num := len(self._running)):
            return False
        seen = self._executor.poll({key: running.handle for key, running in self._running.items()})
        for key, running in list(self._running.items()):
            if (end := how_it_ended(running, seen[key])) is None:
                self._see_whether_it_finalizes(running)
            elif self._never_began(running, end) or self._is_judged(running, end):
                del self._running[key]
                self._slots.release(key, self._clock.now())
        for task in self._waiting() if self._retries.hopeless else ():  # what failed twice lies in the machine
            self._ledger.write(GaveUp(task.name, self._retries.hopeless))
        return len(self._running) < num

    def _see_whether_it_finalizes(self, running: Running) -> None:
        """Let the next attempt start beside one that only evaluates and exports; asked only if there is a next one."""
        if self._slots.is_full(running.key) and self._standbys.first() and judge.is_finalizing(running.attempt.folder):
            self._slots.finalizes(running.key, self._memory.holds(running))

    def _never_began(self, running: Running, end: Exit) -> bool:
        """Put a standby back in the queue that had died when it was told to go: it counts for nothing."""
        if has_not_begun := not isinstance(end, Cancelled) and judge.never_began(running.attempt.folder):
            self._standbys.discard(running)
            self._queue.put_back(running.task)
        return has_not_begun

    def _is_judged(self, running: Running, end: Exit) -> bool:
        """Judge an attempt; False while a full disk does not take its result: it keeps its slot until there is room."""
        now = self._clock.now()
        if not self._room.takes_writes(now) and not self._room.given_up(now):
            return False
        try:
            self._judge(running, end)
        except OSError as error:
            if not is_out_of_space(error):
                self._fail_at_the_door(running.task, error)
                return True
            self._room.shut(now, str(error))
            self._retries.note(running.task, Failed(self._room.diagnosis()))
            return self._room.given_up(now)
        return True

    def _judge(self, running: Running, end: Exit) -> None:
        task, ended = running.task, running.attempt
        outcome = judge.judge(ended.folder, task.setup.trainer, end, task.setup.differences)
        rules = replace(self._rules, place=places(task.patch, task.recipe))
        settle(Ending(ended, end, outcome), self._output.patch(task.name), self._ledger, rules)
        self._retries.ended(running, outcome, self._queue)
        if isinstance(outcome, Trained):
            self._memory.note(running)
        self._standbys.judged(running, end)
        if isinstance(outcome, Failed):
            if (cause := outcome.diagnosis.cause) == "disk_full":
                self._room.shut(self._clock.now(), f"disk full at {task.name}")
            if cause == "cuda_oom" and running.num_company:
                self._packer.ran_out_of_memory(1 + running.num_company)
            self._retries.failed(running, outcome.diagnosis, self._queue)

    def _waiting(self) -> list[Task]:
        """Return whatever has not begun, and forget it."""
        return [*self._standbys.retire(), *self._queue.clear()]

    def _stop_all(self, reason: str) -> None:
        """End what runs, wait for its records, and write them down."""
        self._waiting()
        ask_to_end(self._executor, self._running)
        give_up_at = self._clock.now() + self._patience_s
        while (self._running or self._standbys) and self._clock.now() < give_up_at:
            self._harvest()
            self._standbys.look()
            self._queue.clear()
            self._clock.sleep(POLL_S)
        for running in self._running.values():
            self._retries.note(running.task, Stopped(reason))
